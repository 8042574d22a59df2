"""Classify picture files with a trained network."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import DatasetError, explaining
from ...common.files import atomic_write, remove_abandoned
from ...common.printable import printable
from ...common.records import dataclass
from ...common.targets import Kind
from ...common.text import samples_of
from ...datasets import Picture, Preparation, as_image, digit_shapes, one_digit, read_picture
from ..assemble import is_of_pictures
from .forward import Forward
from .trained import Trained

_DIGITS = tuple("0123456789")
# How a formula begins in one spreadsheet or another, also in full width.
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
COLUMNS = ("path", "label", "index", "probability", "top", "preprocessing", "doubt")
FAMILIARITY = "familiarity"
NONE = "none of these"
# A digit network answers with a digit whatever it sees; docs/pictures.md says how often it is wrong
# with this probability or less.
LEAST_OF_DIGITS = 0.5
_ELSEWHERE = "choose another folder with --save-input"


@dataclass(frozen=True)
class Answer:
    """A class with its probability."""

    label: str
    index: int
    probability: float


@dataclass(frozen=True, repr=False)
class Prediction:
    """The likeliest classes of one picture, best first, and what the network saw of it.

    ``doubt``: why the answer is not sure, or "". ``probabilities``: of every class, in their order.
    ``kind``: of the targets; of numbers and questions ``top`` has all of them in their own order,
    with the number, or the probability of yes. ``threshold``: above which that is yes.
    ``familiarity``: at least 0 of what is like the samples of the training, None if it is not
    measured; ``rejected``: whether the answer is the class of rejects, None without such a class.
    """

    path: Path
    top: tuple[Answer, ...]
    picture: Picture
    doubt: str = ""
    probabilities: tuple[float, ...] = ()
    kind: Kind = "class"
    threshold: float = 0.5
    familiarity: float | None = None
    rejected: bool | None = None

    def __repr__(self) -> str:
        if self.open:
            return f"<Prediction of {str(self.path)!r}: {self.said()}>"
        answer = f"{self.best.label!r} with {self.best.probability:.2%}"
        doubt = f" (not sure: {self.doubt})" if self.doubt else ""
        return f"<Prediction of {str(self.path)!r}: {answer}{doubt}>"

    @property
    def best(self) -> Answer:
        return self.top[0]

    @property
    def open(self) -> bool:
        """Whether there is no best answer: to numbers and questions."""
        return self.kind in ("numbers", "yes_no")

    def said(self) -> str:
        """Each number, or question with its answer and the probability of yes, in a line."""
        if self.kind == "numbers":
            return ", ".join(f"{each.label} {each.probability:.6g}" for each in self.top)
        return ", ".join(
            f"{each.label} {self.word(each)} ({each.probability:.1%})" for each in self.top
        )

    def word(self, answer: Answer) -> str:
        """The answer to a question."""
        return "yes" if answer.probability > self.threshold else "no"

    @property
    def sure(self) -> bool:
        """Whether nothing speaks against the answer."""
        return not self.doubt

    @property
    def familiar(self) -> bool | None:
        """Whether it is of one of the classes at all; None if that is not known."""
        if self.familiarity is None and self.rejected is None:
            return None
        return not self.rejected and (self.familiarity is None or self.familiarity >= 0)

    @property
    def preprocessing(self) -> tuple[str, ...]:
        """What was done to the picture, in order."""
        return self.picture.steps

    def to_json(self) -> dict[str, Any]:
        rest = {"preprocessing": list(self.preprocessing)}
        if self.kind == "numbers":
            numbers = {each.label: each.probability for each in self.top}
            return {"path": str(self.path), "numbers": numbers, **rest}
        if self.kind == "yes_no":
            answers = [
                {"label": e.label, "answer": self.word(e), "probability": e.probability}
                for e in self.top
            ]
            found = {"path": str(self.path), "threshold": self.threshold, "answers": answers}
            return {**found, **rest}
        return {
            "path": str(self.path),
            **vars(self.best),
            "top": [dict(vars(answer)) for answer in self.top],
            **rest,
            "sure": self.sure,
            "doubt": self.doubt or None,
            **({} if self.familiar is None else {"familiar": self.familiar}),
            **({} if self.familiarity is None else {FAMILIARITY: self.familiarity}),
        }

    def to_row(self) -> tuple[str, ...]:
        """The same under ``columns``: each list in one cell, its items separated by spaces.

        No cell begins like a formula of a spreadsheet: such a path gets ``./`` before it, such a
        label an apostrophe (OWASP, CSV Injection). Labels are printable.
        """
        path = str(self.path)
        path = f"./{path}" if path.startswith(_FORMULA) else path
        if self.open:
            words = [] if self.kind == "numbers" else [self.word(each) for each in self.top]
            numbers = (f"{each.probability:.9g}" for each in self.top)
            return (path, " ".join(self.preprocessing), *words, *numbers)
        best = self.best
        labels = [printable(answer.label) for answer in self.top]
        top = " ".join(
            f"{label}={answer.probability:.6f}"
            for label, answer in zip(labels, self.top, strict=True)
        )
        figures = (str(best.index), f"{best.probability:.6f}")
        label, top = guarded(labels[0]), guarded(top)
        every = (f"{probability:.6f}" for probability in self.probabilities)
        known = () if self.familiarity is None else (f"{self.familiarity:.6g}",)
        steps = " ".join(self.preprocessing)
        return (path, label, *figures, top, steps, self.doubt, *known, *every)


def guarded(text: str) -> str:
    """The text, after an apostrophe if it begins like a formula of a spreadsheet."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def columns(
    classes: Iterable[str], kind: Kind = "class", familiarity: bool = False
) -> tuple[str, ...]:
    """The header of rows of CSV: ``COLUMNS``, the familiarity if it is measured, then the
    probability of each class; of questions the answers, then the probability of each yes, of
    numbers these."""
    if kind in ("numbers", "yes_no"):
        names = [printable(name) for name in classes]
        kinds = ("number",) if kind == "numbers" else ("answer", "probability")
        return ("path", "preprocessing", *(f"{one}:{name}" for one in kinds for name in names))
    known = (FAMILIARITY,) * familiarity
    return (*COLUMNS, *known, *(f"probability:{printable(name)}" for name in classes))


