"""The one door: a trained network as files of a format, checked against ``predict`` before."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..common.errors import ExportError, explaining
from ..common.files import atomic_write, remove_abandoned
from ..common.printable import printable
from ..common.records import dataclass
from ..datasets import ImageSet
from ..training.inference.forward import Forward
from ..training.inference.trained import Trained
from .c_integers import answers
from .format import Format, Twin
from .plain import Plain

Answers = NDArray[np.float64]
MOST, DRAWN = 10_000, 100
# Samples that are asked of each layer of a file that is refused.
_FEW = 20
# An answer is another one only if the two are further apart than this.
_TIE = 1e-6
# The most that the accuracy of 8-bit integers or of rounded weights may be lower, as a share.
_MOST_LOST = 0.001
# The most that numbers of 8-bit integers may be apart, as a share of the largest.
_MOST_APART = 0.1


@dataclass(frozen=True, eq=False)
class Samples:
    """What both are asked: samples as a data set holds them, (N, C, H, W), and their classes."""

    what: str
    stored: NDArray[Any]
    labels: NDArray[Any] | None = None

    @classmethod
    def drawn(cls, trained: Trained) -> Samples:
        """Where there are no others: coarse patterns with noise, the same at every call."""
        rng = np.random.default_rng(0)
        shape = trained.input_shape
        coarse = rng.integers(0, 256, (DRAWN, shape[0], 4, 4))
        rows, columns = (np.arange(side) * 4 // side for side in shape[1:])
        noise = rng.integers(-32, 33, (DRAWN, *shape))
        pixels = np.clip(coarse[:, :, rows][..., columns] + noise, 0, 255).astype(np.uint8)
        floats = (pixels / np.float32(64) - 2).astype(np.float32)
        return cls("drawn samples", floats if trained.network.floats else pixels)


@dataclass(frozen=True)
class Checked:
    """What the file and ``predict`` answered to the same samples.

    ``what`` they are of, ``by`` what the file was run, ``largest`` difference of an answer,
    ``other``: how many answers differ, ``lost``: by how much the accuracy is lower, if it is known.
    """

    count: int
    what: str
    by: str
    largest: float
    other: int
    lost: float | None = None

    def __str__(self) -> str:
        others = f"{self.other} other answer{'s' * (self.other != 1)}"
        lost = "" if self.lost is None else f", accuracy {0.0 - 100 * self.lost:+.2f} points"
        return (
            f"{self.count} {self.what}: largest difference {self.largest:.2g}, {others}{lost}, "
            f"by {self.by}"
        )


@dataclass(frozen=True)
class Exported:
    """A file that was written; ``checked`` is None if it was not run."""

    path: Path
    format: str
    bytes: int
    checked: Checked | None = None

    def as_text(self) -> str:
        """What was written and how it was checked, a line each."""
        checked = "not checked" if self.checked is None else f"checked: {self.checked}"
        written = f"{self.path}: {self.format}, {self.bytes:,} bytes"
        return f"{printable(written)}\n{printable(checked)}"

    def to_json(self) -> dict[str, Any]:
        checked = None if self.checked is None else dict(vars(self.checked))
        return {**vars(self), "path": str(self.path), "checked": checked}


def in_integers(
    trained: Trained, backend: Backend, images: ImageSet, index: NDArray[np.int32]
) -> Trained:
    """The same network with weights and activations of 8 bits; ``index``: of training samples."""
    from ..configs.schema.compression import QuantizeConfig
    from ..training.compressed.quantization import quantized_checkpoint

    found = quantized_checkpoint(trained, backend, images, index, QuantizeConfig())
    # With its calibration.
    return replace(trained, checkpoint=found)


def export(
    trained: Trained,
    forward: Forward,
    format: Format,
    path: Path,
    samples: Callable[[], Samples] | None,
    notice: Callable[[str], object] = lambda text: None,
) -> Exported:
    """Write a network at ``path``, all of it or nothing.

    forward: what ``predict`` computes. samples: what both are asked; None checks nothing. Raises
    ExportError if the answers differ by more than the format may.
    """
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "its folder does not exist"
        raise ExportError(f"{path}: {what}; name a file in a folder that does")
    plain = Plain.of(trained)
    format.check(plain)
    files, checked = format.files(plain), None
    if path.suffix in files:
        raise ExportError(
            f"{path}: would replace a file that {format.kind} writes beside it; end its name in "
            f"{format.suffix}"
        )
    if samples is not None:
        # Files name each other, so that the name must be the same.
        with _drafted(path.name, files) as draft:
            twin = format.twin(draft, plain)
            if twin is None:
                notice("nothing here can run the file, so its answers were not checked")
            else:
                asked = samples()
                checked = compare(plain, twin, forward, asked)
                if _is_wrong(checked, format, plain):
                    where = _first_wrong(plain, format, path.name, asked)
                    raise ExportError(
                        f"{format.kind}: answers otherwise than predict, so nothing was written "
                        f"({checked}); {where}; this is a fault of dnnstack: report it, with the "
                        "config"
                    )
                files = format.files(plain.telling(checked=str(checked)))
    _write(path, files)
    size = sum(map(len, files.values()))
    return Exported(path, format.kind, size, checked)


def _first_wrong(plain: Plain, format: Format, name: str, asked: Samples) -> str:
    """The first layer that gives something else than NumPy, of files that end behind each."""
    raw = plain.raw(asked.stored[:_FEW])
    with suppress(ExportError):
        for layer, part in () if plain.is_quantized else plain.parts(format.outer):
            with _drafted(name, format.files(part)) as draft:
                twin, ours = format.twin(draft, part), answers(part, raw).astype(np.float64)
                apart = np.inf if twin is None else np.abs(ours - twin.answers(raw)).max()
            if not apart <= (format.rounding or format.bound) * np.abs(ours).max():
                return f"the first layer whose output differs is '{layer}'"
    return "which layer it is cannot be told"


def compare(plain: Plain, twin: Twin, forward: Forward, asked: Samples) -> Checked:
    """What both answer to the same samples."""
    ours = _ours(plain, forward, asked.stored)
    raw = plain.raw(asked.stored)
    parts = [twin.answers(raw[first : first + 100]) for first in range(0, len(raw), 100)]
    theirs = np.concatenate(parts).astype(np.float64)
    if theirs.shape != ours.shape:
        raise ExportError(f"{twin.by} answers {theirs.shape}, not {ours.shape}")
    differences = np.abs(ours - theirs)
    kind, labels = plain.trained.data.kind, asked.labels
    if kind == "numbers":
        # Relative to the largest of them, as roundings are.
        differences /= float(np.abs(ours).max(initial=0.0)) or 1.0
    # Not a number is no answer.
    largest = float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max(initial=0.0))
    lost = None
    if kind == "class" and labels is not None:
        right = [float((answers.argmax(1) == labels).mean()) for answers in (ours, theirs)]
        lost = right[0] - right[1] + 0.0
    others = _others(plain, ours, theirs)
    return Checked(len(ours), asked.what, twin.by, largest, others, lost)


def _ours(plain: Plain, forward: Forward, stored: NDArray[Any]) -> Answers:
    origin = plain.trained.checkpoint.provenance
    scaled = stored.dtype == np.uint8 or origin.columns is not None
    return forward(stored if scaled else origin.preprocessing(stored)).astype(np.float64)


def _others(plain: Plain, ours: Answers, theirs: Answers) -> int:
    kind = plain.trained.data.kind
    if kind == "numbers":
        return 0
    if kind == "yes_no":
        bound = plain.trained.config.evaluate.yes_above
        differ = ((ours > bound) != (theirs > bound)) & (np.abs(ours - bound) > _TIE)
        return int(differ.any(1).sum())
    rows, chosen = np.arange(len(ours)), theirs.argmax(1)
    return int((ours.max(1) - ours[rows, chosen] > _TIE).sum())


def _is_wrong(checked: Checked, format: Format, plain: Plain) -> bool:
    if not np.isfinite(checked.largest):
        return True
    if plain.is_quantized and plain.trained.data.kind == "numbers":
        return checked.largest > _MOST_APART
    if plain.is_quantized or format.rounding:
        lost = checked.other / checked.count if checked.lost is None else checked.lost
        far = not plain.is_quantized and checked.largest > format.rounding
        return far or lost > _MOST_LOST
    return checked.other > 0 or checked.largest > format.bound


@contextmanager
def _drafted(name: str, files: Mapping[str, bytes]) -> Iterator[Path]:
    """The files in a folder that is deleted afterwards."""
    try:
        temporary = tempfile.TemporaryDirectory(prefix="dnnstack-")
    except OSError as error:
        raise ExportError(
            f"there is no room for temporary files: {error.strerror}; set TMPDIR to another folder"
        ) from None
    with temporary as folder:
        _write(Path(folder, name), files, durable=False)
        yield Path(folder, name)


def _write(path: Path, files: Mapping[str, bytes], durable: bool = True) -> None:
    """The main file last, so that it never names one that is not there."""
    with explaining(path, "cannot be written", "name a file in another folder", ExportError):
        for suffix, data in files.items():
            atomic_write(path.with_suffix(suffix) if suffix else path, data, durable=durable)
        remove_abandoned(path.parent)
