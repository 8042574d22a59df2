"""Checks the gradient of a layer or a loss, such as one of a plugin, by central differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Executable, Options
from ..backends.reference.backend import ReferenceBackend
from ..common.errors import ConfigError, DnnstackError
from ..common.text import suggested
from ..graph.graph import Graph, Shape, Tensor
from ..layers.build import LAYERS, LayerSpec, build_layers
from ..layers.losses import LOSSES

# In float64 the error of a central difference is about its square.
_STEP = _TOLERANCE = 1e-6


class GradientError(DnnstackError):
    """A gradient is not the derivative; the message names the tensor and both numbers."""


def check_gradients(
    kind: str,
    shape: Shape,
    options: Mapping[str, Any] | None = None,
    batch_size: int = 3,
    seed: int = 1,
) -> None:
    """Compare what backward gives with (f(x + h v) - f(x - h v)) / 2h, in float64 with NumPy.

    kind: a layer or a loss, as a config names it, of dnnstack or of a plugin that is loaded; shape:
    of a sample that the layer gets, (C, H, W) or (units,); of a loss (classes,). options: those of
    the kind, as in a config. The inputs and parameters have values from -2 to 2, no two alike and
    none near 0, and v is random. Raises GradientError that names the input or the parameter whose
    gradient is wrong, ConfigError for an unknown kind, ShapeError for a shape that does not fit.
    """
    rng = np.random.default_rng(seed)
    graph = Graph("check", batch_size, training=True, seed=seed)
    if kind in LAYERS:
        (layer,) = build_layers([LayerSpec(kind, options=dict(options or {}))], shape)
        x = graph.tensor("x", (batch_size, *shape), "float32", "input")
        y = layer.forward(graph, x)
        dy = graph.tensor("dy", y.shape, "float32", "input")
        gradients = {x: layer.backward(graph, dy)}
        gradients |= {p.tensor: graph.gradient(p.tensor) for p in layer.parameters()}
        given, cotangent = {dy: rng.standard_normal(y.shape)}, dy
    elif kind in LOSSES:
        x = graph.tensor("x", (batch_size, *shape), "float32", "input")
        target = graph.tensor("target", (batch_size,), "int32", "input")
        loss = LOSSES[kind](**(options or {}))
        y = loss.forward(graph, x, target)
        gradients = {x: loss.backward(graph)}
        given, cotangent = {target: rng.integers(0, shape[0], batch_size, np.int32)}, None
    else:
        known = sorted((*LAYERS, *LOSSES))
        hint = suggested(kind, known, f"known are {', '.join(known)}")
        raise ConfigError(f"'{kind}' is no layer and no loss; {hint}; load a plugin first")
    graph.results.update(y=y, **{gradient.name: gradient for gradient in gradients.values()})
    executable = ReferenceBackend(1).compile({"check": graph}, Options("fp64"))
    for tensor, value in given.items():
        executable.write(tensor, value)

    def product() -> float:
        executable.run("check")
        found = executable.read(y)
        return float((found if cotangent is None else found * given[cotangent]).sum())

    values = {tensor: _spread(tensor.shape, rng) for tensor in gradients}
    # A wrong kernel may well give numbers that are infinite.
    with np.errstate(all="ignore"):
        _compare(kind, executable, values, gradients, product, rng)


def _spread(shape: Shape, rng: np.random.Generator) -> NDArray[np.float64]:
    size = prod(shape)
    return np.asarray(((rng.permutation(size) + 0.25) * (4.0 / size) - 2.0).reshape(shape))


def _compare(
    kind: str,
    executable: Executable,
    values: Mapping[Tensor, NDArray[np.float64]],
    gradients: Mapping[Tensor, Tensor],
    product: Callable[[], float],
    rng: np.random.Generator,
) -> None:
    for tensor, value in values.items():
        executable.write(tensor, value)
    product()
    claimed = {tensor: executable.read(gradients[tensor]) for tensor in values}
    for tensor, value in values.items():
        direction = rng.standard_normal(tensor.shape)
        ends = []
        for sign in (1.0, -1.0):
            executable.write(tensor, value + sign * _STEP * direction)
            ends.append(product())
        executable.write(tensor, value)
        measured = (ends[0] - ends[1]) / (2.0 * _STEP)
        terms = claimed[tensor] * direction
        # Written so that a gradient that is not a number fails, too.
        if not abs(float(terms.sum()) - measured) <= _TOLERANCE * (1.0 + float(abs(terms).sum())):
            raise GradientError(
                f"{kind}: the gradient of '{tensor.name}' {tensor.shape} is wrong: along a random "
                f"direction it gives {float(terms.sum()):.9g}, central differences "
                f"{measured:.9g}"
            )
