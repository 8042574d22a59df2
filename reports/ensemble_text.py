"""The evaluation of an ensemble as text: the members, what they gain together, then the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ..common.printable import paragraph
from ..common.targets import MEASURES
from ..common.text import samples_of
from ..many.ensemble import MIXED, EnsembleEvaluation, Gain
from ..training.inference.evaluate import Evaluation
from ..training.records.formats.state import figure, shown
from ..training.records.formats.store import FOLDER
from .evaluate_text import NAMES, as_text
from .tables import WIDTH, table
from .units import span_text

_FIGURES = {"numbers": ("r2", "rmse"), "yes_no": ("accuracy", "roc_auc")}
_HOW = {
    "probabilities": "the average of the probabilities",
    "logits": "the average of the logits",
    "votes": "the most votes; of equal numbers, the greater mean probability",
}


def text_of(result: Evaluation, width: int = WIDTH) -> str:
    """The evaluation of one network, or of several."""
    if isinstance(result, EnsembleEvaluation):
        return _of_several(result, width)
    return as_text(result, width)


def _of_several(result: EnsembleEvaluation, width: int = WIDTH) -> str:
    """The text of an evaluation, with the members and the gain after its first lines."""
    lines = as_text(result, width).splitlines()
    head = len(list(takewhile(bool, lines)))
    own = ["", *_members(result, min(width, WIDTH)), "", *_gains(result)]
    return paragraph([*lines[:head], *own, *lines[head:]])


def _members(result: EnsembleEvaluation, width: int) -> list[str]:
    rows: list[Sequence[object]] = [("network", "weight", *heads_of(result))]
    for member, weight in zip(result.members, result.weights, strict=True):
        rows.append((name_of(member), f"{weight:.3f}", *figures_of(member)))
    weighted = "; with the weights above" if result.weighted else ""
    how = _HOW[result.combine] if result.kind != "numbers" else "the average of the answers"
    lines = [*table(rows, "<>", width), "", f"combined  {how}{weighted}"]
    if result.tta == MIXED:
        lines.append("tta       the views of each network's own config")
    return lines


def heads_of(member: Evaluation) -> tuple[str, str, str]:
    """What ``figures_of`` gives."""
    if member.counts:
        return "accuracy", "95% interval", "loss"
    first, second = _FIGURES[member.kind]
    return NAMES[first], NAMES[second], "loss"


def figures_of(member: Evaluation) -> tuple[str, str, str]:
    """Accuracy, its interval and loss, or what there is of other targets, for a row of a table."""
    if not member.counts:
        first, second = (figure(key, member.measured.overall[key]) for key in _FIGURES[member.kind])
        return first, second, f"{member.loss:.4f}"
    return f"{member.accuracy:.2%}", span_text(member.interval), f"{member.loss:.4f}"


def name_of(member: Evaluation) -> str:
    """The folder of a run and the step of its checkpoint, else the file."""
    path = member.checkpoint
    if path.parent.name != FOLDER:
        return member.title
    return f"{path.parent.parent.name}, {path.stem}"


def _gains(result: EnsembleEvaluation) -> list[str]:
    best = shown(MEASURES[result.kind], result.members[result.best].accuracy)
    unit = "R2" if result.kind == "numbers" else "points of accuracy"
    return [
        f"gain      {_gain(result.over_mean, unit)} over a network on average",
        f"          {_gain(result.over_best, unit)} over the best network here, {best}",
        f"          ({unit}, with 95% confidence intervals over the {samples_of(result.size)})",
    ]


def _gain(gain: Gain, unit: str) -> str:
    found = (gain.difference, gain.low, gain.high)
    difference, low, high = (
        f"{each:+.4f}" if unit == "R2" else f"{100 * each:+.2f}" for each in found
    )
    return f"{difference} ({low} to {high})"
