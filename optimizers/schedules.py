"""The learning rate as a function of the step, evaluated before training into a table.

t counts updates and is 0 at the first, lr is the optimizer's rate, T the end of the schedule. All
is computed in float64 and rounded once. The names fixed, step, multistep, exp, inv and poly and
their formulas are Caffe's (Jia et al. 2014, ``SolverParameter.lr_policy``); cosine is Loshchilov
and Hutter 2017 without restarts (eq. 5); one_cycle is Smith and Topin 2019 in PyTorch's form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ConfigError

if TYPE_CHECKING:
    from ..configs.schema.optimizer import LookaheadConfig
    from ..configs.schema.training import (
        MultistepConfig,
        OneCycleConfig,
        PiecewiseConfig,
        Schedule,
        StepConfig,
        WarmupConfig,
    )

Rates = NDArray[np.float64]


def training_steps(epochs: float | None, max_steps: int | None, steps_per_epoch: int) -> int:
    """The length of training in steps; a step that a fraction of an epoch begins is done whole."""
    if max_steps is not None:
        return max_steps
    # A product such as 0.1 * 30 may lie an ulp above the whole number that is meant.
    return max(1, math.ceil((epochs or 0.0) * steps_per_epoch - 1e-6))


def in_steps(epochs: float, steps_per_epoch: int) -> int:
    """Epochs as the nearest whole number of steps, at least 1."""
    return max(1, round(epochs * steps_per_epoch))


def ends_with_training(schedule: Schedule) -> bool:
    """Whether another length of training changes the rates of steps that both have."""
    if schedule.type == "poly" or schedule.type == "cosine":
        return schedule.max_steps is None and schedule.max_epochs is None
    if schedule.type == "piecewise":
        return schedule.at_fractions is not None
    return schedule.type == "one_cycle"


def learning_rates(
    schedule: Schedule, lr: float, steps_per_epoch: int, total_steps: int, path: str = "schedule"
) -> NDArray[np.float32]:
    """The rate of every step: (total_steps,) float32.

    Arguments whose key ends in ``_epochs`` are converted with ``steps_per_epoch``. Raises
    ConfigError, beginning with ``path``, for a milestone that training does not reach.
    """
    rates = _rates(schedule, lr, steps_per_epoch, total_steps, path)
    if schedule.warmup is not None:
        rates = rates * warmup(schedule.warmup, steps_per_epoch, total_steps)
    return rates.astype(np.float32)


def _rates(
    schedule: Schedule, lr: float, steps_per_epoch: int, total_steps: int, path: str
) -> Rates:
    t = np.arange(total_steps, dtype=np.float64)
    if schedule.type == "fixed":
        return np.full(total_steps, lr)
    if schedule.type == "step":
        return lr * schedule.gamma ** np.floor(t / _step_size(schedule, steps_per_epoch))
    if schedule.type == "multistep":
        milestones = _milestones(schedule, steps_per_epoch, total_steps, path)
        gamma = schedule.gamma * (len(milestones) if len(schedule.gamma) == 1 else 1)
        factors = np.cumprod([1.0, *gamma])
        return np.asarray(lr * factors[np.searchsorted(milestones, t, side="right")], np.float64)
    if schedule.type == "exp":
        return np.asarray(lr * schedule.gamma**t)
    if schedule.type == "inv":
        return np.asarray(lr * (1.0 + schedule.gamma * t) ** -schedule.power)
    if schedule.type == "poly":
        part = _part(schedule.max_steps, schedule.max_epochs, steps_per_epoch, total_steps)
        return np.asarray(lr * (1.0 - part) ** schedule.power)
    if schedule.type == "cosine":
        part = _part(schedule.max_steps, schedule.max_epochs, steps_per_epoch, total_steps)
        return _between(lr, schedule.min_lr, part, "cosine")
    if schedule.type == "one_cycle":
        return lr * one_cycle(schedule, total_steps)
    if schedule.type == "piecewise":
        points = _points(schedule, steps_per_epoch, total_steps)
        return np.asarray(lr * np.interp(t, points, schedule.factors))
    return lr * compounding(schedule.decay, total_steps)


def compounding(decay: float, total_steps: int) -> Rates:
    """product over i = 1..t of 1 / (1 + decay i), for t = 0 .. total_steps - 1; 1 at the first.

    The rate is multiplied by 1 / (1 + decay t) at every step t, so it falls as e^(-decay t^2 / 2)
    at first: far faster than the single 1 / (1 + decay t) of ``inv`` with power 1.
    """
    t = np.arange(total_steps, dtype=np.float64)
    return np.asarray(np.cumprod(1.0 / (1.0 + decay * t)), np.float64)


def one_cycle(schedule: OneCycleConfig, total_steps: int) -> Rates:
    """Factor of lr: start_factor at t = 0, 1 at the peak, end_factor at the last step.

    The peak lies at t = peak_fraction T - 1 and the end at T - 1, T = total_steps, as in PyTorch's
    OneCycleLR of two phases; ``shape`` is the form of both slopes.
    """
    t = np.arange(total_steps, dtype=np.float64)
    last = total_steps - 1.0
    peak = max(schedule.peak_fraction * total_steps - 1.0, 0.0)
    # Without steps before or after the peak that slope is not used, whatever it divides by.
    rise = np.clip(t / (peak or 1.0), 0.0, 1.0)
    fall = np.clip((t - peak) / ((last - peak) or 1.0), 0.0, 1.0)
    up = _between(schedule.start_factor, 1.0, rise, schedule.shape)
    down = _between(1.0, schedule.end_factor, fall, schedule.shape)
    return np.where(t < peak, up, down)


def warmup(config: WarmupConfig, steps_per_epoch: int, total_steps: int) -> Rates:
    """Factor start_factor + (1 - start_factor) t / steps for t < steps, 1 from there on.

    It multiplies the schedule, which runs from t = 0 all the same (Goyal et al. 2017, 2.2, with
    a start above zero).
    """
    steps = config.steps or in_steps(config.epochs or 0.0, steps_per_epoch)
    part = np.minimum(np.arange(total_steps, dtype=np.float64) / steps, 1.0)
    return np.asarray(config.start_factor + (1.0 - config.start_factor) * part)


def _between(start: float, end: float, part: Rates, shape: str) -> Rates:
    """From start (part = 0) to end (part = 1) in a line or half a cosine wave."""
    if shape == "linear":
        return start + (end - start) * part
    return end + (start - end) * (1.0 + np.cos(math.pi * part)) / 2.0


def _part(max_steps: int | None, max_epochs: float | None, per_epoch: int, total: int) -> Rates:
    """t / T up to 1, where T is given in steps, in epochs, or is the training's length."""
    end = max_steps or (in_steps(max_epochs, per_epoch) if max_epochs else total)
    return np.minimum(np.arange(total, dtype=np.float64) / end, 1.0)


