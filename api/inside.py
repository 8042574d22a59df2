"""Inside: what a trained network consists of, and computes on the way to its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .backends.base import Backend
from .common.printable import html_table
from .datasets import ImageSet
from .inputs import Pictures, as_samples
from .layers.layer import Layer
from .training.inference.inspect import activations, parameter_gradients
from .training.inference.trained import Trained
from .wording import in_python

Arrays = dict[str, NDArray[np.float32]]


class LayerInfo(NamedTuple):
    """A layer: its output is (N, *output_shape), and it has so many parameters."""

    name: str
    kind: str
    output_shape: tuple[int, ...]
    parameters: int


class Inside:
    """The methods of a classifier that look into its network."""

    trained: Trained
    backend: Backend
    _labelled: Callable[..., ImageSet]

    @property
    def layers(self) -> dict[str, LayerInfo]:
        """The layers by name, in their order; those of composites too, which count them all."""
        return {
            each.name: LayerInfo(each.name, each.kind, each.output_shape, _size(each))
            for each in self.trained.network.every_layer()
        }

    def weights(self) -> Arrays:
        """What was learned: parameters and running statistics by name, copies of float32."""
        learned = {tensor.name: tensor.shape for tensor in self.trained.network.learned()}
        return {k: v.copy() for k, v in self.trained.checkpoint.parameters(learned).items()}

    @in_python
    def activations(self, pictures: Pictures) -> Arrays:
        """The output (N, ...) of each layer for ``pictures``, those of ``predict``, as a batch."""
        x = self._filled(as_samples(pictures, self.trained))
        scaling = self.trained.checkpoint.provenance.preprocessing
        return activations(self.trained, self.backend, scaling(x))

    @in_python
    def gradients(self, pictures: Pictures, targets: ArrayLike) -> Arrays:
        """The gradient of a batch's mean loss upon each parameter that is trained, by its name.

        ``targets``: those of ``evaluate``. Layers compute as in training: batch norm with the
        statistics of the batch. Raises DatasetError.
        """
        batch = self._labelled(pictures, targets, None)
        samples = self._filled(batch.images)
        return parameter_gradients(self.trained, self.backend, samples, batch.labels)

    def _filled(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """With what a table's rows lack."""
        columns = self.trained.checkpoint.provenance.columns
        return inputs if columns is None else columns.filled(inputs)

    def _repr_html_(self) -> str:
        return html_table(repr(self), [each._asdict() for each in self.layers.values()])


def _size(layer: Layer) -> int:
    return sum(each.tensor.size for each in layer.parameters())
