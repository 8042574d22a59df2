"""Samples that are probably wrong: in their label, by being there twice, or unlike all others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..common.errors import DatasetError, explaining
from ..common.files import atomic_write
from ..common.printable import paragraph
from ..datasets import ImageSet
from ..datasets.similar import pairs
from ..many.answers import answers
from ..many.members import check_parts
from ..training.inference.calibrate import Samples, familiar_arrays, known, seen
from ..training.inference.evaluate import Evaluation, Part
from ..training.inference.predict import guarded
from ..training.inference.tally import Mistake
from ..training.inference.trained import Trained
from ..training.records.formats.calibration import Floats, familiarity_of
from .contact_sheet import ELSEWHERE, write_png
from .evaluate_plots import errors_picture
from .predict_text import csv_row
from .tables import table

COLUMNS = ("index", "path", "label", "answer", "score", "reason", "split")
LABEL, FAR = "label", "far from all others"
# By which lead of its label a sample is not doubted; how many deviations are far.
_LEAD, _DEVIATIONS = 0.9, 4.0
# Rows on the screen, and pictures on the sheet.
_SHOWN, _DRAWN = 20, 300
_Reasons = dict[int, tuple[float, str]]
Read = Callable[[Trained, Part], Samples]


@dataclass(frozen=True)
class Suspects:
    """``found``: rows of COLUMNS among ``images``, most suspicious first; ``result``: of all."""

    images: ImageSet
    result: Evaluation
    found: tuple[tuple[Any, ...], ...]

    def to_json(self) -> dict[str, Any]:
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in self.found]
        return {"dataset": self.result.dataset, "split": self.result.part, "suspects": rows}

    def as_text(self, width: int | None) -> str:
        """How many there are, and the first ones."""
        rows = [(*row[:1], *row[2:4], f"{row[4]:.3f}", row[5]) for row in self.found[:_SHOWN]]
        lines = table([("index", *COLUMNS[2:6]), *rows], "><<><", width, {1: 1, 2: 1})
        return paragraph([f"suspects of {self.images.name}: {len(self.found)}", *lines])


def find_suspects(
    members: Sequence[Trained], backend: Backend, read: Read, split: Part | None, limit: int
) -> Suspects:
    """At most ``limit`` samples for each reason, by the mean answer of ``members``.

    Those to train on are judged by the network whose fold held them back. ``read`` loads a split
    for a network. Raises DatasetError for samples that were trained on.
    """
    folds = {each.config.data.fold for each in members}
    divided = len(folds) == len(members) > 1 and None not in folds
    split = split or ("train" if divided else "test")
    if split == "train" and not divided:
        then = "train with --folds 5, then dnnstack suspects GROUP"
        raise DatasetError(f"{members[0].path}: these were trained on; {then}")
    parts = [([each], read(each, "validation")) for each in members if split == "train"]
    parts = parts or [([*members], read(members[0], split))]
    images, index = parts[0][1][0], np.concatenate([own for _, (_, own) in parts])
    if split == "validation":
        check_parts(members, split, images)
    every, results, far = zip(*(_judged(*each, backend, split) for each in parts), strict=True)
    said, targets, rows = np.concatenate(every), images.labels[index], np.arange(len(index))
    found, worst = list[tuple[Any, ...]](), list[Mistake]()
    if results[0].counts:
        labels = targets if targets.ndim == 1 else targets.argmax(1)
        shown = [labels, said.argmax(1), said.max(1), said[rows, labels]]
        texts = [[images.classes[at] for at in each] for each in shown[:2]]
        chosen = _doubts(images, index, labels, said, np.concatenate(far), limit)
        for row, why in chosen.items():
            rest: Any = (*(each[row].item() for each in shown), f"{index[row]}: {why[1]}")
            worst.append(Mistake(int(index[row]), *rest))
    else:
        off = said - targets
        off = np.abs(off - off.mean(0)) / np.maximum(off.std(0), 1e-12)
        column = off.argmax(1)
        texts = [[f"{value:.6g}" for value in each[rows, column]] for each in (targets, said)]
        told = [f"residual of {images.classes[at]}" for at in column]
        chosen = dict([*_falling(off.max(1), -1.0, told).items()][:limit])
    places, paths = index.tolist(), images.sources or ("",) * len(images)
    for row, why in chosen.items():
        found.append((places[row], paths[places[row]], *(t[row] for t in texts), *why, split))
    return Suspects(images, replace(results[0], worst=tuple(worst), part=split), tuple(found))


def _judged(
    few: Sequence[Trained], samples: Samples, backend: Backend, split: Part
) -> tuple[Floats, Evaluation, Floats]:
    """The mean answers (N, K), and by how many deviations each is less familiar than most (N,)."""
    each = [answers(one, backend, *samples, split) for one in few]
    said: Floats = np.mean([one.probabilities for one in each], 0, np.float64)
    below = np.zeros(len(said))
    if each[0].evaluation.counts:
        scores, features, _ = own = known(seen(few[0], backend, samples), None)
        arrays = few[0].trust.arrays if few[0].trust is not None else {}
        familiar = familiarity_of(features, scores, arrays or familiar_arrays(own, own, 1.0))
        below = np.asarray(np.median(familiar) - familiar)
    return said, each[0].evaluation, below / max(1.4826 * np.median(np.abs(below)), 1e-12)


def _falling(values: Floats, least: float, why: Sequence[str]) -> _Reasons:
    """The places of values above ``least``, with these and their reason, the greatest first."""
    order = np.argsort(-values, kind="stable").tolist()
    return {at: (float(values[at]), why[at]) for at in order if values[at] > least}


def _doubts(
    images: ImageSet, index: Any, labels: NDArray[Any], said: Floats, far: Floats, limit: int
) -> _Reasons:
    """Duplicates of another class, labels, what is far, other duplicates; each place once."""
    rows, others = np.arange(len(index)), said.copy()
    others[rows, labels] = -np.inf
    contrary, same, found = _Reasons(), _Reasons(), _Reasons()
    for one, other, alike in pairs(images.images, index):
        for at, twin in ((one, other), (other, one)):
            told = f"duplicate of {index[twin]}"
            if labels[at] != labels[twin]:
                contrary.setdefault(at, (alike, f"{told}, {images.classes[labels[twin]]}"))
            elif twin < at:
                same.setdefault(at, (alike, told))
    wrong = _falling(others.max(1) - said[rows, labels], -_LEAD, [LABEL] * len(far))
    for some in (contrary, wrong, _falling(far, _DEVIATIONS, [FAR] * len(far)), same):
        found |= {at: some[at] for at in [at for at in some if at not in found][:limit]}
    return found


def write_list(path: Path, rows: Iterable[Sequence[object]], head: Sequence[str] = COLUMNS) -> None:
    """Write CSV in which no text is a formula. Raises DatasetError."""
    cells = ([guarded(c) if isinstance(c, str) else f"{c:.7g}" for c in row] for row in rows)
    text = "".join(f"{csv_row(row)}\n" for row in (head, *cells))
    with explaining(path, "cannot be written", ELSEWHERE, DatasetError):
        atomic_write(path, text.encode("utf-8", "surrogateescape"))


def write_labels(path: Path, found: Suspects) -> int:
    """Write the answers to samples whose label is doubted as labels, and return their number."""
    doubted = [row for row in found.found if row[5] == LABEL and row[2] != row[3]]
    rows = ((split, at, source, answer) for at, source, _, answer, *_, split in doubted)
    write_list(path, rows, ("split", "index", "path", "label"))
    return len(doubted)


def draw_suspects(found: Suspects, folder: Path) -> list[Path]:
    """Write list and sheet into the folder, creating it. Raises OSError, DatasetError."""
    folder.mkdir(parents=True, exist_ok=True)
    written, sheet = [folder / "suspects.csv"], folder / "suspects.png"
    write_list(written[0], found.found)
    result = replace(found.result, worst=found.result.worst[:_DRAWN])
    if not result.worst or found.images.images.dtype != np.uint8:
        sheet.unlink(missing_ok=True)
        return written
    title = f"{len(result.worst)} of {len(found.found)} suspects of {found.images.name}"
    write_png(errors_picture(result, found.images, title), sheet)
    return [*written, sheet]
