"""An evaluation as text, in 80 columns or the width of a narrower terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..common.cells import cells, padded
from ..common.printable import paragraph
from ..common.text import cut, samples_of
from ..training.augmentation import TEST_TIME
from ..training.inference.evaluate import Evaluation
from ..training.inference.intervals import wilson
from ..training.records.formats.state import figure
from .tables import CLASS, WIDTH, fitted, table
from .units import span_text

_NAME = 12
_LONG_NAME = 36
_CONFUSED = 5
_NAMED = 10
# Of a sample's numbers in a row.
_SHOWN = 4
_PARTS = ("mean", "min", "p25", "median", "p75", "max")
NAMES = {
    "r2": "R2",
    "rmse": "RMSE",
    "mae": "MAE",
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "roc_auc": "ROC AUC",
}
"""Of figures, as people read them."""
# The column of the intervals, and without it those of F1 and of precision.
_SPAN = 5
_SPARED = (5, 3)


def as_text(result: Evaluation, width: int = WIDTH) -> str:
    """Accuracy and loss, then classes, the most common mistakes, and the confusion matrix.

    The matrix is left out if it is too wide.
    """
    width = min(width, WIDTH)
    top = {k: right for k, right in result.top_k.items() if k > 1}
    ranks = [f"{k}: {right / result.count:.2%}" for k, right in top.items()]
    spans = [f"{k}: {span_text(wilson(right, result.count))}" for k, right in top.items()]
    lines = [
        result.title,
        f"on {result.dataset}, split {result.part}: {result.count} {samples_of(result.size)}",
        "",
    ]
    if not result.counts:
        return paragraph([*lines, *_tta(result), *_trust(result), *_targets(result, width)])
    lines += [
        f"accuracy  {result.accuracy:.2%}  ({result.correct} right, "
        f"{result.count - result.correct} wrong)",
        f"          {span_text(result.interval)}  (95% confidence interval)",
    ]
    lines += _tta(result)
    if ranks:
        lines.append(f"top-k     {', '.join(ranks)}  (true class among the k likeliest)")
        lines.append(f"          {', '.join(spans)}")
    error, divergence = (
        result.measured.overall.get(key) for key in ("calibration_error", "kl_divergence")
    )
    if error is not None:
        lines.append(f"ECE       {error:.2%}  (expected calibration error, of the probabilities)")
    lines += _trust(result)
    if divergence is not None:
        lines.append(f"KL        {divergence:.4f}  (divergence from the shares of the targets)")
    lines += [*_loss(result), "", *_classes(result, width)]
    matrix = _matrix(result, width)
    if matrix is None:
        lines += ["", "(--json has the confusion matrix)"]
    return paragraph([*lines, *_confused(result), *_named(result, width), *(matrix or [])])


def _tta(result: Evaluation) -> list[str]:
    if result.tta not in TEST_TIME or result.tta == "none":
        return []
    count = len(TEST_TIME[result.tta].views)
    of = "each picture"
    if result.tta_share < 1:
        of = f"the {100 * result.tta_share:.3g}% of each batch with the closest scores"
    return [f"tta       {result.tta}: scores averaged over {count} views of {of}"]


def _trust(result: Evaluation) -> list[str]:
    """The calibration, the share of samples that are familiar, and the class of rejects."""
    lines = []
    if result.temperature is not None:
        lines.append(f"T         {result.temperature:.3f}  (temperature of the calibration)")
    if result.kept is not None:
        lines.append(f"familiar  {result.kept:.2%}  (the others are none of these)")
    if found := result.rejects:
        name = cut(result.classes[found["index"]], _NAME)
        lines += [
            f"rejects   of {found['count']} '{name}', {found['false_alarms']} false alarms: taken "
            f"for another class; AUROC {figure('roc_auc', found['roc_auc'])}",
            f"          of {found['known']} others, {found['misses']} misses: taken for none; "
            f"accuracy {figure('accuracy', found['accuracy'])}",
        ]
    return lines


def _loss(result: Evaluation) -> list[str]:
    # Votes have none.
    return [f"loss      {result.loss:.4f}"] if result.loss == result.loss else []


def _targets(result: Evaluation, width: int) -> list[str]:
    """Numbers or questions: the figures of all, of each, and the worst samples."""
    overall = result.measured.overall
    lines = [f"{NAMES[key]:<10}{figure(key, value)}" for key, value in overall.items()]
    if result.kind == "yes_no":
        lines.append(f"{'threshold':<10}{result.threshold:g}  (an answer above it is yes)")
    keys = [*overall, *(("residuals",) if result.kind == "numbers" else ("yes",))]
    rows: list[Sequence[object]] = []
    for label, found in zip(result.classes, result.measured.outputs, strict=True):
        cells_of = []
        for key in keys:
            each = found[key]
            if key == "residuals":
                cells_of += [f"{each[part]:.4g}" for part in _PARTS]
            else:
                cells_of.append(str(each) if key == "yes" else figure(key, each))
        rows.append((cut(label, _LONG_NAME), *cells_of))
    heads = [*(NAMES[key] for key in overall), *(_PARTS if result.kind == "numbers" else ("yes",))]
    what = "number" if result.kind == "numbers" else "question"
    lines += [*_loss(result), "", *table([(what, *heads), *rows], "<>", width)]
    if result.kind == "numbers":
        lines.append("(the last six: the residuals, answer minus truth)")
    worst = [
        (f"  {miss.index}", _row(miss.targets), _row(miss.answers), _from_here(miss.source))
        for miss in result.misses[:_NAMED]
    ]
    heading = ("worst samples", "truth", "answer", "")
    return [*lines, "", *table([heading, *worst], "<<", width, {3: 1})]


def _row(values: Sequence[float]) -> str:
    shown = [f"{value:.4g}" for value in values[:_SHOWN]]
    return ", ".join([*shown, "..."] if len(values) > _SHOWN else shown)


def _classes(result: Evaluation, width: int) -> list[str]:
    """The table of classes; the intervals are left out before names are cut, others after it."""
    every = _rows(result)
    lines = table(every, "<>")
    if max(map(cells, lines)) <= width:
        return lines
    return fitted([[*row[:_SPAN], *row[_SPAN + 1 :]] for row in every], "<>", width, _SPARED)


def _rows(result: Evaluation) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = [
        ("class", samples_of(result.size), "right", "precision", "recall", "95% interval", "F1")
    ]
    for entry in result.per_class():
        own = [entry[key] for key in ("precision", "recall", "f1")]
        name = cut(entry["label"], _LONG_NAME)
        span = entry["recall_interval"]
        shares = [_share(own[0]), _share(own[1]), span_text(span) if span else "-", _share(own[2])]
        rows.append((name, entry["count"], entry["correct"], *shares))
    precision, recall, f1 = map(_share, result.means())
    rows.append(("mean", result.count, result.correct, precision, recall, "", f1))
    return rows


def _confused(result: Evaluation) -> list[str]:
    pairs = result.confused(_CONFUSED)
    if not pairs:
        return []
    lines = ["", "most confused"]
    names = [cut(name, CLASS) for name in result.classes]
    digits = max(len(str(count)) for _, _, count in pairs)
    for label, answer, count in pairs:
        share = count / int(result.confusion[label].sum())
        lines.append(
            f"  {count:>{digits}} x  {names[label]} taken for {names[answer]}  "
            f"({share:.1%} of {names[label]})"
        )
    return lines


def _named(result: Evaluation, width: int) -> list[str]:
    """The worst mistakes by their files or rows, where the data set names these."""
    named = [mistake for mistake in result.worst if mistake.source]
    if not named:
        return []
    names = [cut(name, CLASS) for name in result.classes]
    rows: list[Sequence[object]] = [("worst mistakes", "answer", "")]
    for mistake in named[:_NAMED]:
        share = f"{mistake.probability:.1%}"
        rows.append((f"  {names[mistake.label]}", names[mistake.answer], share))
    more = len(named) - _NAMED
    left = [f"  and {more} more, which --json lists"] if more > 0 else []
    heading, *lines = table(rows, "<<>")
    shown = [heading]
    for line, mistake in zip(lines, named, strict=False):
        source = _from_here(mistake.source)
        # A path is to be copied as a whole.
        fits = cells(line) + 2 + cells(source) <= width
        shown += [f"{line}  {source}"] if fits else [line, f"    {source}"]
    return ["", *shown, *left]


def _from_here(source: str) -> str:
    """A path as one would type it here, if that is shorter; a row of a table as it is."""
    here = f"{Path.cwd()}{os.sep}"
    return source.removeprefix(here)


def _matrix(result: Evaluation, width: int) -> list[str] | None:
    """The matrix, with the classes' names above its columns, or their numbers if it is too wide."""
    names = [cut(name, _NAME) for name in result.classes]
    numbers = [str(index) for index in range(len(names))]
    digits = len(str(result.confusion.max()))
    note = ""
    for heads in (names, numbers):
        if heads is numbers and names != numbers:
            names = [f"{name} {number}" for name, number in zip(names, numbers, strict=True)]
            note = ", by number"
        left = max(map(cells, names))
        cell = 2 + max(digits, *map(cells, heads))
        if left + cell * len(names) <= width:
            break
    else:
        return None
    lines = ["", f"confusion: a row is a true class, a column what the network answered{note}", ""]
    lines.append(" " * left + "".join(padded(head, cell, ">") for head in heads))
    for name, row in zip(names, result.confusion.tolist(), strict=True):
        # Most cells are zero; with dots the mistakes stand out.
        numbered = "".join(f"{number or '.':>{cell}}" for number in row)
        lines.append(padded(name, left, ">") + numbered)
    return lines


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
