"""Composites drawn by hypothesis: residual blocks and branches inside each other."""

from __future__ import annotations

from typing import Any

from dnnstack.graph.graph import Shape
from dnnstack.layers.build import LayerSpec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

Options = dict[str, Any]
# With a derivative that is the same on both sides of every value.
SMOOTH = ("tanh", "sigmoid", "silu", "gelu", "softplus")


def conv(filters: int, size: int = 3, stride: int = 1, **options: Any) -> LayerSpec:
    """A convolution that keeps height and width where its stride is 1."""
    fixed = {"filters": filters, "kernel_size": size, "stride": stride, "padding": "same"}
    return LayerSpec("conv2d", options={**fixed, **options})


def steps(draw: DrawFn, channels: int, depth: int, ending: tuple[int, int]) -> list[LayerSpec]:
    """One to three layers that keep the size of pictures, but for the stride and the channels of
    the last convolution, which are ``ending``; (filters, 1) keeps the size as well."""
    filters, stride = ending
    specs: list[LayerSpec] = []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["conv2d", "activation", "pool", "composite"]))
        if kind == "conv2d":
            channels = draw(st.integers(1, 3))
            specs.append(conv(channels, draw(st.integers(1, 3)), use_bias=draw(st.booleans())))
        elif kind == "pool":
            options = {"pool_size": 3, "stride": 1, "padding": "same"}
            specs.append(LayerSpec("avg_pool2d", options=options))
        elif kind == "composite" and depth > 0:
            spec, channels = composite(draw, channels, depth - 1)
            specs.append(spec)
        else:
            specs.append(LayerSpec(draw(st.sampled_from(SMOOTH))))
    specs.append(conv(filters, 3, stride, use_bias=draw(st.booleans())))
    return specs


def composite(draw: DrawFn, channels: int, depth: int) -> tuple[LayerSpec, int]:
    """A composite that keeps height and width, and the channels that it gives."""
    kind = draw(st.sampled_from(["sequential", "residual", "concat"]))
    options, given = DRAW[kind](draw, channels, depth, 1)
    return LayerSpec(kind, options=options), given


def sequential(draw: DrawFn, channels: int, depth: int, stride: int) -> tuple[Options, int]:
    filters = draw(st.integers(1, 3))
    return {"layers": steps(draw, channels, depth, (filters, stride))}, filters


def residual(draw: DrawFn, channels: int, depth: int, stride: int) -> tuple[Options, int]:
    shortcut = draw(st.sampled_from(["identity", "padding", "projection", "layers"]))
    if shortcut == "identity":
        return {"body": steps(draw, channels, depth, (channels, 1))}, channels
    filters = channels + draw(st.integers(0, 2))
    body = steps(draw, channels, depth, (filters, stride))
    if shortcut == "layers":
        way = steps(draw, channels, 0, (filters, stride))
        return {"body": body, "shortcut": way}, filters
    return {"body": body, "shortcut": shortcut}, filters


def concat(draw: DrawFn, channels: int, depth: int, stride: int) -> tuple[Options, int]:
    widths = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    branches = [steps(draw, channels, depth, (width, stride)) for width in widths]
    if stride == 1 and draw(st.booleans()):
        return {"branches": [*branches, []]}, sum(widths) + channels
    return {"branches": branches}, sum(widths)


DRAW = {"sequential": sequential, "residual": residual, "concat": concat}


def drawn(kind: str, draw: DrawFn) -> tuple[Shape, Options]:
    """A picture and the options of a composite for it."""
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)))
    options, _ = DRAW[kind](draw, shape[0], 1, draw(st.integers(1, 3)))
    return shape, options
