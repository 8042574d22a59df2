"""Shared weights: centroids are trained by the sums of the gradients of the weights they stand for.

Source: Han, Mao and Dally 2016, "Deep Compression", section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..graph.graph import gradient_of
from ..graph.ops import ShareWeights, SumShared
from ..optimizers.groups import assigned_to
from ..optimizers.rules import state_of
from ..optimizers.sharing import CODE, shared_parameter
from .section import Member, Section


def shared(section: Section, bits: Mapping[str, int]) -> Section:
    """Members of centroids in place of those of the weights that match a pattern of ``bits``."""

    def with_centroids(member: Member) -> Member:
        centroids = shared_parameter(member.owner, bits)
        if centroids is None:
            return member
        one = assigned_to(member.one.group, section.rule, centroids, member.one.scale)
        return replace(member, one=one, gradient=gradient_of(centroids.tensor, section.name))

    members = tuple(map(with_centroids, section.members))
    pairs = zip(section.members, members, strict=True)
    found = [(weights, centroids) for weights, centroids in pairs if not centroids.is_own]
    if not found:
        return section
    codes = tuple(state_of(centroids.owner.tensor, CODE) for _, centroids in found)
    total = SumShared(
        gradients=tuple(weights.gradient for weights, _ in found),
        codes=codes,
        sums=tuple(centroids.gradient for _, centroids in found),
    )
    spread = ShareWeights(
        codes=codes,
        centroids=tuple(centroids.tensor for _, centroids in found),
        parameters=tuple(centroids.owner.tensor for _, centroids in found),
    )
    return replace(
        section, members=members, before=(*section.before, total), after=(*section.after, spread)
    )
