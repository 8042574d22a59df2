"""Clipping: all gradients of a step are scaled down together where their norm is too large."""

from __future__ import annotations

from dataclasses import replace

from ..graph.graph import Op, Tensor
from ..graph.ops import ClipByNorm, GatherRows, GlobalNorm, JoinNorms
from .section import Section


def clipped(
    section: Section, max_norm: float, split: frozenset[Tensor] = frozenset(), ranks: int = 1
) -> Section:
    """g *= min(1, max_norm / norm) for all gradients g, norm being that of all together.

    split: the parameters of which each of ``ranks`` processes has rows of its own; the norm of
    their gradients comes from all of them.
    """
    if not section.members:
        return section
    alike = tuple(m.gradient for m in section.members if m.owner.tensor not in split)
    apart = tuple(m.gradient for m in section.members if m.owner.tensor in split)

    def number(name: str, count: int = 1) -> Tensor:
        return Tensor(f"gradient_norm{name}", (count,), section=section.name)

    norm, norms = number(""), list[Op]()
    if not apart:
        norms.append(GlobalNorm(gradients=alike, norm=norm))
    else:
        own, every, common = number(".own"), number(".ranks", ranks), None
        norms.append(GlobalNorm(gradients=apart, norm=own))
        norms.append(GatherRows(x=own, y=every, ranks=ranks))
        if alike:
            common = number(".common")
            norms.append(GlobalNorm(gradients=alike, norm=common))
        norms.append(JoinNorms(norms=every, own=common, norm=norm))
    gradients = tuple(m.gradient for m in section.members)
    clip = ClipByNorm(norm=norm, gradients=gradients, max_norm=max_norm)
    return replace(section, before=(*section.before, *norms, clip))
