"""Rules that turn gradients into new parameters, for which parameters, at what rate."""

from __future__ import annotations

from ..common.options import kinds_in
from .rules import Rule

RULES = kinds_in(__name__, Rule)
"""Those that a config can name: every class with a ``kind`` in a module of this folder."""
