"""What ``dnnstack new`` found and chose, as text and JSON; writes the config."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from ..common.errors import ConfigError, explaining
from ..common.files import atomic_write, remove_abandoned, write_new
from ..common.printable import paragraph
from ..common.records import dataclass
from ..common.text import cut, listed
from ..configs import parse_config
from ..configs.validate import safe_name
from ..datasets import DatasetInfo
from ..datasets.integer_pixels import fewest_bits
from ..datasets.picture_kinds import passed_over_text
from ..datasets.survey import PARTS, Survey, survey
from ..training.weights.source import Source
from .new_config import TEST_FRACTION, NewConfig, as_lines, new_config, path_beside
from .new_tuned import anew, tuned
from .tables import CLASS, table

_BROKEN, _CLASSES = 5, 30
_FEW = 20


@dataclass(frozen=True)
class NewReport:
    """The survey of a folder, the config for it, and the file that it is written to."""

    found: Survey
    config: NewConfig
    output: Path

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """(height, width): of each side the smallest, the median and the largest."""
        sides = np.array([(look.height, look.width) for look in self.found.looks])
        of = {"smallest": sides.min(0), "median": np.median(sides, 0), "largest": sides.max(0)}
        return {name: (int(height), int(width)) for name, (height, width) in of.items()}

    @property
    def grey(self) -> int:
        return sum(look.grey for look in self.found.looks)

    def to_json(self) -> dict[str, Any]:
        found = self.found
        return {
            "config": str(self.output),
            **{part: found.folders.get(part) and str(found.folders[part]) for part in PARTS},
            "classes": found.classes,
            "counts": found.counts["train"],
            "validation_counts": found.counts.get("validation"),
            "test_counts": found.counts.get("test"),
            "examined": found.examined,
            "grey": self.grey,
            "sizes": self.sizes,
            "broken": found.broken,
            "tiny": found.tiny,
            "unused": found.unused,
            "passed_over": found.others,
            "doubts": found.doubts,
            "choices": {c.key: {"value": c.value, "why": c.why} for c in self.config.choices},
        }


def report(
    folder: Path,
    output: Path | None,
    overwrite: bool = False,
    weights: tuple[str, Source] | None = None,
) -> NewReport:
    """Look at the folder, and choose; nothing is written.

    weights: those to begin with, and their name. Raises DatasetError for a folder that cannot be
    trained on, ConfigError if the file exists, CheckpointError for weights of no known network.
    """
    name = safe_name(folder.absolute().resolve().name)
    file = output or Path(f"{'pictures' if name == 'run' else name}.yaml")
    _check_free(file, overwrite)
    found = survey(folder.expanduser(), TEST_FRACTION)
    start = None
    if weights is not None:
        name = path_beside(Path(weights[0]), file) if os.path.exists(weights[0]) else weights[0]
        start = tuned(name, weights[1], found.classes)
    config = new_config(found, file, start)
    # A mistake in the text would be one of ours; better here than in the next command.
    parsed = parse_config(config.text, str(file))
    if start is not None and weights is not None:
        info = DatasetInfo(str(folder), start.shape, tuple(found.classes), None, None)
        anew(weights[1], parsed, info)
    return NewReport(found, config, file)


def _check_free(file: Path, overwrite: bool) -> None:
    if os.path.isdir(file):
        raise ConfigError(f"{file}: is a folder; --output needs the name of a file")
    if os.path.lexists(file) and not overwrite:
        raise ConfigError(
            f"{file}: exists already; choose another name with --output FILE, or replace it with "
            "--overwrite"
        )


def write(made: NewReport, overwrite: bool = False) -> None:
    """Write the config, whole or not at all. Raises ConfigError."""
    data = made.config.text.encode()
    advice = "choose another file with --output FILE"
    with explaining(made.output, "cannot be written", advice, ConfigError):
        if overwrite:
            atomic_write(made.output, data)
        elif not write_new(made.output, data):
            _check_free(made.output, overwrite)
        remove_abandoned(made.output.parent)


def as_text(made: NewReport, width: int | None = None) -> str:
    """What was found, what was chosen and why, and the next command; tables fit ``width``."""
    found, sizes = made.found, made.sizes
    looked = len(found.looks)
    of = f", by {found.examined:,} of them" if found.partial else ""
    colours = "all grey" if made.grey == looked else "in colour"
    if 0 < made.grey < looked:
        colours += f", {made.grey / looked:.0%} of them grey"
    least, most = (f"{w}x{h}" for h, w in (sizes["smallest"], sizes["largest"]))
    span = least if least == most else f"from {least} to {most}"
    lines = [
        f"pictures    {found.count:,} of {len(found.classes)} classes, in {found.folders['train']}",
        f"sizes       {span} pixels (width x height){of}",
        f"colours     {colours}",
    ]
    if (largest := max(look.largest for look in found.looks)) >= 0:
        depth = fewest_bits(largest)
        lines.append(f"depth       {depth} bits of integers, as the largest pixel is {largest}")
    if others := passed_over_text(found.others):
        lines.append(f"others      {others}")
    lines += [f"not used    {found.folder / name}" for name in found.unused]
    for reason in list(found.broken.values())[:_BROKEN]:
        # A title in each line, so that a line that is broken goes on below its text.
        lines.append(f"unreadable  {reason}")
    if len(found.broken) > _BROKEN:
        lines.append(f"unreadable  {len(found.broken) - _BROKEN} more")
    if found.tiny:
        lines.append(
            f"tiny        a side of less than 8 pixels: {listed(found.tiny, _BROKEN)}; look at "
            "them, and remove what shows nothing"
        )
    lines += [f"doubtful    {text}" for text in found.doubts]
    every = zip(found.classes, found.counts["train"], strict=True)
    few = [f"{cut(name, CLASS)} ({count})" for name, count in every if count < _FEW]
    if few:
        lines.append(
            f"few         pictures in {listed(few, _BROKEN)}; what is learned from fewer than "
            f"{_FEW} says little"
        )
    lines += ["", *_counts(found, width), ""]
    chosen = as_lines(made.config.choices)
    lines += table([("chosen", "", ""), *chosen], "<", width, prose=True)
    lines += [
        "",
        f"written     {made.output}",
        f"next        dnnstack train --config {shlex.quote(str(made.output))}",
    ]
    return paragraph(lines)


def _counts(found: Survey, width: int | None) -> list[str]:
    parts = found.counts if len(found.counts) > 1 else {"pictures": found.counts["train"]}
    columns = [("class", *found.classes), *((part, *counts) for part, counts in parts.items())]
    rows = list(zip(*columns, strict=True))
    shown = table(rows[: _CLASSES + 1], "<>", width)
    hidden = len(rows) - len(shown)
    return [*shown, f"and {hidden} more classes"] if hidden else shown
