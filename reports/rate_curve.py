"""The learning rate of every update of a run, from its config; a log has that of some alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ..common.errors import DnnstackError
from ..common.files import read_regular
from ..configs import parse_config
from ..optimizers.groups import RATES
from ..optimizers.schedules.schedule import Length, training_steps
from ..training.rate_tables import rate_tables
from ..training.records.runs import CONFIG, LONGEST_CONFIG

_MOST = 20_000
Curve = list[tuple[float, float]]


def rate_curve(run: Path, logged: list[tuple[int, float, float]]) -> Curve:
    """(epoch, rate) after each update up to the last one that was logged, of many a selection.

    logged: (step, epoch, rate). Empty if the config says another rate than the log anywhere, as
    after a rollback or a resume with another schedule, or if it cannot be read.
    """
    if not logged:
        return []
    last, epoch, _ = max(logged)
    per_epoch = round(last / epoch) if epoch > 0 else 0
    if per_epoch < 1:
        return []
    try:
        text = read_regular(run / CONFIG, LONGEST_CONFIG).decode()
        config = parse_config(text, str(run / CONFIG))
        total = training_steps(config.train.epochs, config.train.max_steps, per_epoch)
        chosen = rate_tables(config)[RATES]
        length = Length(total, per_epoch, unreached=lambda text: None)
        rates = chosen.schedule.table(chosen.lr, length)
    except (OSError, ValueError, DnnstackError):
        return []
    for step, _, rate in logged:
        if not 1 <= step <= len(rates) or not math.isclose(
            rate, rates[step - 1], rel_tol=1e-4, abs_tol=1e-9
        ):
            return []
    steps = np.unique(np.linspace(1, last, min(last, _MOST)).round().astype(int))
    return [(int(step) / per_epoch, float(rates[step - 1])) for step in steps]
