"""The report on a data set as text."""

from __future__ import annotations

from collections.abc import Sequence

from ..common.printable import paragraph
from ..common.targets import Kind, named
from ..common.text import samples_of, shape_text
from ..datasets.columns import Columns
from .data_report import DataReport
from .tables import table

_STATES = {
    "verified": "the original, by its SHA-256",
    "other": "readable, but not the original: results are not comparable",
    "damaged": "damaged",
    "missing": "missing",
}
_TITLES: dict[Kind, str] = {
    "class": "class",
    "numbers": "rows",
    "yes_no": "yes",
    "distribution": "share",
}


def as_text(report: DataReport, width: int | None = None) -> str:
    """Files, a table of classes, and the pixels' mean and deviation, ready for a config.

    Longer names of classes than fit ``width`` are cut.
    """
    classes = report.images.classes
    shape = f"{samples_of(report.shape)} {shape_text(report.shape)}"
    lines = [f"data set    {report.dataset}: {shape}, {len(classes)} {named(report.about.kind)}"]
    if report.files:
        lines.append(f"folder      {report.files[0].path.parent}")
    else:
        lines.append(f"files       none: {report.source}")
    for at, file in enumerate(report.files):
        title = "files" if at == 0 else ""
        lines.append(f"{title:<11} {file.path.name}: {_STATES[file.state]}")
    lines += [f"doubtful    {text}" for text in report.doubts]
    lines += ["", *_table(report, width), ""]
    if (columns := report.images.columns) is not None:
        return paragraph(lines + _columns(report, columns, width))
    unit = "pixel / 255" if report.about.scale is None else "value"
    lines += table(
        [
            ("train", "mean", "standard deviation"),
            (unit, _numbers(report.mean), _numbers(report.std)),
            ("as the network sees it", *map(_numbers, report.seen)),
        ],
        "<",
    )
    if not _is_standard(report):
        lines += [
            "",
            "for mean 0 and standard deviation 1, write in the config:",
            "",
            "data:",
            f"  normalize: {{mean: {_value(report.mean)}, std: {_value(_usable(report.std))}}}",
        ]
    return paragraph(lines)


def _is_standard(report: DataReport) -> bool:
    """Whether the network already sees mean 0 and deviation 1, to the digits shown."""
    seen = tuple({f"{value:.4f}" for value in map(abs, part)} for part in report.seen)
    return seen == ({"0.0000"}, {"1.0000"})


def _table(report: DataReport, width: int | None) -> list[str]:
    rows = zip(
        report.images.classes,
        *(part.tolist() for part in report.counts.values()),
        strict=report.about.kind != "numbers",
    )
    shown = [(name, *(f"{count:.10g}" for count in counts)) for name, *counts in rows]
    title = _TITLES[report.about.kind]
    return table([(title, *report.counts), *shown, ("total", *report.sizes.values())], "<>", width)


def _columns(report: DataReport, columns: Columns, width: int | None) -> list[str]:
    """A table of the inputs: their types, mean and deviation over the training rows."""
    rows, at = [("input", "type", "mean", "standard deviation")], 0
    for column in columns.inputs:
        mean, std = report.mean[at] + column.offset, report.std[at]
        figures = ("", "") if column.categories else (f"{mean:.6g}", f"{std:.6g}")
        rows.append((column.name, column.about(), *figures))
        at += column.width
    return table(rows, "<", width)


def _numbers(values: Sequence[float]) -> str:
    # Rounded first: a mean of -1e-9 is 0.0000, not -0.0000.
    return ", ".join(f"{round(value, 4) + 0.0:.4f}" for value in values)


def _value(values: Sequence[float]) -> str:
    """As YAML: one number, or a list with one for each channel."""
    listed = _numbers(values)
    return listed if len(values) == 1 else f"[{listed}]"


def _usable(std: Sequence[float]) -> list[float]:
    """The deviations, with 1 in place of 0 for a constant channel."""
    return [value if value >= 0.00005 else 1.0 for value in std]
