"""How well a network does with one parameter pruned or sharing values, and nothing trained since.

Source: Han et al. 2015, "Learning both weights and connections for efficient neural networks",
figure 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from annotated_types import Interval, MinLen
from numpy.typing import NDArray

from ...backends.base import Backend
from ...common.errors import UsageError
from ...common.records import dataclass
from ...common.typed_json import Count, Finite, Name, from_json
from ...datasets import ImageSet, evaluation_order
from ...graph.graph import Tensor
from ...optimizers.pruning import magnitude_mask
from ...optimizers.sharing import cluster, shared_values
from ..inference.trained import Trained
from ..records.formats.state import Metrics

SHARES = (0.8, 0.6, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)
BITS = (8, 7, 6, 5, 4, 3, 2, 1)
Weights = NDArray[np.float32]
Portion = Annotated[float, Interval(ge=0, le=1)]


@dataclass(frozen=True)
class PrunedPoint:
    """A parameter that keeps this share of its weights."""

    share: Portion
    accuracy: Portion
    loss: Finite

    @property
    def at(self) -> float:
        return self.share


@dataclass(frozen=True)
class SharedPoint:
    """A parameter of which a weight takes so many bits."""

    bits: Annotated[int, Interval(ge=1, le=32)]
    accuracy: Portion
    loss: Finite

    @property
    def at(self) -> float:
        return self.bits


Point: TypeAlias = "PrunedPoint | SharedPoint"


@dataclass(frozen=True)
class Curves:
    """The points of a parameter of ``size`` weights, from much to little."""

    size: Count
    kept: tuple[PrunedPoint, ...]
    bits: tuple[SharedPoint, ...]


@dataclass(frozen=True)
class Sensitivity:
    """``accuracy``, ``loss``: of the network as it is, on ``count`` validation samples."""

    checkpoint: Path
    count: Count
    accuracy: Portion
    loss: Finite
    parameters: Annotated[dict[Name, Curves], MinLen(1)]

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        said = asdict(self)
        return {"checkpoint": str(said.pop("checkpoint")), "split": "validation", **said}

    @classmethod
    def from_json(cls, text: bytes) -> Sensitivity:
        """What ``to_json`` gave. Raises ValueError."""
        return from_json(text, cls)


def evaluations(trained: Trained) -> int:
    """How many evaluations ``measure`` takes."""
    return 1 + len(_kernels(trained)) * (len(SHARES) + len(BITS))


def measure(
    trained: Trained,
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    progress: Callable[[int], object] = lambda count: None,
) -> Sensitivity:
    """Prune each matrix and each set of filters to every share, and cut it to every number of bits.

    ``index``: the validation samples, at least one. ``progress`` is called after each evaluation.
    Raises UsageError if the targets are numbers.
    """
    if trained.data.kind == "numbers":
        raise UsageError(
            f"{trained.path}: its targets are numbers, which have no accuracy, of which a "
            "sensitivity measures how much is lost; leave it out"
        )
    batch_size = min(trained.config.data.evaluation_batch_size, len(index))
    order = evaluation_order(index, batch_size).reshape(-1, batch_size)
    scaling = trained.checkpoint.provenance.preprocessing
    graph = trained.network.evaluate_graph(
        batch_size, images.name, len(images), len(order), scaling
    )
    with closing(trained.compile(backend, graph)) as executable:
        executable.write(graph["images"], images.images)
        executable.write(graph["labels"], images.labels)
        executable.write(graph["order"], order.reshape(-1))

        def result() -> Metrics:
            """Of the network with the weights that are written."""
            executable.write(graph["step"], np.zeros(1, np.int64))
            executable.write(graph["sums"], np.zeros(3))
            executable.run(graph.name, len(order))
            progress(1)
            return Metrics.from_sums(executable.read(graph["sums"]))

        def seen(tensor: Tensor, weights: Weights) -> tuple[float, float]:
            executable.write(tensor, weights)
            now = result()
            return now.accuracy, now.loss

        learned = trained.checkpoint.learned()
        whole = result()
        found = {}
        for tensor in _kernels(trained):
            values = learned[tensor.name]
            kept = tuple(PrunedPoint(share, *seen(tensor, left)) for share, left in _pruned(values))
            bits = tuple(SharedPoint(few, *seen(tensor, left)) for few, left in _shared(values))
            executable.write(tensor, values)
            found[tensor.name] = Curves(values.size, kept, bits)
    return Sensitivity(trained.path, whole.count, whole.accuracy, whole.loss, found)


def _kernels(trained: Trained) -> list[Tensor]:
    return [each.tensor for each in trained.network.parameters() if each.kind == "kernel"]


def _pruned(values: Weights) -> Iterator[tuple[float, Weights]]:
    for share in SHARES:
        yield share, values * magnitude_mask(values, share) + 0


def _shared(values: Weights) -> Iterator[tuple[int, Weights]]:
    for bits in BITS:
        yield bits, shared_values(*cluster(values, 1 << bits))
