"""A training as text: its beginning, a line of its log, a validation, its end."""

from __future__ import annotations

from math import floor, log10

from ..common.printable import paragraph, printable
from ..training.listener import Progress, Started, Summary
from ..training.records.formats.state import Metrics, shown
from ..training.weights.start import Start


def initialized(start: Start) -> str:
    """What the first weights were taken from, and what was not."""
    return f"init        {paragraph(start.lines())}"


def beginning(started: Started) -> list[str]:
    """Run, data and length, and what a resumed training continues from."""
    plan, state = started.plan, started.state
    lines = [
        f"run         {printable(started.run)}",
        f"data        {len(plan.train)} {started.samples} for training, "
        f"{len(plan.validation)} for validation",
        f"steps       {plan.total_steps}: batches of {plan.batch_size}, "
        f"{plan.steps_per_epoch} per epoch",
    ]
    if started.measured is not None:
        mean, std = (", ".join(f"{value:.4g}" for value in each) for each in started.measured)
        lines.append(f"normalize   mean {mean}, deviation {std} (measured)")
    if started.resumed_from is not None:
        epoch = one_epoch(state.step / plan.steps_per_epoch)
        source = printable(started.resumed_from)
        lines.append(f"resumed     at step {state.step} (epoch {epoch}), from {source}")
        if (best := state.best) is not None:
            lines.append(
                f"best        {shown(*best.figure)} on validation so far, at step {best.step}"
            )
        if state.factor != 1.0:
            why = "a plateau" if state.rate_factor == 1.0 else "a rollback"
            lines.append(f"rate        {state.factor:g} times the schedule's, after {why}")
    return lines


def step_line(progress: Progress) -> str:
    """A line of the log."""
    width = len(str(progress.total_steps))
    return (
        f"step {progress.step:>{width}}/{progress.total_steps}  "
        f"epoch {of_epochs(progress.epoch, progress.total_epochs)}  " + _figures(progress, "  ")
    )


def validation_line(epoch: float, metrics: Metrics) -> str:
    """A validation after this many epochs."""
    return f"epoch {epochs(epoch)}: validation {_metrics(metrics, ', ')}"


def summary(done: Summary) -> str:
    """Return a few lines on how a training ended."""
    lines = [
        f"{done.state:<11} at step {done.step} of {done.total_steps} "
        f"(epoch {one_epoch(done.epoch)}), {_times(done)}"
    ]
    if done.goal is not None and done.state == "finished":
        where = f"at step {done.step} (epoch {one_epoch(done.epoch)})"
        met, missed = f"reached {where}: converged", "not reached: has not converged"
        lines.append(f"goal        {met if done.goal else missed}")
    if done.early and not done.goal and done.best is not None:
        lines.append(f"early       no validation after step {done.best.step} was better")
    if done.training is not None:
        count, last = done.training.count, done.training_step
        over = f"over the last {count} {done.samples}"
        if last != done.step:
            over = f"over the {count} {done.samples} up to step {last}"
        lines.append(f"training    {_metrics(done.training, ', ')} ({over})")
    if done.validation is not None:
        lines.append(f"validation  {_metrics(done.validation, ', ')}")
    if done.best is not None and done.best.step != done.step:
        best = _measured(*done.best.figure)
        lines.append(f"best        {best} at step {done.best.step}")
    if done.checkpoint is not None:
        lines.append(f"saved       {done.checkpoint}")
    return paragraph(lines)


def _figures(progress: Progress, gap: str) -> str:
    parts = [_metrics(progress.metrics, gap)] if progress.metrics is not None else []
    parts.append(f"lr {progress.learning_rate:.3g}")
    if progress.images_per_second:
        parts.append(f"{progress.images_per_second:.0f} {progress.samples}/s")
        parts.append(f"{duration(progress.seconds_left)} left")
    return gap.join(parts)


def short_figures(progress: Progress, wide: bool) -> str:
    """The same, shorter, for a bar, which needs room itself; ``wide``: with the rate."""
    metrics = progress.metrics
    parts = []
    if metrics is not None:
        value = metrics.accuracy
        short = f"acc {value:.1%}" if metrics.spread is None else f"R2 {value:.3f}"
        parts.append(f"loss {metrics.loss:.3f} {short}")
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    parts += [f"lr {progress.learning_rate:.2g}"] if wide else []
    parts += [f"{progress.images_per_second:.0f}/s", f"{minutes}:{seconds:02d} left"]
    return " ".join(parts)


def _metrics(metrics: Metrics, gap: str) -> str:
    by = f"{gap}{shown(metrics.by, metrics.value)}" if metrics.by else ""
    return f"loss {metrics.loss:.4f}{gap}{_measured(metrics.measure, metrics.accuracy)}{by}"


def _measured(measure: str, value: float | None) -> str:
    return f"{'accuracy ' if measure == 'accuracy' else ''}{shown(measure, value)}"


def epochs(count: float) -> str:
    """Without decimals where there are none: 2, 0.35, 1000, 0.0012."""
    found = one_epoch(count)
    return found.rstrip("0").rstrip(".")


def one_epoch(count: float) -> str:
    """With two decimals, or as many as show what a few steps are."""
    return f"{count:.{_decimals(count)}f}"


def of_epochs(epoch: float, total: float) -> str:
    """``0.50/2``, ``0.0012/0.0035``."""
    return f"{epoch:.{_decimals(total)}f}/{epochs(total)}"


def _decimals(count: float) -> int:
    return max(2, 1 - floor(log10(count))) if count > 0 else 2


def _times(done: Summary) -> str:
    """How long training, validation and saving took, if they took place."""
    parts = ["no step taken"]
    if done.images_per_second:
        training = f"{duration(done.training_seconds)} of training"
        parts = [f"{training} ({done.images_per_second:.0f} {done.samples}/s)"]
    if done.validation_seconds:
        parts.append(f"{duration(done.validation_seconds)} of validation")
    if done.images_per_second and done.saving_seconds:
        parts.append(f"{duration(done.saving_seconds)} of saving")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as a person would say them."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    whole, rest = divmod(round(seconds), 60)
    return f"{whole} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
