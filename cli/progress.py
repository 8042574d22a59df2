"""How a training is shown: a progress bar on a terminal, plain lines in a pipe or a file.

If nobody reads any more (a closed terminal, the end of ``| head``), training continues silently.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Any

from ..common.printable import paragraph, printable
from ..training.listener import Listener, Progress, Started, Summary
from ..training.metrics import Metrics
from ..training.weights.start import Start
from . import console

_ECHO = 3
"""Columns left free; otherwise an echoed ^C would wrap, and a copy of the bar would remain."""
_WIDE = 100
"""The number of columns from which the bar has room for the learning rate."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_lost: list[OSError] = []


def check_output() -> None:
    """Raise OSError if a line could not be written for want of space."""
    if _lost:
        raise _lost.pop()


def say(*parts: str) -> None:
    """Print lines on standard output, as ``console.say`` does, if that can be written."""
    with _heard_or_not():
        console.say(*parts)


def remark(text: str) -> None:
    """Print a line, unless ``--quiet`` was given."""
    if not console.is_quiet():
        say(text)


@contextmanager
def _heard_or_not() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # A reader or a terminal that is gone wants no more; a full disk is told at the end.
        if error.errno in _FULL:
            _lost.append(error)
        # The rest of the buffer would fail again at exit, and change the exit status.
        console.drop_output()


class Lines(Listener):
    """Listens to a training; prints a line for each line of its log and each validation.

    ``advice`` is called whenever a line is logged, until it returns a text, which is then noted.
    """

    advice: Callable[[], str] | None = None

    def notice(self, text: str) -> None:
        console.note(text)

    def initialized(self, start: Start) -> None:
        say(f"init        {paragraph(start.lines())}")

    def started(self, started: Started) -> None:
        plan, state = started.plan, started.state
        self._steps_per_epoch = plan.steps_per_epoch
        say(f"run         {printable(started.run)}")
        say(
            f"data        {len(plan.train)} pictures for training, "
            f"{len(plan.validation)} for validation"
        )
        say(
            f"steps       {plan.total_steps}: batches of {plan.batch_size}, "
            f"{plan.steps_per_epoch} per epoch"
        )
        if started.resumed_from is not None:
            epoch = state.step / plan.steps_per_epoch
            source = printable(started.resumed_from)
            say(f"resumed     at step {state.step} (epoch {epoch:.2f}), from {source}")
            if (best := state.best) is not None:
                say(f"best        {best.accuracy:.2%} on validation so far, at step {best.step}")
            if state.rate_factor != 1.0:
                say(f"rate        {state.rate_factor:g} times the schedule's, after a rollback")

    def logged(self, progress: Progress) -> None:
        width = len(str(progress.total_steps))
        self._print(
            f"step {progress.step:>{width}}/{progress.total_steps}  "
            f"epoch {progress.epoch:.2f}/{_epochs(progress.total_epochs)}  "
            + _figures(progress, "  ")
        )
        self._advise()

    def _advise(self) -> None:
        if self.advice is not None and (text := self.advice()):
            self.advice = None
            self.notice(text)

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        epoch = step / self._steps_per_epoch
        self._print(
            f"epoch {_epochs(epoch)}: validation {_metrics(metrics, ', ')}",
            *((" ", console.coloured("(best)", "green", sys.stdout)) if best else ()),
        )

    def close(self) -> None:
        """Nothing to close."""

    def _print(self, *parts: str) -> None:
        say(*parts)


