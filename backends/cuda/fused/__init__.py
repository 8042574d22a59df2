"""Patterns of operations for which a kernel of ours stands; each with its launch and its source.

``REWRITES``: those of the graph, which libraries know too, then those that find these patterns.
"""

from __future__ import annotations

from ....graph.rewrites import REWRITES as KNOWN
from ....graph.rewrites import Rewrite
from . import dense_tail, first_conv, residual

REWRITES: dict[str, Rewrite] = {
    **KNOWN,
    "first_conv_pool": first_conv.rewrite,
    "dense_tail": dense_tail.rewrite,
    "residual": residual.rewrite,
}
