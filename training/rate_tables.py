"""The tables of learning rates that a config asks for: the training's, and those of its groups."""

from __future__ import annotations

from ..common.records import dataclass
from ..configs import RunConfig
from ..configs.schema.training import ScheduleConfig
from ..optimizers.groups import RATES
from ..optimizers.muon import rest_table
from ..optimizers.schedules import SCHEDULES
from ..optimizers.schedules.schedule import Schedule, Warmup


@dataclass(frozen=True)
class RateTable:
    """The rates of a schedule from ``lr``; ``path``: the key of the config that it stands under."""

    schedule: Schedule
    lr: float
    path: str = "schedule"


def rate_tables(config: RunConfig) -> dict[str, RateTable]:
    """The tables by the names of their tensors; the first is the training's.

    A group has its own for a schedule of its own. So have a group with its own lr and the rest
    under Muon where the schedule ends at a ``min_lr``, which is the same for all: elsewhere their
    rates are a multiple of another table's.
    """
    chosen, training = config.optimizer, make_schedule(config.schedule)
    found = {RATES: RateTable(training, chosen.lr)}
    for index, group in enumerate(chosen.groups or ()):
        path = "schedule" if group.schedule is None else f"optimizer.groups.{index}.schedule"
        schedule = training if group.schedule is None else make_schedule(group.schedule)
        lr = chosen.lr if group.lr is None or schedule.is_proportional else group.lr
        table = RateTable(schedule, lr, path)
        if table != found[RATES]:
            found[f"{RATES}.{index}"] = table
    if chosen.rest_rule is not None:
        found |= {
            rest_table(name): RateTable(table.schedule, chosen.rest_rule.lr, table.path)
            for name, table in found.items()
            if not table.schedule.is_proportional
        }
    return found


def make_schedule(config: ScheduleConfig) -> Schedule:
    """The schedule that a config names."""
    warmup = config.warmup and Warmup(**config.warmup.options())
    return SCHEDULES[config.type](**{**config.options(), "warmup": warmup})
