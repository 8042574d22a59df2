"""Gradients against central differences, along random directions and with random cotangents.

For y = f(x) the product <dy, J v> comes from (f(x + h v) - f(x - h v)) / 2h, and <J^T dy, v> from
the layer's backward; both are the same number. (A check through the sum of y would prove nothing
for softmax, whose Jacobian sends ones to zero: a backward of zeros would pass.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from dnnstack.backends.base import Array, Executable, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.graph import Graph, Shape, Tensor
from dnnstack.layers.layer import Layer
from dnnstack.layers.losses.loss import Loss

STEP = 1e-6
TOLERANCE = 1e-6
# Each of the two results that are subtracted is off by a few units in its last place, which the
# division by 2 STEP magnifies.
ROUNDING = 4.0 * float(np.finfo(np.float64).eps) / STEP


def compile_exact(graph: Graph, fusion: bool = False) -> Executable:
    """The section in float64 on the reference backend."""
    return ReferenceBackend(1).compile({graph.name: graph}, Options("fp64", fusion=fusion))


def spread(shape: Shape, rng: np.random.Generator) -> Array:
    """Values in (-2, 2), no two alike and none near 0: away from every kink and tie."""
    size = int(np.prod(shape))
    return ((rng.permutation(size) + 0.237) * (4.0 / size) - 2.0).reshape(shape)


def check_layer(layer: Layer, batch_size: int, seed: int) -> None:
    """Assert that backward is the transpose of forward's derivative in training, for the input and
    every parameter; the message names the layer and what failed."""
    rng = np.random.default_rng(seed)
    graph = Graph("check", batch_size, training=True, seed=seed)
    x = graph.tensor("x", (batch_size, *layer.input_shape), "float32", "input")
    y = layer.forward(graph, x)
    dy = graph.tensor("dy", y.shape, "float32", "input")
    dx = layer.backward(graph, dy)
    parameters = [p.tensor for p in layer.parameters()]
    gradients = {x: dx} | {p: graph.gradient(p) for p in parameters}
    graph.results.update(y=y, **{g.name: g for g in gradients.values()})
    executable = compile_exact(graph)
    values = {tensor: spread(tensor.shape, rng) for tensor in gradients}
    cotangent = rng.standard_normal(y.shape)
    executable.write(dy, cotangent)

    def along() -> Array:
        executable.run("check")
        return executable.read(y) * cotangent

    compare(executable, values, gradients, along, rng, f"{layer.kind} '{layer.name}'")


def check_loss(
    loss: Loss, classes: int, target: Array, seed: int, *, fusion: bool, scale: float = 2.0
) -> None:
    """Assert that the loss's backward is its derivative with respect to the scores."""
    rng = np.random.default_rng(seed)
    n = len(target)
    graph = Graph("check", n)
    scores = graph.tensor("scores", (n, classes), "float32", "input")
    wanted = graph.tensor("target", target.shape, str(target.dtype), "input")
    value = loss.forward(graph, scores, wanted)
    dx = loss.backward(graph)
    graph.results.update(loss=value, dx=dx)
    executable = compile_exact(graph, fusion)
    executable.write(wanted, target)

    def along() -> Array:
        executable.run("check")
        return executable.read(value)

    at = {scores: scale * rng.standard_normal(scores.shape)}
    compare(executable, at, {scores: dx}, along, rng, loss.kind)


def compare(
    executable: Executable,
    values: Mapping[Tensor, Array],
    gradients: Mapping[Tensor, Tensor],
    along: Callable[[], Array],
    rng: np.random.Generator,
    name: str,
) -> None:
    """Compare <gradient, v> with the central difference of ``along()``, tensor by tensor.

    values: where to differentiate; gradients: for each of these tensors the one that holds its
    gradient; ``along`` runs the section and returns numbers, whose sum is differentiated.
    """
    for tensor, value in values.items():
        executable.write(tensor, value)
    rounding = ROUNDING * float(np.abs(along()).sum())
    claimed = {tensor: executable.read(gradients[tensor]) for tensor in values}
    for tensor, value in values.items():
        direction = rng.standard_normal(tensor.shape)
        executable.write(tensor, value + STEP * direction)
        above = along()
        executable.write(tensor, value - STEP * direction)
        below = along()
        executable.write(tensor, value)
        measured = float((above - below).sum()) / (2.0 * STEP)
        product = float((claimed[tensor] * direction).sum())
        size = 1.0 + float(np.abs(claimed[tensor] * direction).sum())
        assert abs(product - measured) <= TOLERANCE * size + rounding, (
            f"{name}: gradient of '{tensor.name}' {tensor.shape}: "
            f"<J^T dy, v> = {product:.9g}, but <dy, J v> = {measured:.9g}"
        )
