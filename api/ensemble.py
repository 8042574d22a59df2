"""Ensemble: several trained networks that answer as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from .arguments import machine, path_text, paths, views, word
from .backends.base import Backend
from .backends.select import Device, open_backend
from .classifier import HW, Classifier
from .common.errors import UsageError
from .datasets import Downloads, ImageSet
from .many.answers import answers
from .many.ensemble import (
    Combine,
    EnsembleEvaluation,
    EnsembleForward,
    Mixture,
    best_weights,
    check_combine,
    check_preparation,
    evaluate_ensemble,
)
from .many.members import check_parts, find_members
from .training.inference.evaluate import Part
from .training.inference.trained import Trained
from .wording import in_python, log_notice


class Ensemble(Classifier):
    """Several trained networks of the same classes, whose answers are combined.

    It has the methods of a Classifier; ``predict_proba`` gives the combined probabilities, of votes
    the share that each class got. ``members`` are the networks, ``weights`` those of each; layers,
    activations and gradients are those of the first.
    """

    def __init__(
        self,
        members: Sequence[Trained],
        backend: Backend,
        mixture: Mixture,
        notice: Callable[[str], None] = lambda text: None,
        tta: str = "none",
    ) -> None:
        super().__init__(members[0], backend, notice, tta)
        check_preparation(members)
        self._members = tuple(members)
        self._mix(mixture)

    @property
    def members(self) -> tuple[Trained, ...]:
        """The networks, in the order in which they were named."""
        return self._members

    @property
    def weights(self) -> tuple[float, ...]:  # type: ignore[override]
        """The weight of each network; they sum to 1."""
        return self._mixture.weights

    def calibrate(self, *given: object, **how: object) -> NoReturn:
        """Raises UsageError: each network has a calibration of its own."""
        raise UsageError("an ensemble has the calibrations of its networks: calibrate each alone")

    @in_python
    def fit_weights(
        self,
        data_dir: Path | None = None,
        downloads: Downloads | None = None,
        progress: Callable[[int], object] = lambda count: None,
        tta: str | None = None,
        size: HW = None,
    ) -> None:
        """Set the weights to the best ones for the validation samples, see ``best_weights``.

        Raises DatasetError if the networks do not have the same validation samples.
        """
        views(tta)
        if self.trained.data.kind != "class":
            raise UsageError(
                "--weights validation: weighs networks that name a class; give numbers, one for "
                "each network"
            )
        images, index = self.load_part("validation", None, data_dir, downloads, size, tta)
        found = [
            answers(each, self.backend, images, index, "validation", progress, tta).probabilities
            for each in self._members
        ]
        weights = best_weights(found, images.labels[index])
        self._mix(Mixture.of(len(self._members), self._mixture.combine, weights))

    def load_part(
        self,
        part: Part,
        dataset: str | None = None,
        data_dir: Path | None = None,
        downloads: Downloads | None = None,
        size: HW = None,
        tta: str | None = None,
    ) -> tuple[ImageSet, NDArray[np.int32]]:
        """The pictures of a split, and the indices that belong to it. Raises DatasetError.

        Of the training set only if all networks divided it in the same way.
        """
        images, index = super().load_part(part, dataset, data_dir, downloads, size, tta)
        check_parts(self._members, part, images)
        return images, index

    def evaluate_part(
        self,
        images: ImageSet,
        index: NDArray[np.int32],
        part: Part,
        progress: Callable[[int], object] = lambda count: None,
        tta: str | None = None,
        threshold: float | None = None,
    ) -> EnsembleEvaluation:
        """See ``many.ensemble.evaluate_ensemble``."""
        return evaluate_ensemble(
            self._members, self.backend, images, index, part, self._mixture, progress, tta,
            threshold,
        )  # fmt: skip

    def _mix(self, mixture: Mixture) -> None:
        check_combine(self.trained, mixture.combine)
        self._mixture = mixture
        self._forward.close()
        self._forward = EnsembleForward(self._members, self.backend, mixture, self._tta)

    def __repr__(self) -> str:
        return (
            f"<dnnstack.Ensemble of {len(self._members)} networks: {len(self.classes_)} classes, "
            f"on {self.backend.name}>"
        )


@in_python
def load_ensemble(
    runs: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    combine: Combine = "probabilities",
    weights: Sequence[float] | None = None,
    device: Device = "auto",
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] = "runs",
    tta: str = "none",
) -> Ensemble:
    """Several trained networks as one.

    runs: names or folders of runs, checkpoint files, or the name of a group of runs. Of a run with
    snapshots, all of these are taken. combine: average the "probabilities" or the "logits", or
    count "votes". weights: one for each network; by default they are equal, and ``fit_weights``
    finds the best ones for the validation samples. tta: as for ``load``. Raises DnnstackError.
    """
    word("combine", combine, get_args(Combine))
    views(tta)
    folder = Path(path_text("runs_dir", runs_dir))
    where = machine(device, threads)
    given = paths("runs", runs)
    return open_ensemble(given, folder, combine, weights, *where, notice=log_notice, tta=tta)


def open_ensemble(
    references: Sequence[str],
    runs_dir: Path,
    combine: Combine,
    weights: Sequence[float] | None,
    device: Device,
    threads: int | None,
    capture: bool = True,
    notice: Callable[[str], None] = lambda text: None,
    tta: str = "none",
    calibrated: bool = True,
) -> Ensemble:
    """See ``load_ensemble``; ``notice`` is told which checkpoints and device are used."""
    found = find_members(references, runs_dir, notice)
    members = found if calibrated else [member.calibrated(None) for member in found]
    mixture = Mixture.of(len(members), combine, weights)
    backend = open_backend(device, threads, notice, capture)
    return Ensemble(members, backend, mixture, notice, tta)
