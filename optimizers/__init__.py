"""Optimizers: update rules, the parameters that they apply to, and learning rates."""

from __future__ import annotations

from ..common.options import kinds_in
from .rules import Rule

RULES = kinds_in(__name__, Rule)
"""The rules that a config can use: every class with a ``kind`` in a module of this folder."""
