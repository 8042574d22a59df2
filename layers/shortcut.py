"""The shortcuts of a residual block other than the identity: projection and padding."""

from __future__ import annotations

from typing import Literal

from ..common.errors import ShapeError
from ..graph.geometry import Pair, Window
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import PadChannels, Pool2d, Pool2dBackward, Slice
from .conv import Conv2dLayer
from .layer import Layer

Shortcut = Literal["identity", "projection", "padding"]


def shortcut_layers(kind: Shortcut, block: str, x: Shape, y: Shape) -> tuple[Layer, ...]:
    """The layers of a shortcut from shape x to shape y, under the name of its residual block.

    Raises ShapeError if no shortcut of this kind has these shapes.
    """
    if kind == "identity":
        return ()
    if len(x) != 3 or len(y) != 3:
        raise ShapeError(
            f"'shortcut: {kind}' leads from a picture to a picture, not from {x} to {y}; "
            "give the shortcut layers"
        )
    if kind == "padding":
        return (PaddingShortcut(f"{block}.padding", x, end=y),) if x != y else ()
    step = _step(kind, x, y)
    name = f"{block}.projection"
    return (Conv2dLayer(name, x, filters=y[0], kernel_size=1, stride=step, use_bias=False),)


class PaddingShortcut(Layer):
    """y[n,c,p,q] = x[n,c,s p,s q], 0 for channels that x does not have; no parameters.

    x: (N, C, H, W), y: (N, C', P, Q), C' at least C (He et al. 2016, option A).
    """

    kind = "padding"
    named = False
    end: Shape

    def build(self) -> None:
        self.output_shape = self.end
        before, after = self.input_shape[0], self.end[0]
        if after < before:
            raise ShapeError(
                f"'shortcut: padding' adds channels, but the body has fewer ({after}) "
                f"than its input ({before}); use 'shortcut: projection'"
            )
        self.window = Window((1, 1), _step("padding", self.input_shape, self.end))
        self.grows = after > before

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        if self.window.stride != (1, 1):
            shape = (*x.shape[:2], *self.output_shape[1:])
            y = graph.tensor(f"{self.name}.picked", shape) if self.grows else self.output(graph, x)
            x = graph.add(Pool2d(x=x, y=y, window=self.window, kind="avg"))
        if self.grows:
            x = graph.add(PadChannels(x=x, y=self.output(graph, x)))
        return x

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        if self.grows:
            shape = (dy.shape[0], self.input_shape[0], *self.output_shape[1:])
            plain = self.window.stride == (1, 1)
            dx = self.input_gradient(graph, dy) if plain else graph.tensor(f"{self.name}.dp", shape)
            dy = graph.add(Slice(x=dy, y=dx, begin=0))
        if self.window.stride != (1, 1):
            dx = self.input_gradient(graph, dy)
            dy = graph.add(Pool2dBackward(dy=dy, dx=dx, window=self.window, kind="avg"))
        return dy


def _step(kind: Shortcut, x: Shape, y: Shape) -> Pair:
    """The smallest stride that leads from the height and width of x to those of y."""
    found = []
    for size, wanted in zip(x[1:], y[1:], strict=True):
        steps = (s for s in range(1, size + 1) if (size - 1) // s + 1 == wanted)
        step = next(steps, None)
        if step is None:
            raise ShapeError(
                f"'shortcut: {kind}': no stride leads from {size} to {wanted} pixels; pad the "
                "body's windows, or give the shortcut layers"
            )
        found.append(step)
    return found[0], found[1]