def predict(
    forward: Forward,
    paths: Iterable[Path | DatasetError],
    top: int,
    *,
    invert: bool | None = None,
    raw: bool = False,
    min_probability: float | None = None,
    size: tuple[int, int] | None = None,
) -> Iterator[Prediction | DatasetError]:
    """Yield for each path a prediction, or the error that explains why there is none.

    Errors among the paths are passed on. ``invert`` and ``raw``: see ``Preparation``; ``size``:
    that of ``Trained.at_size``. An answer of less than ``min_probability``, by default 0.5 for
    digits and 0 for all else, is not sure; nor is that for a digit on its page whose shape is none,
    nor for what is not familiar.
    Pictures are classified one by one, so a result never depends on other pictures.
    """
    trained = forward.trained.at_size(size)
    asked = Asked(trained, preparation(trained, invert, raw), top, min_probability)
    for path in paths:
        if isinstance(path, DatasetError):
            yield path
            continue
        try:
            picture = read_picture(path, trained.input_shape, asked.how)
        except DatasetError as error:
            yield error
            continue
        shown, known = forward.judged(picture.image[None])
        yield asked.answer(path, picture, shown[0], None if known is None else known[0])


@dataclass(frozen=True)
class Asked:
    """What is asked of a network about pictures that are prepared in this way; see ``predict``."""

    trained: Trained
    how: Preparation
    top: int
    min_probability: float | None = None

    def answer(
        self, path: Path, picture: Picture, scores: NDArray[np.float32], known: float | None = None
    ) -> Prediction:
        """scores: (K,), what the network gives for the picture; known: how familiar it is."""
        trained, how, kind = self.trained, self.how, self.trained.data.kind
        located = how.locates(trained.input_shape)
        least = self.min_probability
        if least is None:
            least = LEAST_OF_DIGITS if located else 0.0
        probabilities = scores.astype(np.float64)
        best = np.argsort(-probabilities, kind="stable")[: self.top]
        every = kind in ("numbers", "yes_no")
        if every:
            best = np.arange(len(probabilities))
        answers = tuple(Answer(trained.classes[i], int(i), float(probabilities[i])) for i in best)
        doubt = _doubt(picture) if located else ""
        rejected = None if trained.reject is None else bool(best[0] == trained.reject)
        familiarity = None if known is None or every else float(known)
        if not doubt and (rejected or (familiarity is not None and familiarity < 0)):
            doubt = NONE if rejected else f"{NONE}: familiarity {familiarity:.2f}"
        if not (doubt or every) and float(probabilities[best[0]]) < least:
            doubt = f"less than {100 * least:.10g}%"
        shares, bound = tuple(probabilities.tolist()), trained.config.evaluate.yes_above
        how_far = (familiarity, rejected)
        return Prediction(path, answers, picture, doubt, shares, kind, bound, *how_far)


