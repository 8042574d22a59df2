"""The options of commands that take several trained networks as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import completion, console
from .options import Decorator, all_of

if TYPE_CHECKING:
    from ..backends.select import Device
    from ..classifier import Classifier
    from ..datasets import Downloads

VALIDATION = "validation"
_METHODS = ["probabilities", "logits", "votes"]


def option(*, fitted: bool) -> Decorator:
    """``--ensemble``, ``--combine`` and ``--weights``; ``fitted``: weights can be found."""
    where = "equal; validation: those that are best on the validation samples; or" * fitted
    return all_of(
        click.option(
            "--ensemble",
            multiple=True,
            metavar="RUN",
            shell_complete=completion.members,
            help="Take several networks as one: runs, checkpoint files, the name of a group of "
            "runs, or a run with snapshots; repeat it, or separate names with commas.",
        ),
        click.option(
            "--combine",
            type=click.Choice(_METHODS),
            help="With --ensemble: average the probabilities or the logits, or count votes; "
            "default: probabilities.",
        ),
        click.option(
            "--weights",
            metavar="W",
            help=f"With --ensemble: {where or 'equal, or'} a number for each network, with commas "
            "between; default: equal.",
        ),
    )


def numbers(weights: str | None) -> list[float] | None:
    """The weights as numbers; None for equal ones and those that are to be found."""
    if weights in (None, "equal", VALIDATION):
        return None
    try:
        return [float(word) for word in str(weights).split(",")]
    except ValueError:
        raise click.UsageError(
            f"--weights: expected 'equal' or numbers such as 0.5,0.3,0.2, or for eval "
            f"'{VALIDATION}' (got '{weights}')"
        ) from None


def opened(
    ensemble: tuple[str, ...],
    combine: str | None,
    weights: str | None,
    run: str | None,
    checkpoint: Path | None,
    runs_dir: Path | None,
    device: Device | None,
    threads: int | None,
    no_graph: bool,
    notice: Callable[[str], None] = console.note,
    tta: str = "none",
    uncalibrated: bool = False,
) -> Classifier:
    """The classifier that the options name: an ensemble, or one network.

    tta: the views over which ``predict`` averages; uncalibrated: calibrations are left out.
    """
    from ..classifier import open_classifier
    from ..common.errors import UsageError

    ctx = click.get_current_context()
    for name, value in (("--run", run), ("--checkpoint", checkpoint)):
        if ensemble and value is not None:
            raise click.UsageError(f"--ensemble and {name} cannot be used together", ctx)
    for name, word in (("--combine", combine), ("--weights", weights)):
        if word is not None and not ensemble:
            raise click.UsageError(f"{name} needs --ensemble", ctx)
    folder = runs_dir or Path("runs")
    how = (device or "auto", threads, not no_graph, notice, tta, not uncalibrated)
    if not ensemble:
        return open_classifier(run, checkpoint, folder, *how)
    from ..ensemble import open_ensemble

    method: Any = combine or "probabilities"
    given = numbers(weights)
    if weights == VALIDATION and method != "probabilities":
        raise click.UsageError(f"--weights validation: not for {method}; give numbers", ctx)
    try:
        return open_ensemble(ensemble, folder, method, given, *how)
    except UsageError as error:
        if len(ensemble) > 1 or "," in ensemble[0] or "at least two" not in str(error):
            raise
        raise UsageError(
            f"{error}; names are separated by commas: --ensemble {ensemble[0]},NAME"
        ) from None


def fitted(
    model: Classifier,
    weights: str | None,
    data_dir: Path | None,
    downloads: Downloads | None,
    tta: str | None,
    size: str | None,
) -> int:
    """The number of networks of the model, whose weights are found if that is asked for."""
    from ..ensemble import Ensemble

    if not isinstance(model, Ensemble):
        return 1
    if weights == VALIDATION:
        model.fit_weights(data_dir, downloads, tta=tta, size=size)
    return len(model.members)
