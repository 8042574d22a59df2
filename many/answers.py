"""What each of several networks answers to the same pictures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..common.records import dataclass
from ..datasets import ImageSet
from ..datasets.identity import matched_classes
from ..training.inference.evaluate import Evaluation, Part, evaluate, threshold_of
from ..training.inference.tally import Scores
from ..training.inference.trained import Trained
from ..training.metrics import goodness, right_of
from ..training.own_samples import in_classes


@dataclass(frozen=True)
class Answers:
    """The answers of a network. probabilities: (N, K), or numbers; right: see
    ``metrics.right_of``; good: see ``metrics.goodness``."""

    evaluation: Evaluation
    probabilities: NDArray[np.float32]
    right: NDArray[np.bool_]
    good: NDArray[np.float64]


def answers(
    trained: Trained,
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    part: Part,
    progress: Callable[[int], object] = lambda count: None,
    tta: str | None = None,
    threshold: float | None = None,
) -> Answers:
    """Run every picture of ``index`` through the network once, see ``evaluate``.

    The probabilities are in the order of the classes of ``images``, whatever the network's.
    """
    given, classes, places = (
        images,
        images.classes,
        matched_classes(trained.classes, images.classes),
    )
    images = in_classes(images, trained.classes, str(trained.path), lambda text: None)
    probabilities = np.empty((len(index), len(classes)), np.float32)
    kind, targets = images.kind, images.labels
    right: list[NDArray[np.bool_]] = []
    bound = threshold_of(trained, threshold)
    done = 0

    def hear(found: NDArray[np.int32], scores: Scores, shares: Scores, _: Scores) -> None:
        nonlocal done
        batch = slice(done, done + len(found))
        probabilities[batch] = shares[:, places]
        decided = shares if kind == "yes_no" else scores
        right.append(right_of(kind, targets[found], decided, bound))
        done = batch.stop

    result = evaluate(trained, backend, images, index, part, progress, tta, hear, threshold)
    every, wanted = np.concatenate(right), given.labels[index]
    return Answers(result, probabilities, every, goodness(kind, wanted, every, probabilities))
