"""Layers whose pictures the ranks of a training cut into bands of rows: each computes its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..common.errors import ShapeError
from ..graph.geometry import Window
from ..graph.graph import Graph, Tensor
from ..graph.ops import GatherBands, HaloExchange, HaloExchangeBackward, TakeBand, band_of
from ..layers.composite import walk
from ..layers.layer import Layer, Parameter
from ..layers.parallel import SPACE, split_options
from ..layers.pool import MaxPool2d
from .units import check_units, count_of

# Less than any number of a picture, also in bfloat16, and finite.
_LOWEST = -3e38


class Halo(NamedTuple):
    """So many rows from r step - before on are what rank r needs; missing ones are ``fill``."""

    rows: int
    step: int
    before: int
    fill: float


class Band(Layer):
    """What one of several ranks computes of a layer: its band of the rows of the output.

    On R ranks the rows of pictures (N, C, H, W) are cut into bands of ceil(H / R); the last may
    have less. Every rank has all N pictures. Forward: exchange the halo, the rows of other bands
    that the windows of the own ones need; compute. Backward: the own rows' gradient from those of
    all windows. Gradients of parameters are sums over the own rows, which the update adds up.
    The first layer takes its rows from whole pictures, the last gives whole ones to every rank.
    Source: Dryden et al. 2019, "Improving strong-scaling of CNN training by exploiting
    finer-grained parallelism".
    """

    kind = "band"
    named = False
    layer: Layer
    ranks: int
    first: bool
    last: bool

    def build(self) -> None:
        channels, rows, width = self.layer.output_shape
        self.output_shape = channels, rows, width
        self.rows = band_of(rows, self.ranks)
        inner: Any = copy.copy(self.layer)
        inner.output_shape = channels, self.rows, width
        self.halo, input_rows = None, band_of(self.input_shape[1], self.ranks)
        window = getattr(self.layer, "window", None)
        if window is not None:
            self.halo = _halo(self.layer, window, self.rows, self.ranks)
            input_rows = self.halo.rows
            # Rows are there already, columns are padded as before.
            inner.window = replace(window, padding=(0, 0, *window.padding[2:]))
        elif self.first:
            self.halo = Halo(input_rows, input_rows, 0, 0.0)
        # Rows below the picture are another's fill, or what windows there made of it.
        beyond = window is not None and _sticks_out(self.layer, window)
        if not (self.first or beyond) and self.halo is not None and self._has_all(self.halo):
            self.halo = None
        inner.input_shape = (self.input_shape[0], input_rows, self.input_shape[2])
        self.inner: Layer = inner

    def parameters(self) -> tuple[Parameter, ...]:
        return self.layer.parameters()

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        if self.halo is not None:
            count, step, before, fill = self.halo
            y = self._rows(graph, "halo", x, count)
            at: dict[str, Any] = {"ranks": self.ranks, "step": step, "before": before, "fill": fill}
            if self.first:
                x = graph.add(TakeBand(x=x, y=y, **at))
            else:
                x = graph.add(HaloExchange(x=x, y=y, height=self.input_shape[1], **at))
        y = self.inner.forward(graph, x)
        if not self.last:
            return y
        whole = self._rows(graph, "whole", y, self.output_shape[1])
        return graph.add(GatherBands(x=y, y=whole, ranks=self.ranks))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        if self.last:
            band = self._rows(graph, "dband", dy, self.rows)
            dy = graph.add(TakeBand(x=dy, y=band, ranks=self.ranks, step=self.rows))
        dx = self.inner.backward(graph, dy)
        # Nothing needs the gradient of the network's input.
        if self.halo is None or self.first:
            return dx
        rows = self.input_shape[1]
        own = self._rows(graph, "dhalo", dx, band_of(rows, self.ranks))
        at: dict[str, Any] = {"ranks": self.ranks, "step": self.halo.step}
        at["before"] = self.halo.before
        return graph.add(HaloExchangeBackward(dy=dx, dx=own, height=rows, **at))

    def _has_all(self, halo: Halo) -> bool:
        """Whether the rows that are needed are those of the own band."""
        band = band_of(self.input_shape[1], self.ranks)
        return (halo.rows, halo.step, halo.before) == (band, band, 0)

    def _rows(self, graph: Graph, name: str, like: Tensor, rows: int) -> Tensor:
        n, channels, _, width = like.shape
        return graph.tensor(f"{self.name}.{name}", (n, channels, rows, width))


def stretch(layers: Sequence[Layer]) -> int:
    """How many layers, from the first on, ranks compute in bands: 0 if none says so.

    To the last that says so and on over layers that work pixel by pixel.
    """
    count = max((i for i, layer in enumerate(layers, 1) if _says_so(layer)), default=0)
    while 0 < count < len(layers) and layers[count].by_pixel and _is_picture(layers[count]):
        count += 1
    return count


def in_bands(layers: Sequence[Layer], ranks: int) -> tuple[Layer, ...]:
    """The layers as one of so many ranks computes them; see Band. ``check_layers`` comes before."""
    count = stretch(layers)
    bands = (
        Band(
            name=layer.name,
            input_shape=layer.input_shape,
            layer=layer,
            ranks=ranks,
            first=number == 0,
            last=number == count - 1,
        )
        for number, layer in enumerate(layers[:count])
    )
    return (*bands, *layers[count:])


def check_layers(layers: Sequence[Layer], ranks: int) -> None:
    """Raise ShapeError where so many ranks cannot share out units or rows of the layers."""
    check_units(layers, ranks)
    if ranks == 1:
        return
    last = next((layer for layer in reversed(layers) if _says_so(layer)), None)
    for layer in _inner(layers):
        if _says_so(layer):
            raise ShapeError(
                f"{_named(layer)} is inside another layer, so ranks cannot share out its rows; "
                "leave out its 'parallel', and that of the layers behind it"
            )
    if last is None:
        return
    for layer in walk(layers):
        if count_of(layer):
            raise ShapeError(
                f"{_named(layer)}: ranks share out either {count_of(layer)} or the rows of "
                f"pictures (split: space), as in '{last.name}', but not both; leave out one"
            )
    for layer in layers[: stretch(layers)]:
        _check_layer(layer, last, ranks)


def _check_layer(layer: Layer, last: Layer, ranks: int) -> None:
    if not (_says_so(layer) or layer.by_pixel):
        advice = (
            "give it parallel: {split: space} too"
            if split_options(type(layer))
            else "leave out 'parallel' of the layers behind it"
        )
        raise ShapeError(
            f"{_named(layer)} comes before '{last.name}', whose rows ranks share out, but is "
            f"computed from whole pictures; {advice}"
        )
    rows = layer.output_shape[1]
    if rows < ranks:
        raise ShapeError(
            f"{_named(layer)}: rows of an output of height {rows} cannot be shared out over "
            f"{ranks} ranks; use fewer, or leave out 'parallel' of this layer and those behind it"
        )
    if hasattr(layer, "window") and _sticks_out(layer, layer.window):
        if layer.kind == "avg_pool2d":
            raise ShapeError(
                f"{_named(layer)}: averages over fewer rows at an edge, which bands do not know; "
                "use a size without padding or ceil_mode, or leave out its 'parallel'"
            )
        if isinstance(layer, MaxPool2d) and rows % ranks:
            raise ShapeError(
                f"{_named(layer)}: with padding or ceil_mode its {rows} rows must be a multiple of "
                f"the {ranks} ranks; use another number of ranks, or leave out its 'parallel'"
            )


def _halo(layer: Layer, window: Window, rows: int, ranks: int) -> Halo:
    """What the windows of so many rows need."""
    stride, top = window.stride[0], window.padding[0]
    fill = _LOWEST if isinstance(layer, MaxPool2d) and _sticks_out(layer, window) else 0.0
    return Halo((rows - 1) * stride + window.extent[0], rows * stride, top, fill)


def _sticks_out(layer: Layer, window: Window) -> bool:
    """Whether a window reaches above or below the picture."""
    top = window.padding[0]
    last = (layer.output_shape[1] - 1) * window.stride[0] - top
    return top > 0 or last + window.extent[0] > layer.input_shape[1]


def _says_so(layer: Layer) -> bool:
    return layer.parallel == SPACE


def _is_picture(layer: Layer) -> bool:
    return len(layer.input_shape) == 3


def _inner(layers: Sequence[Layer]) -> Iterator[Layer]:
    for layer in layers:
        yield from walk(layer.children)


def _named(layer: Layer) -> str:
    return f"layer '{layer.name}' ({layer.kind})"
