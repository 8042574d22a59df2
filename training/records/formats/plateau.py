"""Plateau: validations without improvement, and the factor of the rates that they lead to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ....common.records import dataclass
from ....common.typed_json import Count, Finite

if TYPE_CHECKING:
    from ....configs.schema.training import PlateauConfig


@dataclass(frozen=True)
class Plateau:
    """The ``best`` value of what is measured ``by``, higher being better; how many validations are
    ``unimproved`` since then; how many more are not counted; and the factor of all rates."""

    by: str = ""
    best: Finite | None = None
    unimproved: Count = 0
    cooldown: Count = 0
    factor: Finite = 1.0

    def after(self, by: str, value: float | None, config: PlateauConfig, lr: float) -> Plateau:
        """The state after a validation; lr: the optimizer's. A value of None is no better."""
        best = self.best if self.by == by else None
        enough = None if best is None else best + config.threshold * abs(best)
        better = value is not None and (enough is None or value > enough)
        unimproved = 0 if better or self.cooldown else self.unimproved + 1
        found = replace(self, by=by, best=value if better else best, unimproved=unimproved)
        if unimproved < config.patience:
            return replace(found, cooldown=max(self.cooldown - 1, 0))
        least = min(self.factor, config.min_lr / lr)
        factor = max(self.factor * config.factor, least)
        return replace(found, unimproved=0, cooldown=config.cooldown, factor=factor)
