"""Classifier: a trained network that classifies pictures and can be evaluated."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import machine, path_or_none, path_text, picture_size, views, whole
from .backends.base import Backend
from .backends.select import Device, open_backend
from .common.errors import DatasetError, UsageError
from .common.targets import named
from .configs import RunConfig
from .configs.suggest import nearest
from .datasets import Downloads, ImageSet
from .datasets.arrays import as_targets
from .datasets.label_file import relabelled
from .exports.door import MOST, Exported, Samples, export, in_integers
from .exports.format import format_of
from .given import as_array
from .inputs import Pictures, Row, as_inputs, as_samples
from .inside import Inside
from .reports.suspects import Suspects, find_suspects
from .training.inference import evaluate as evaluation
from .training.inference import parts
from .training.inference.calibrate import DIVIDED, KEEP, calibrate
from .training.inference.evaluate import Evaluation, Part
from .training.inference.forward import Forward
from .training.inference.predict import Prediction
from .training.inference.predict import predict as predictions
from .training.inference.rows import RowAnswers, rows_of
from .training.inference.trained import Trained, data_root_of, find_trained
from .training.records.formats.calibration import Calibration
from .wording import in_python, log_notice

if TYPE_CHECKING:
    from typing_extensions import Self

HW: TypeAlias = "int | str | tuple[int, int] | None"


@in_python
def load(
    run: str | os.PathLike[str] | None = None,
    *,
    device: Device = "auto",
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] = "runs",
    tta: str = "none",
    calibrated: bool = True,
) -> Classifier:
    """A trained network, from its checkpoint.

    run: a run's folder, its name in ``runs_dir``, or a checkpoint file; by default the latest run.
    Of a run the best checkpoint is taken, or the newest if it has no validation. ``device``,
    ``threads`` and ``tta`` are those of ``dnnstack predict``; ``calibrated``: use the calibration
    that lies beside the checkpoint, if one does. Raises CheckpointError, BackendUnavailableError.
    """
    views(tta)
    named = None if run is None else path_text("run", run)
    file = None if named is None or not os.path.isfile(named) else Path(named)
    name = None if file is not None else named
    folder = Path(path_text("runs_dir", runs_dir))
    device, threads = machine(device, threads)
    how: dict[str, Any] = {"notice": log_notice, "tta": tta, "calibrated": calibrated}
    return open_classifier(name, file, folder, device, threads, **how)


def open_classifier(
    run: str | None,
    checkpoint: Path | None,
    runs_dir: Path,
    device: Device,
    threads: int | None,
    capture: bool = True,
    notice: Callable[[str], None] = lambda text: None,
    tta: str = "none",
    calibrated: bool = True,
) -> Classifier:
    """See ``load``; ``notice`` is told which checkpoint and device are used, if that was open."""
    trained = find_trained(run, checkpoint, runs_dir, notice)
    trained = trained if calibrated else trained.calibrated(None)
    return Classifier(trained, open_backend(device, threads, notice, capture), notice, tta)


class Classifier(Inside):
    """A trained network. Methods and attributes are named as scikit-learn names them.

    Pictures are given as an array, a picture of Pillow's, the path of a file, or a list of these;
    see ``inputs.as_inputs`` for the shapes. The result always has one row for each picture. Threads
    may share a classifier; they take turns. ``trained`` is the network with its checkpoint,
    ``backend`` the device that computes.
    """

    def __init__(
        self,
        trained: Trained,
        backend: Backend,
        notice: Callable[[str], None] = lambda text: None,
        tta: str = "none",
    ) -> None:
        self.backend = backend
        self._notice = notice
        self._tta = tta
        self._members: tuple[Trained, ...] = (trained,)
        self._shape = trained.input_shape if trained.takes_pictures else None
        self._use(trained)

    def _use(self, trained: Trained) -> None:
        self.trained = trained
        self._forward = Forward(trained, self.backend, self._tta)
        self._at_size = lru_cache(3)(trained.at_size)

    @cached_property
    def classes_(self) -> NDArray[np.str_]:
        """The names of the classes, (K,); column k of ``predict_proba`` is that of classes_[k]."""
        return np.array(self.trained.classes)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of a picture."""
        return self.trained.input_shape

    @property
    def checkpoint(self) -> Path:
        """The checkpoint file."""
        return self.trained.path

    @property
    def config(self) -> RunConfig:
        """The config that it was trained with, as stored in the checkpoint."""
        return self.trained.config

    @in_python
    def predict(
        self, pictures: Pictures, *, invert: bool | None = None, raw: bool = False, size: HW = None
    ) -> NDArray[Any]:
        """The name of the likeliest class of each picture, (N,).

        Of numbers these themselves, (N, K) float32; of questions (N, K) bool, whether the answer is
        yes, by the config's ``evaluate.threshold``.
        ``invert`` and ``raw`` are those of ``dnnstack predict``, for files and Pillow's pictures.
        ``size``: pixels of a side, or (height, width), to which these are scaled, and which arrays
        have, instead of the network's own. Raises DatasetError, and ShapeError for a size that the
        network cannot take.
        """
        found = self.predict_proba(pictures, invert=invert, raw=raw, size=size)
        kind = self.trained.data.kind
        if kind == "numbers":
            return found
        if kind == "yes_no":
            return np.asarray(found > evaluation.threshold_of(self.trained, None))
        return np.asarray(self.classes_[found.argmax(1)])

    @in_python
    def predict_proba(
        self, pictures: Pictures, *, invert: bool | None = None, raw: bool = False, size: HW = None
    ) -> NDArray[np.float32]:
        """The probability of each class, or of yes, (N, K); numbers themselves; see ``predict``."""
        if (
            type(pictures) is np.ndarray
            and pictures.dtype == np.uint8
            and pictures.shape[1:] == self._shape
            and pictures.flags.c_contiguous
            and size is None
        ):
            # As it is to be: looking at it further takes longer than a small network.
            return self._forward(pictures)
        trained = self._at_size(picture_size(size))
        return self._forward(as_inputs(pictures, trained, invert=invert, raw=raw))

    @property
    def knows_familiar(self) -> bool:
        """Whether it tells how familiar a picture is."""
        return self._forward.trained.network.featured

    @in_python
    def familiarity(
        self, pictures: Pictures, *, invert: bool | None = None, raw: bool = False, size: HW = None
    ) -> NDArray[np.float64]:
        """How familiar each picture is, (N,): at least 0 of what is like the training; see
        ``predict``. Raises UsageError for a network of which that is not known."""
        trained = self._at_size(picture_size(size))
        found = self._forward.judged(as_inputs(pictures, trained, invert=invert, raw=raw))[1]
        if found is None:
            raise UsageError(
                f"{self.checkpoint}: what is familiar to it was not measured; dnnstack eval "
                "--calibrate measures it for networks of classes"
            )
        return found

    def predict_each(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str] | DatasetError],
        *,
        top: int = 3,
        invert: bool | None = None,
        raw: bool = False,
        min_probability: float | None = None,
        size: HW = None,
    ) -> Iterator[Prediction | DatasetError]:
        """For each file its likeliest classes and what the network saw, or why there is no answer.

        An iterator: pictures are read when their turn comes, and classified one by one, so a result
        never depends on other pictures. Errors among the paths are passed on. ``top``: how many
        classes, at least 1. An answer of less than ``min_probability``, by default 0.5 for digits
        and 0 for all else, has a ``doubt``. ``size``: see ``predict``. Raises DatasetError for a
        network that was not trained on pictures.
        """
        count = whole("top", top)
        if count is None or count < 1:
            raise UsageError(f"top: expected a whole number of at least 1 (got {top})")
        given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        files = (
            each if isinstance(each, DatasetError) else Path(path_text("paths", each))
            for each in given
        )
        how: dict[str, Any] = {"invert": invert, "raw": raw, "size": picture_size(size)}
        return predictions(self._forward, files, count, min_probability=min_probability, **how)

    @in_python
    def predict_rows(self, rows: str | os.PathLike[str] | Sequence[Row]) -> RowAnswers:
        """The answers to the rows of a file, or to mappings from the names of columns to values.

        For a network that was trained on such a file. Raises DatasetError.
        """
        columns = self.trained.checkpoint.provenance.columns
        if columns is None:
            raise DatasetError(f"{self.checkpoint}: was not trained on a table in a file")
        given = Path(rows) if isinstance(rows, (str, os.PathLike)) else rows
        found = rows_of(given, self.trained.config)
        return RowAnswers(found, columns.kind, columns.classes, self.predict_proba(found))

    @in_python
    def score(self, pictures: Pictures, labels: ArrayLike) -> float:
        """The share of right answers, 0 to 1, or R2 of numbers; labels: those of ``evaluate``."""
        return self.evaluate(pictures, labels).accuracy

    @in_python
    def evaluate(
        self,
        pictures: Pictures | None = None,
        labels: ArrayLike | None = None,
        *,
        split: Part = "test",
        dataset: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        tta: str | None = None,
        threshold: float | None = None,
        offline: bool = False,
        size: HW = None,
    ) -> Evaluation:
        """Loss and what fits the targets, over the pictures and labels given or over a split.

        ``labels``: (N,) names or indices of classes, or targets (N, K). Of a network that was
        trained on arrays, these are given with a ``split`` of theirs. Without pictures, ``split``,
        ``dataset``, ``data_dir`` and ``offline`` are those of ``dnnstack eval``; ``tta`` and
        ``threshold`` are its ``--tta`` and ``--threshold``; ``size``: see ``predict``. Raises
        DatasetError, ShapeError, UsageError.
        """
        views(tta)
        if pictures is None:
            if labels is not None:
                raise TypeError("labels were given without their pictures")
            folder = path_or_none("data_dir", data_dir)
            downloads = Downloads(offline=True) if offline else None
            images, index = self.load_part(split, dataset, folder, downloads, size, tta)
        else:
            if labels is None:
                if isinstance(pictures, str):
                    meant = nearest(pictures, get_args(Part)) or "test"
                    raise TypeError(
                        f"{pictures!r} was given without labels; a part of the data set is "
                        f"evaluate(split={meant!r})"
                    )
                raise TypeError("pictures were given without their labels")
            images = self._labelled(pictures, labels, size)
            index = np.arange(len(images), dtype=np.int32)
            own = self.config.data.dataset
            if split != "test" and own.type == "arrays" and not own.own_validation:
                images = relabelled(images, self.config.data.labels, "train", Path())
                read = (Path(), None, None, self._notice, None, lambda *wanted: images)
                images, index = parts.load_part(self.trained, split, *read)
        return self.evaluate_part(images, index, split, tta=tta, threshold=threshold)

    @in_python
    def export(
        self,
        path: str | os.PathLike[str],
        format: str | None = None,
        *,
        check: bool = True,
        int8: bool = False,
        data_dir: str | os.PathLike[str] | None = None,
        offline: bool = False,
        **options: bool,
    ) -> Exported:
        """Write the network as a file for other programs, as ``dnnstack export`` does.

        ``format``: a name of ``exports.format.formats()``, by default that of the path's suffix;
        ``options``: its fields. ``check``: compare its answers with those of ``predict`` first.
        ``int8``: compute with 8-bit integers, chosen on training samples. Raises ExportError,
        DatasetError, UsageError.
        """
        chosen, file = format_of(path_text("path", path), format, options)
        root, downloads = path_or_none("data_dir", data_dir), None
        if offline:
            downloads = Downloads(offline=True)
        trained = self.trained
        if int8 and not trained.checkpoint.quantization:
            training = self.load_part("train", None, root, downloads)
            trained = in_integers(trained, self.backend, *training)

        def samples() -> Samples:
            try:
                images, index = self.load_part("test", None, root, downloads)
            except DatasetError as error:
                self._notice(f"{error}; drawn samples are asked instead")
                return Samples.drawn(trained)
            index = index[:MOST]
            return Samples(f"samples of {images.name}", images.images[index], images.labels[index])

        return export(
            trained, self._forward, chosen, file, samples if check else None, self._notice
        )

    @in_python
    def calibrate(
        self,
        *,
        keep: float = KEEP,
        data_dir: str | os.PathLike[str] | None = None,
        offline: bool = False,
    ) -> Calibration:
        """Fit the temperature of the probabilities, and what is familiar, to validation samples.

        Saved beside the checkpoint, and used from now on. ``keep``: the share of these samples that
        is familiar; ``data_dir`` and ``offline``: see ``evaluate``. A network that was trained on
        arrays is calibrated by its config's ``evaluate.calibrate``. Raises DnnstackError.
        """
        folder = path_or_none("data_dir", data_dir)
        downloads = Downloads(offline=True) if offline else None
        seen, held = (self.load_part(part, None, folder, downloads) for part in DIVIDED)
        found, said = calibrate(self.trained, self.backend, seen, held, keep)
        self._use(found)
        return said

    def suspects(
        self,
        *,
        split: Part | None = None,
        limit: int = 100,
        data_dir: str | os.PathLike[str] | None = None,
        offline: bool = False,
    ) -> Suspects:
        """Samples that are probably wrong, as ``dnnstack suspects`` finds them, which see."""
        root = data_root_of(self.trained, path_or_none("data_dir", data_dir), self._notice)
        how = (root, None, Downloads(offline=True) if offline else None, self._notice)

        def read(member: Trained, part: Part) -> tuple[ImageSet, NDArray[np.int32]]:
            return parts.load_part(member, part, *how)

        return find_suspects(self._members, self.backend, read, split, limit)

    def judged(
        self, inputs: NDArray[np.uint8] | NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float64] | None]:
        """``predict_proba`` of (N, C, H, W) as it is, and the familiarity of each, if measured."""
        return self._forward.judged(inputs)

    def load_part(
        self,
        part: Part,
        dataset: str | None = None,
        data_dir: Path | None = None,
        downloads: Downloads | None = None,
        size: HW = None,
        tta: str | None = None,
    ) -> tuple[ImageSet, NDArray[np.int32]]:
        """The samples of a split, and the indices that belong to it. Raises DatasetError, and
        ShapeError for views that they do not have."""
        root, hw = data_root_of(self.trained, data_dir, self._notice), picture_size(size)
        how = (dataset, downloads, self._notice, hw)
        images, index = parts.load_part(self.trained, part, root, *how, tta=tta)
        return parts.fitted(self.trained, images, hw, self._notice), index

    def evaluate_part(
        self,
        images: ImageSet,
        index: NDArray[np.int32],
        part: Part,
        progress: Callable[[int], object] = lambda count: None,
        tta: str | None = None,
        threshold: float | None = None,
    ) -> Evaluation:
        """See ``training.inference.evaluate.evaluate``."""
        return evaluation.evaluate(
            self.trained, self.backend, images, index, part, progress, tta, threshold=threshold
        )

    def _labelled(self, pictures: Pictures, labels: ArrayLike, size: HW) -> ImageSet:
        inputs = as_samples(pictures, self._at_size(picture_size(size)))
        if inputs.dtype != np.uint8 and not self.trained.network.floats:
            raise DatasetError(
                f"a network that was trained on a {self.config.data.dataset.type} is evaluated on "
                "that itself: call evaluate() without arguments"
            )
        if len(inputs) == 0:
            raise DatasetError("there is no picture to evaluate on")
        classes, kind = self.trained.classes, self.trained.data.kind
        pixels: NDArray[Any] = inputs
        found, *_ = as_targets(("labels", as_array("labels", labels)), kind, classes)
        if len(found) != len(inputs):
            raise DatasetError(f"labels: there are {len(found)}, for {len(inputs)} samples")
        return ImageSet("given", pixels, found, classes, kind=kind)

    def close(self) -> None:
        """Free the memory of the device; it is also freed with the object."""
        self._forward.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        channels, height, width = self.input_shape
        return (
            f"<dnnstack.Classifier {str(self.checkpoint)!r}: {channels}x{height}x{width} -> "
            f"{len(self.classes_)} {named(self.trained.data.kind)}, on {self.backend.name}>"
        )
