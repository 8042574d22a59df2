"""What each of several networks answers to the same pictures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..common.records import dataclass
from ..datasets import ImageSet
from ..datasets.identity import matched_classes
from ..training.inference.evaluate import Evaluation, Part, Scores, evaluate
from ..training.inference.trained import Trained
from ..training.own_samples import in_classes


@dataclass(frozen=True)
class Answers:
    """The answers of a network. probabilities: (N, K); right: (N,) bool."""

    evaluation: Evaluation
    probabilities: NDArray[np.float32]
    right: NDArray[np.bool_]


def answers(
    trained: Trained,
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    part: Part,
    progress: Callable[[int], object] = lambda count: None,
    tta: str | None = None,
) -> Answers:
    """Run every picture of ``index`` through the network once, see ``evaluate``.

    The probabilities are in the order of the classes of ``images``, whatever the network's.
    """
    classes, places = images.classes, matched_classes(trained.classes, images.classes)
    images = in_classes(images, trained.classes, str(trained.path), lambda text: None)
    probabilities = np.empty((len(index), len(classes)), np.float32)
    right = np.empty(len(index), np.bool_)
    done = 0

    def hear(found: NDArray[np.int32], scores: Scores, shares: Scores) -> None:
        nonlocal done
        batch = slice(done, done + len(found))
        probabilities[batch] = shares[:, places]
        right[batch] = scores.argmax(1) == images.labels[found]
        done = batch.stop

    result = evaluate(trained, backend, images, index, part, progress, tta, hear)
    return Answers(result, probabilities, right)
