"""Layers made of layers: sequential, residual, concat."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from ..common.errors import ShapeError
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Add, Concat, Slice
from .layer import Layer
from .shortcut import Shortcut, shortcut_layers


def forward_all(layers: Sequence[Layer], graph: Graph, x: Tensor) -> Tensor:
    """Add the forward of layers, first to last; without layers the result is x itself."""
    for layer in layers:
        with graph.at(layer.name, "forward"):
            x = layer.forward(graph, x)
        graph.outputs[layer.name] = x
    return x


def backward_all(layers: Sequence[Layer], graph: Graph, dy: Tensor) -> Tensor:
    """Add the backward of layers, last to first."""
    for layer in reversed(layers):
        graph.output_gradients[layer.name] = dy
        with graph.at(layer.name, "backward"):
            dy = layer.backward(graph, dy)
    return dy


def walk(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Every layer at any depth, each before the layers inside it."""
    for layer in layers:
        yield layer
        yield from walk(layer.children)


class Composite(Layer):
    """A layer made of other layers, which lie on one or several ``paths``."""

    def take(self, *paths: Sequence[Layer]) -> None:
        """Be made of the layers of these paths."""
        self.paths: tuple[tuple[Layer, ...], ...] = tuple(map(tuple, paths))
        self.children = tuple(layer for path in self.paths for layer in path)


def mapped(layers: Sequence[Layer], change: Callable[[Layer], Layer]) -> tuple[Layer, ...]:
    """The layers, ``change`` made to each; of a composite, to the layers inside it instead."""

    def one(layer: Layer) -> Layer:
        if not isinstance(layer, Composite):
            return change(layer)
        new = copy.copy(layer)
        new.take(*(mapped(path, change) for path in layer.paths))
        return new

    return tuple(map(one, layers))


class Sequential(Composite):
    """Layers in sequence, under a common name."""

    kind = "sequential"
    layers: Annotated[Sequence[Layer], "The layers."]

    def build(self) -> None:
        self.output_shape = _end(self.layers, self.input_shape)
        self.take(self.layers)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return forward_all(self.children, graph, x)

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        return backward_all(self.children, graph, dy)


class Residual(Composite):
    """body(x) + shortcut(x).

    Source: He et al. 2016, "Deep residual learning", eq. 1 and 2; ``padding`` is their option A,
    every s-th pixel with channels of zeros after x's, ``projection`` option B.
    """

    kind = "residual"
    body: Annotated[Sequence[Layer], "The layers of the body."]
    shortcut: Annotated[
        Shortcut | Sequence[Layer],
        "The path around the body: identity, x itself; projection, a 1x1 convolution without "
        "bias and with the matching stride; padding, every n-th pixel with channels of zeros "
        "added, without parameters; or a list of layers.",
    ] = "identity"

    def build(self) -> None:
        x, y = self.input_shape, _end(self.body, self.input_shape)
        if isinstance(self.shortcut, str):
            way = shortcut_layers(self.shortcut, self.name, x, y)
        else:
            way = tuple(self.shortcut)
        if _end(way, x) != y:
            raise ShapeError(
                f"the body gives {y}, the shortcut {_end(way, x)}, which cannot be "
                f"added; {_advice(self.shortcut, x, y)}"
            )
        self.output_shape = y
        self.take(self.body, way)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        terms = tuple(forward_all(path, graph, x) for path in self.paths)
        return graph.add(Add(terms=terms, y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        terms = tuple(backward_all(path, graph, dy) for path in self.paths)
        return graph.add(Add(terms=terms, y=self.input_gradient(graph, dy)))


class ConcatLayer(Composite):
    """Concatenates the outputs of several branches along the channels.

    x: (N, C, H, W), a branch: (N, C_k, P, Q), y: (N, sum C_k, P, Q). Source: Szegedy et al. 2015.
    """

    kind = "concat"
    branches: Annotated[
        Sequence[Sequence[Layer]], "Lists of layers; an empty list passes the input through."
    ]

    def build(self) -> None:
        ends = [_end(branch, self.input_shape) for branch in self.branches]
        if len(ends) < 2:
            raise ShapeError(f"needs at least two branches, got {len(ends)}")
        if len({end[1:] for end in ends}) != 1:
            listed = ", ".join(map(str, ends))
            raise ShapeError(
                f"the branches give {listed}, which differ in more than the channels; "
                "use 'padding: same' and the same strides in all of them"
            )
        self.widths = [end[0] for end in ends]
        self.output_shape = (sum(self.widths), *ends[0][1:])
        self.take(*self.branches)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        parts = tuple(forward_all(branch, graph, x) for branch in self.paths)
        return graph.add(Concat(parts=parts, y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        n, _, *rest = dy.shape
        terms: list[Tensor] = []
        begin = 0
        for at, (branch, width) in enumerate(zip(self.paths, self.widths, strict=True)):
            part = graph.tensor(f"{self.name}.dy{at}", (n, width, *rest))
            graph.add(Slice(x=dy, y=part, begin=begin))
            terms.append(backward_all(branch, graph, part))
            begin += width
        return graph.add(Add(terms=tuple(terms), y=self.input_gradient(graph, dy)))


def _end(layers: Sequence[Layer], input_shape: Shape) -> Shape:
    return layers[-1].output_shape if layers else input_shape


def _advice(shortcut: object, x: Shape, y: Shape) -> str:
    if shortcut != "identity":
        return "let both end in the same shape"
    if len(x) == 3 == len(y):
        return "use 'shortcut: projection' or 'shortcut: padding', or let the body keep the shape"
    return "let the body keep the shape, or give the shortcut layers"
