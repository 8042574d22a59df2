"""The operations that ``graph.ops`` offers."""

from __future__ import annotations

from dnnstack.graph import ops
from dnnstack.graph.graph import Op

OPERATIONS = {
    each for each in vars(ops).values() if isinstance(each, type) and issubclass(each, Op)
} - {Op, ops.Banded, ops.Exchange, ops.ParameterUpdate}
"""All but what others are only derived from."""
