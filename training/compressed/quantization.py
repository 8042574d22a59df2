"""Post-training quantization: weights of 8 bits, and scales for activations of 8 bits.

The activations of some training pictures are looked at in float32. Source: Jacob et al. 2018,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference";
here zero is always the integer 0, and weights have a scale for each output.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend, Options
from ...common.errors import ConfigError
from ...common.text import listed
from ...datasets import ImageSet
from ...graph.ops import Quantization
from ...graph.quantization import products
from ..inference.trained import Trained
from ..network import Network
from ..records.formats.checkpoint import Checkpoint
from ..records.formats.dnnz_arrays import LARGEST

if TYPE_CHECKING:
    from ...configs.schema.compression import QuantizeConfig

_BINS, _BATCH, _NAMED = 2048, 100, 12
# Bits of a scale, so that its products with all integers are exact in float32.
_SCALE_BITS = 16
# What is tried as the largest number, as shares of the largest that occurs.
_CUTS = np.linspace(0.1, 1.0, 91)
Floats = NDArray[Any]


class Histogram:
    """How often absolute values occur, in bins from 0 to a top that grows with them."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BINS)
        self.top = 0.0
        self.largest = 0.0
        self.signed = False

    def add(self, values: NDArray[Any]) -> None:
        """Count values of any shape."""
        sizes = np.abs(values, dtype=np.float64).ravel()
        largest = float(sizes.max(initial=0.0))
        self.signed = self.signed or bool((values < 0).any())
        self.largest = max(self.largest, largest)
        if self.top == 0.0:
            self.top = largest
        while self.top < largest:
            self.counts = np.append(self.counts.reshape(-1, 2).sum(1), np.zeros(_BINS // 2))
            self.top *= 2.0
        if self.top > 0.0:
            self.counts += np.histogram(sizes, _BINS, (0.0, self.top))[0]

    def quantization(self, config: QuantizeConfig) -> Quantization:
        """The integers for these values; 1 stands for 1 if all of them are 0."""
        unscaled = Quantization(1.0, self.signed)
        if self.largest == 0.0:
            return unscaled
        _, most = unscaled.bounds
        ends = np.arange(1, _BINS + 1) * (self.top / _BINS)
        largest = self.largest
        if config.range == "percentile":
            sums = self.counts.cumsum()
            last = int(np.searchsorted(sums, sums[-1] * config.percentile / 100))
            largest = min(float(ends[last]), self.largest)
        elif config.range == "mse":
            centers = ends - self.top / _BINS / 2
            errors = [self._error(centers, cut * self.largest / most, most) for cut in _CUTS]
            largest = float(_CUTS[int(np.argmin(errors))]) * self.largest
        return replace(unscaled, scale=float(np.float32(largest / most)))

    def _error(self, centers: Floats, scale: float, most: int) -> float:
        rounded = np.minimum(np.rint(centers / scale), most) * scale
        return float((self.counts * (centers - rounded) ** 2).sum())


def quantized_checkpoint(
    trained: Trained,
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    config: QuantizeConfig,
) -> Checkpoint:
    """The network with weights of 8 bits, and the scales of the inputs of their layers.

    ``index``: of the training pictures. Raises ConfigError for names that no layer has.
    """
    layers = products(trained.network.infer_graph(1))
    check_names(trained.network, config)
    names = [name for name in layers if not _stays(name, config)]
    arrays = dict(trained.checkpoint.learned())
    for name in names:
        weight = layers[name][1].name
        arrays[weight] = on_grid(arrays[weight])
    seen = {name: Histogram() for name in names}
    count = min(config.pictures, len(index))
    chosen = index[np.arange(count) * len(index) // count]
    batch = min(_BATCH, count)
    graph = trained.network.infer_graph(batch)
    inputs = products(graph)
    scaling = trained.checkpoint.provenance.preprocessing
    learned = trained.network.learned()
    values = trained.checkpoint.parameters({t.name: t.shape for t in learned})
    with closing(backend.compile({graph.name: graph}, Options("fp32", fusion=False))) as executable:
        for tensor in learned:
            executable.write(tensor, values[tensor.name])
        for first in range(0, count, batch):
            # The last batch is filled with pictures of the one before.
            first = min(first, count - batch)
            executable.write(graph["x"], scaling(images.images[chosen[first : first + batch]]))
            executable.run(graph.name)
            for name, histogram in seen.items():
                histogram.add(executable.read(inputs[name][0]))
    found = {name: histogram.quantization(config) for name, histogram in seen.items()}
    return replace(trained.checkpoint, arrays=arrays, quantization=found)


def check_names(network: Network, config: QuantizeConfig) -> None:
    """Raise ConfigError for a name that no layer has, or if no layer is left."""
    layers = list(products(network.infer_graph(1)))
    able = listed(layers, _NAMED) or "none"
    for pattern in config.float32:
        if not any(fnmatchcase(name, pattern) for name in layers):
            raise ConfigError(
                f"quantize.float32: no layer matches '{pattern}'; those that can compute with "
                f"8-bit integers are {able}"
            )
    if all(_stays(name, config) for name in layers):
        raise ConfigError(
            f"quantize: no layer is left; those that can compute with 8-bit integers are {able}"
        )


def _stays(name: str, config: QuantizeConfig) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in config.float32)


def on_grid(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest integers from -127 to 127, times a scale for each output; (outputs, ...).

    A scale has 16 bits, so that it is found again exactly: the largest number by 127.
    """
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    fractions, exponents = np.frexp(np.abs(rows).max(1) / LARGEST)
    scales = np.ldexp(np.ceil(np.ldexp(fractions, _SCALE_BITS)), exponents - _SCALE_BITS)
    scales[scales == 0] = 1.0
    integers = np.rint(rows / scales[:, None]) + 0.0
    return np.asarray(integers * scales[:, None], np.float32).reshape(weight.shape)
