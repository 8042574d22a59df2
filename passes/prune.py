"""Pruned weights: masks of zeros and ones keep weights at 0, and their gradients out of norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..graph.ops import Mask
from ..optimizers.pruning import MASK, is_pruned
from ..optimizers.rules import state_of
from .section import Section


def masked(section: Section, patterns: Sequence[str]) -> Section:
    """Gradients and, behind the updates, weights times the mask of each parameter that matches.

    Where weights share their values, their codes say which are 0, and there is no mask.
    """
    found = [m for m in section.members if m.is_own and is_pruned(m.owner, patterns)]
    if not found:
        return section
    masks = tuple(state_of(m.tensor, MASK) for m in found)
    before = Mask(masks=masks, values=tuple(m.gradient for m in found))
    after = Mask(masks=masks, values=tuple(m.tensor for m in found))
    return replace(section, before=(before, *section.before), after=(after, *section.after))