class Bar(Lines):
    """The same on a terminal: the log updates a bar, and validations are printed above it."""

    _bar: Any = None

    def started(self, started: Started) -> None:
        super().started(started)
        with _heard_or_not():
            self._bar = console.tqdm_bar(
                sys.stdout,
                _ECHO,
                total=started.plan.total_steps,
                initial=started.state.step,
                # The loop calls only several times a second, so tqdm need not skip any update.
                mininterval=0.0,
                bar_format="{n_fmt}/{total_fmt} {percentage:3.0f}% |{bar}| {desc}",
            )

    def progressed(self, progress: Progress) -> None:
        if self._bar is None:
            return
        self._bar.n = progress.step
        columns = get_terminal_size().columns
        self._bar.ncols = columns - _ECHO
        figures = _short_figures(progress, columns)
        with _heard_or_not():
            self._bar.set_description_str(
                f"epoch {progress.epoch:.2f}/{_epochs(progress.total_epochs)} {figures}"
            )

    def logged(self, progress: Progress) -> None:
        self.progressed(progress)
        self._advise()

    def notice(self, text: str) -> None:
        if self._bar is None:
            super().notice(text)
        else:
            self._print(printable(text))

    def close(self) -> None:
        if self._bar is not None:
            with _heard_or_not():
                self._bar.close()

    def _print(self, *parts: str) -> None:
        if self._bar is None:
            return super()._print(*parts)
        with _heard_or_not():
            self._bar.write(console.clean(parts), file=sys.stdout)


class Quiet(Lines):
    """Listens to a training and prints nothing."""

    def initialized(self, start: Start) -> None:
        """Nothing to print."""

    def started(self, started: Started) -> None:
        self._steps_per_epoch = started.plan.steps_per_epoch

    def _print(self, *parts: str) -> None:
        """Nothing to print: lines during the training are not results."""


def listener() -> Lines:
    """Return the listener that suits standard output and ``--quiet``."""
    if console.is_quiet():
        return Quiet()
    return Bar() if sys.stdout.isatty() else Lines()


def summary(done: Summary) -> str:
    """Return a few lines on how a training ended."""
    lines = [
        f"{done.state:<11} at step {done.step} of {done.total_steps} (epoch {done.epoch:.2f}), "
        + _times(done)
    ]
    if done.goal is not None and done.state == "finished":
        where = f"at step {done.step} (epoch {done.epoch:.2f})"
        met, missed = f"reached {where}: converged", "not reached: has not converged"
        lines.append(f"goal        {met if done.goal else missed}")
    if done.early and not done.goal and done.best is not None:
        lines.append(f"early       no validation after step {done.best.step} was better")
    if done.training is not None:
        pictures = f"over the last {done.training.count} pictures"
        lines.append(f"training    {_metrics(done.training, ', ')} ({pictures})")
    if done.validation is not None:
        lines.append(f"validation  {_metrics(done.validation, ', ')}")
    if done.best is not None and done.best.step != done.step:
        lines.append(f"best        accuracy {done.best.accuracy:.2%} at step {done.best.step}")
    if done.checkpoint is not None:
        lines.append(f"saved       {done.checkpoint}")
    return paragraph(lines)


def _figures(progress: Progress, gap: str) -> str:
    parts = [_metrics(progress.metrics, gap)] if progress.metrics is not None else []
    parts.append(f"lr {progress.learning_rate:.3g}")
    if progress.images_per_second:
        parts.append(f"{progress.images_per_second:.0f} images/s")
        parts.append(f"{_duration(progress.seconds_left)} left")
    return gap.join(parts)


def _short_figures(progress: Progress, columns: int) -> str:
    """The same, shorter, for the bar, which needs room itself."""
    metrics = progress.metrics
    parts = [f"loss {metrics.loss:.3f} acc {metrics.accuracy:.1%}"] if metrics is not None else []
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    parts += [f"lr {progress.learning_rate:.2g}"] if columns >= _WIDE else []
    parts += [f"{progress.images_per_second:.0f}/s", f"{minutes}:{seconds:02d} left"]
    return " ".join(parts)


def _metrics(metrics: Metrics, gap: str) -> str:
    return f"loss {metrics.loss:.4f}{gap}accuracy {metrics.accuracy:.2%}"


def _epochs(count: float) -> str:
    """Without decimals where there are none: 2, 0.35, 1000."""
    return f"{count:.2f}".rstrip("0").rstrip(".")


def _times(done: Summary) -> str:
    """How long training and validation took, if they took place."""
    parts = ["no step taken"]
    if done.images_per_second:
        training = f"{_duration(done.training_seconds)} of training"
        parts = [f"{training} ({done.images_per_second:.0f} images/s)"]
    if done.validation_seconds:
        parts.append(f"{_duration(done.validation_seconds)} of validation")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    whole, rest = divmod(round(seconds), 60)
    return f"{whole} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
