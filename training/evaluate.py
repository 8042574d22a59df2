"""Loss, accuracy and confusion of a trained network over a whole set of pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..datasets import Downloads, ImageSet, describe, evaluation_order, load, split_validation
from ..layers.backends.base import Backend
from .assemble import describe_data, load_data
from .trained import Trained

Part = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Evaluation:
    """What came out. confusion: (K, K) int64, rows are the true classes, columns the answers."""

    checkpoint: Path
    dataset: str
    part: Part
    classes: tuple[str, ...]
    loss: float
    confusion: NDArray[np.int64]

    @property
    def count(self) -> int:
        return int(self.confusion.sum())

    @property
    def correct(self) -> int:
        return int(np.trace(self.confusion))

    @property
    def accuracy(self) -> float:
        return self.correct / self.count

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on; accuracy of a class without samples is None."""
        counts = self.confusion.sum(1).tolist()
        right = np.diag(self.confusion).tolist()
        return {
            "checkpoint": str(self.checkpoint),
            "dataset": self.dataset,
            "split": self.part,
            "count": self.count,
            "correct": self.correct,
            "accuracy": self.accuracy,
            "loss": self.loss,
            "per_class": [
                {
                    "label": label,
                    "index": index,
                    "count": counts[index],
                    "correct": right[index],
                    "accuracy": right[index] / counts[index] if counts[index] else None,
                }
                for index, label in enumerate(self.classes)
            ],
            "confusion_matrix": self.confusion.tolist(),
        }


def load_part(
    trained: Trained,
    part: Part,
    root: Path,
    dataset: str | None = None,
    downloads: Downloads | None = None,
) -> tuple[ImageSet, NDArray[np.int32]]:
    """The pictures of a split and the indices that belong to it.

    dataset: another set than the one trained on, with the same shape and classes. ``train`` and
    ``validation`` are the parts into which training has cut the training set. Raises DatasetError.
    """
    config = trained.config
    own = config.data.dataset.type
    name = own if dataset is None else dataset
    info = describe_data(config) if name == own else describe(name)
    if info.shape != trained.input_shape or len(info.classes) != len(trained.classes):
        raise DatasetError(
            f"dataset '{name}' has pictures {_shape(info.shape)} of {len(info.classes)} classes; "
            f"{trained.path} takes {_shape(trained.input_shape)} of {len(trained.classes)}"
        )
    split: Literal["train", "test"] = "test" if part == "test" else "train"
    if name == own:
        images = load_data(config, split, root, downloads)
    else:
        images = load(name, split, root=root, downloads=downloads)
    if part == "test":
        return images, np.arange(len(images), dtype=np.int32)
    train, validation = split_validation(len(images), config.data.validation, config.seed)
    if part == "train":
        return images, train
    if len(validation) == 0:
        raise DatasetError(
            f"{trained.path}: was trained without validation samples (data.validation: 0); "
            "use --split train or --split test"
        )
    return images, validation


def evaluate(
    trained: Trained,
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    part: Part,
    progress: Callable[[int], None] = lambda count: None,
) -> Evaluation:
    """Run every picture of ``index`` through the network once.

    The last batch is filled up with masked samples. ``progress`` hears how many pictures each batch
    has added.
    """
    batch_size = min(trained.config.data.evaluation_batch_size, len(index))
    order = evaluation_order(index, batch_size).reshape(-1, batch_size)
    graph = trained.network.evaluate_graph(
        batch_size, images.name, len(images), len(order), trained.checkpoint.state.preprocessing
    )
    executable = trained.compile(backend, graph)
    try:
        executable.write(graph["images"], images.images)
        executable.write(graph["labels"], images.labels)
        executable.write(graph["order"], order.reshape(-1))
        executable.write(graph["step"], np.zeros(1, np.int64))
        executable.write(graph["sums"], np.zeros(3))
        size = len(trained.classes)
        confusion = np.zeros(size * size, np.int64)
        for batch in order:
            executable.run(graph.name)
            answers = executable.read(graph["scores"]).argmax(1)
            real = batch >= 0
            cells = images.labels[batch[real]] * size + answers[real]
            confusion += np.bincount(cells, minlength=size * size)
            progress(int(real.sum()))
        sums = executable.read(graph["sums"])
    finally:
        executable.close()
    return Evaluation(
        checkpoint=trained.path,
        dataset=images.name.partition("/")[0],
        part=part,
        classes=trained.classes,
        loss=float(sums[0] / sums[2]),
        confusion=confusion.reshape(size, size),
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
