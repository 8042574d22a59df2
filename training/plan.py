"""The plan of a training: samples, number of steps, learning rates, and when something is due."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ConfigError, DatasetError
from ..common.machine import main_memory
from ..common.records import dataclass
from ..configs import RunConfig
from ..configs.schema.optimizer import SwaConfig
from ..configs.schema.run import TrainConfig
from ..datasets import steps_per_epoch
from ..datasets.loader import Index
from ..optimizers.groups import RATES
from ..optimizers.schedules.schedule import Length, training_steps
from ..passes.average import EMA, LOOKAHEAD, SWA, lookahead_decays, swa_decays
from .rate_tables import make_schedule, rate_tables
from .splits import divide

# Of the rate of a step, while it is computed in float64 and kept in float32.
_RATE_BYTES = 12
# Of the log, if the config does not say it: the most steps of a window, the fewest lines of a run.
_MOST, _LINES = 100, 20


@dataclass(frozen=True)
class Plan:
    """All counts of a training; ``rates``: (total_steps,) float32.

    ``tables``: separate learning rates of parameters, and decays of averages, by the names of their
    tensors and with the length of ``rates``. train, validation: indices into the training set,
    ascending int32. Intervals are in steps; 0 means only at the end. ``snapshots``: the steps whose
    checkpoints are kept, rising. ``notices``: milestones that are not reached.
    """

    train: NDArray[np.int32]
    validation: NDArray[np.int32]
    batch_size: int
    evaluation_batch_size: int
    steps_per_epoch: int
    total_steps: int
    rates: NDArray[np.float32]
    log_every: int
    validate_every: int
    save_every: int
    tables: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    snapshots: tuple[int, ...] = ()

    def log_due(self, step: int) -> bool:
        """Whether a window of the log ends after ``step`` updates."""
        return step % self.log_every == 0

    def validation_due(self, step: int) -> bool:
        return len(self.validation) > 0 and self._due(step, self.validate_every)

    def save_due(self, step: int) -> bool:
        return self._due(step, self.save_every) or self._next_snapshot(step - 1) == step

    def next_stop(self, step: int) -> int:
        """The next step at which something is due or an epoch ends."""
        intervals = (self.log_every, self.validate_every, self.save_every, self.steps_per_epoch)
        following = (step - step % n + n for n in intervals if n)
        return min(self.total_steps, self._next_snapshot(step), *following)

    def scaled_tables(self, factor: np.float32) -> dict[str, NDArray[np.float32]]:
        """``rates`` and ``tables`` by name, the rates among them multiplied by ``factor``."""
        every = {RATES: self.rates, **self.tables}
        rates = (name for name in every if name.partition(".")[0] == RATES)
        return every | {name: every[name] * factor for name in rates}

    def _next_snapshot(self, step: int) -> int:
        """The first snapshot after ``step`` updates, or the end of training."""
        place = bisect_right(self.snapshots, step)
        return self.snapshots[place] if place < len(self.snapshots) else self.total_steps

    def _due(self, step: int, interval: int) -> bool:
        return step == self.total_steps or (interval > 0 and step % interval == 0)


def make_plan(
    config: RunConfig, count: int, resuming: bool = False, parts: tuple[Index, Index] | None = None
) -> Plan:
    """The plan for a training set of ``count`` samples.

    parts: those to train on and to validate on; by default others, but as many. A milestone that
    is not reached is an error, unless an override gave the length, perhaps that of the run that is
    now resumed. Raises DatasetError if no batch can be filled, ConfigError for a schedule that does
    not fit, for what counts validations if there are none, or for a goal that cannot be measured.
    """
    data, train, saving = config.data, config.train, config.checkpoint
    chosen, held = divide(config, np.zeros(count, np.int32)) if parts is None else parts
    for wanted in ("patience", "reduce_on_plateau"):
        if getattr(train, wanted) is not None and len(held) == 0:
            raise ConfigError(
                f"train.{wanted}: counts validations, but data.validation is 0; hold samples back "
                f"for validation, or remove train.{wanted}"
            )
    per_epoch = steps_per_epoch(len(chosen), data.batch_size)
    total = training_steps(train.epochs, train.max_steps, per_epoch)
    key = "epochs" if train.max_steps is None else "max_steps"
    if total >= 2**31:
        raise DatasetError(f"train.{key}: {total} steps are more than a run can have (2147483647)")
    if data.batch_size % train.accumulate:
        raise ConfigError(
            f"train.accumulate: a batch of {data.batch_size} (data.batch_size) cannot be computed "
            f"in {train.accumulate} parts of equal size"
        )
    _check_length(config, key, total)
    notices: dict[str, None] = {}
    lenient = resuming or config.train.length_overridden
    tables = _tables(config, per_epoch, total, notices.setdefault if lenient else None)
    return Plan(
        train=chosen,
        validation=held,
        batch_size=data.batch_size,
        evaluation_batch_size=min(data.evaluation_batch_size, max(len(held), 1)),
        steps_per_epoch=per_epoch,
        total_steps=total,
        rates=tables.pop(RATES),
        log_every=_log_every(train, per_epoch, total, len(held) == 0),
        validate_every=train.validate_every_epochs * per_epoch,
        save_every=saving.every_steps or (saving.every_epochs or 0) * per_epoch,
        tables=tables,
        snapshots=snapshot_steps(config, per_epoch),
        notices=tuple(notices),
    )


def snapshot_steps(config: RunConfig, per_epoch: int) -> tuple[int, ...]:
    """How many steps are done at the end of each cycle, if ``checkpoint.snapshots`` asks for it.

    Raises ConfigError for a schedule without cycles, or whose first cycle is not completed.
    """
    if not config.checkpoint.snapshots:
        return ()
    train, schedule = config.train, make_schedule(config.schedule)
    total = training_steps(train.epochs, train.max_steps, per_epoch)
    ends = schedule.cycle_ends(Length(total, per_epoch))
    if ends is None or not len(ends):
        why = f"training ends after {total} steps, before the first cycle; train longer"
        if ends is None:
            why = f"'{schedule.kind}' has no cycles; use 'cosine_restarts'"
        raise ConfigError(
            f"checkpoint.snapshots: are the checkpoints at the end of each cycle of the schedule, "
            f"but {why}, or remove checkpoint.snapshots"
        )
    return tuple(ends.tolist())


def _log_every(train: TrainConfig, per_epoch: int, total: int, unvalidated: bool) -> int:
    """The steps of a window of the log: the config's, or so many that a curve has enough points.

    Raises ConfigError for windows over which a goal cannot be measured.
    """
    measured = train.goal is not None and unvalidated
    if train.log_every is None:
        return per_epoch if measured else max(1, min(_MOST, per_epoch, total // _LINES))
    if measured and train.log_every < per_epoch:
        raise ConfigError(
            "train.goal: without validation samples it is measured over the lines of the log, but "
            f"train.log_every: {train.log_every} is less than the {per_epoch} steps of an epoch; "
            f"set it to {per_epoch}, or hold samples back with data.validation"
        )
    return train.log_every


def _check_length(config: RunConfig, key: str, total: int) -> None:
    """Raise ConfigError for more steps than memory has room for the rates of."""
    needed = total * _RATE_BYTES * len(rate_tables(config))
    if needed > main_memory():
        raise ConfigError(
            f"train.{key}: the learning rates of {total} steps take {needed / 1e9:.1f} GB, more "
            "than the memory that there is; choose fewer steps"
        )


def _tables(
    config: RunConfig, per_epoch: int, total: int, unreached: Callable[[str], object] | None
) -> dict[str, NDArray[np.float32]]:
    optimizer = config.optimizer
    tables = {
        name: table.schedule.table(table.lr, Length(total, per_epoch, table.path, unreached))
        for name, table in rate_tables(config).items()
    }
    if optimizer.lookahead is not None:
        lookahead = optimizer.lookahead.options()
        tables[f"{LOOKAHEAD}.decays"] = lookahead_decays(**lookahead, total_steps=total)
    if optimizer.ema is not None:
        tables[f"{EMA}.decays"] = np.full(total, optimizer.ema.decay, np.float32)
    if optimizer.swa is not None:
        start, every = swa_steps(optimizer.swa, per_epoch)
        if start > total:
            text = (
                f"optimizer.swa: training ends after {total} steps, before step {start}, the first "
                "that is in the average"
            )
            if unreached is None:
                raise ConfigError(f"{text}; start earlier, or train longer")
            unreached(text)
        tables[f"{SWA}.decays"] = swa_decays(start, every, total)
    return tables


def swa_steps(swa: SwaConfig, per_epoch: int) -> tuple[int, int]:
    """The first step that is in the average, and the steps from there to the next."""
    length = Length(1, per_epoch)
    start = length.steps(swa.start_step, swa.start_epoch)
    epochs = swa.every_epochs if swa.every_steps else swa.every_epochs or 1.0
    return start, length.steps(swa.every_steps, epochs)