def _step_size(schedule: StepConfig, steps_per_epoch: int) -> int:
    return schedule.step_size or in_steps(schedule.step_size_epochs or 0.0, steps_per_epoch)


def _points(schedule: PiecewiseConfig, steps_per_epoch: int, total_steps: int) -> list[int]:
    if schedule.at is not None:
        return list(schedule.at)
    if schedule.at_epochs is not None:
        return [round(epoch * steps_per_epoch) for epoch in schedule.at_epochs]
    # 0.57 of 100 is an ulp below the whole number that is meant.
    return [math.floor(part * total_steps + 1e-6) for part in schedule.at_fractions or ()]


def lookahead_decays(config: LookaheadConfig, total_steps: int) -> NDArray[np.float32]:
    """The decay of every step: (total_steps,) float32; -1 where the slow weights stay as they are.

    After step t, a multiple of ``every``, it is decay^every (t / T)^power. After the last step,
    unless that is such a multiple, it is 1: the weights become the slow ones.
    """
    t = np.arange(1, total_steps + 1, dtype=np.float64)
    decays = config.decay**config.every * (t / total_steps) ** config.power
    decays[t % config.every != 0] = -1.0
    if decays[-1] < 0:
        decays[-1] = 1.0
    return decays.astype(np.float32)


def _milestones(
    schedule: MultistepConfig, steps_per_epoch: int, total_steps: int, path: str
) -> NDArray[np.int64]:
    given: tuple[Any, ...]
    if schedule.milestones is not None:
        key, unit, given = "milestones", "step", schedule.milestones
        steps = [int(step) for step in given]
    else:
        key, unit, given = "milestones_epochs", "epoch", schedule.milestones_epochs or ()
        steps = [in_steps(epoch, steps_per_epoch) for epoch in given]
    for value, step in zip(given, steps, strict=True):
        if step >= total_steps:
            length = f"{total_steps} steps"
            if unit == "epoch":
                length = f"{total_steps / steps_per_epoch:g} epochs"
            raise ConfigError(
                f"{path}.{key}: {unit} {value:g} is never reached, training ends after {length} "
                f"({total_steps} steps of {steps_per_epoch} an epoch); use smaller milestones or "
                "train longer"
            )
    return np.array(steps, np.int64)