def _doubt(picture: Picture) -> str:
    """Why the shape is hardly that of one digit, or ""."""
    digit = picture.image[0]
    unlikely = digit_shapes.is_unlikely(digit)
    return one_digit.doubt(digit) or (one_digit.NO_DIGIT if unlikely else "")


def preparation(trained: Trained, invert: bool | None, raw: bool) -> Preparation:
    """Prepare pictures as in training on an image_folder; for digit networks, locate the digit.

    Raises DatasetError for a network that was not trained on pictures.
    """
    chosen = trained.config.data.dataset
    if not trained.takes_pictures or trained.input_shape[0] not in (1, 3):
        samples, own = samples_of(trained.input_shape), ("numbers", "its samples")
        if not is_of_pictures(trained.config):
            own = f"a {chosen.type}", f"the {samples} of the {chosen.type}"
        raise DatasetError(
            f"{trained.path}: was trained on {own[0]}, not on pictures; name another run "
            "with --run (dnnstack runs lists them), or see with dnnstack eval how it classifies "
            f"{own[1]}"
        )
    if chosen.type in ("image_folder", "csv"):
        whole = chosen.options()["fit"] == "resize"
        bits = trained.checkpoint.provenance.pixel_bits
        return Preparation(False, invert, raw or whole, bits, chosen.options().get("draft", False))
    return Preparation(trained.classes == _DIGITS, invert, raw)


class InputFolder:
    """A folder for what the network saw, as ``<name of the picture>-input.png``.

    The suffix prevents overwriting the pictures themselves.
    """

    def __init__(self, folder: Path) -> None:
        """Raises DatasetError if the folder cannot be created."""
        self._folder = folder
        self._names: set[str] = set()
        with explaining(folder, "cannot be written", _ELSEWHERE, DatasetError):
            folder.mkdir(parents=True, exist_ok=True)
            remove_abandoned(folder)

    def save(self, prediction: Prediction) -> Path:
        """Write a picture; a second one of the same name gets ``-2``. Raises DatasetError."""
        stem = name = prediction.path.stem
        number = 1
        while name in self._names:
            number += 1
            name = f"{stem}-{number}"
        self._names.add(name)
        path = self._folder / f"{name}-input.png"
        with explaining(path, "cannot be written", _ELSEWHERE, DatasetError):
            png = io.BytesIO()
            as_image(prediction.picture.image).save(png, "PNG")
            # A file for each of perhaps thousands of pictures, soon made again.
            atomic_write(path, png.getvalue(), durable=False)
        return path
