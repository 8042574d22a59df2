"""Layers and small nets drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dnnstack.common.errors import ShapeError
from dnnstack.layers.build import LAYERS, LayerSpec, build_layers
from dnnstack.layers.layer import Layer
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from .declared import drawn_options
from .nets_composite import composite, drawn

Options = dict[str, Any]
Sizes = Callable[[int, int], SearchStrategy[Any]]


def sizes(low: int, high: int) -> SearchStrategy[int | tuple[int, int]]:
    """One number for both axes, or one for each."""
    one = st.integers(low, high)
    return st.one_of(one, st.tuples(one, one))


pictures = st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(1, 8))
sequences = st.tuples(st.integers(1, 4), st.just(1), st.integers(1, 12))


@st.composite
def conv_options(draw: DrawFn, channels: int, sizes: Sizes = sizes) -> Options:
    groups = draw(st.sampled_from([g for g in (1, 2, 3, 4) if channels % g == 0]))
    filters = groups * draw(st.integers(1, 3))
    some = st.sets(st.integers(0, channels - 1), min_size=1).map(tuple)
    table = st.lists(some, min_size=filters, max_size=filters)
    return {
        "filters": filters,
        "groups": groups,
        "algorithm": draw(st.sampled_from(["auto", "im2col"])) if groups == 1 else "auto",
        "connections": draw(st.none() | table) if groups == 1 else None,
        "kernel_size": draw(sizes(1, 4)),
        "stride": draw(sizes(1, 3)),
        "padding": draw(st.one_of(st.sampled_from(["same", "valid"]), sizes(0, 2))),
        "dilation": draw(sizes(1, 2)),
        "use_bias": draw(st.booleans()),
    }


@st.composite
def pool_options(draw: DrawFn, sizes: Sizes = sizes) -> Options:
    return {
        "pool_size": draw(sizes(1, 4)),
        "stride": draw(st.one_of(st.none(), sizes(1, 3))),
        "padding": draw(st.one_of(st.sampled_from(["same", "valid"]), sizes(0, 2))),
        "ceil_mode": draw(st.booleans()),
    }


def _flat(draw: DrawFn) -> tuple[int, ...]:
    return (draw(st.integers(1, 9)),)


def _any_shape(draw: DrawFn) -> tuple[int, ...]:
    return draw(st.one_of(st.tuples(st.integers(1, 9)), pictures))


def _conv(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    shape = draw(pictures)
    return shape, draw(conv_options(shape[0]))


def _pool(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    return draw(pictures), draw(pool_options())


def _conv1d(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    shape = draw(sequences)
    return shape, draw(conv_options(shape[0], st.integers))


def _pool1d(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    return draw(sequences), draw(pool_options(st.integers))


def _plain(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    return _any_shape(draw), {}


def _batch_norm(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    return _any_shape(draw), {
        "scale": draw(st.booleans()),
        "center": draw(st.booleans()),
        "momentum": draw(st.sampled_from([0.1, 0.6, 1.0])),
        # Two values a channel are put at almost -1 and 1 by a small eps, where nothing slopes.
        "eps": draw(st.sampled_from([0.1, 1.0])),
    }


def _sample_norm(kind: str) -> Callable[[DrawFn], tuple[tuple[int, ...], Options]]:
    def draw_one(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
        shape, options = _any_shape(draw), {"eps": draw(st.sampled_from([0.1, 1.0]))}
        if kind == "group_norm":
            options["groups"] = draw(st.sampled_from([g for g in (1, 2, 3) if shape[0] % g == 0]))
        return shape, options

    return draw_one


def _local_norm(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    return draw(pictures), {
        "size": draw(st.sampled_from([1, 3, 5, 15])),
        "alpha": draw(st.floats(0.0, 2.0)),
        "beta": draw(st.floats(0.01, 2.0)),
        "k": draw(st.floats(0.5, 2.0)),
    }


def _patches(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    (channels, *counts), size = draw(pictures), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    shape = channels, *(min(count, 3) * side for count, side in zip(counts, size, strict=True))
    return shape, {"units": draw(st.integers(1, 5)), "patch_size": size}


def _attention(draw: DrawFn) -> tuple[tuple[int, ...], Options]:
    heads, size, tokens = (draw(st.integers(1, most)) for most in (3, 4, 6))
    options = {"heads": heads, "use_bias": draw(st.booleans())}
    return (heads * size, 1, tokens), options


def _declared(kind: str) -> Callable[[DrawFn], tuple[tuple[int, ...], Options]]:
    return lambda draw: (_any_shape(draw), drawn_options(LAYERS[kind], draw))


# How to draw (input shape, options), where the declared options alone do not tell.
_SPECIAL: dict[str, Callable[[DrawFn], tuple[tuple[int, ...], Options]]] = {
    "dense": lambda draw: (
        _flat(draw),
        {"units": draw(st.integers(1, 9)), "use_bias": draw(st.booleans())},
    ),
    "conv2d": _conv,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "global_avg_pool2d": lambda draw: (draw(pictures), {}),
    "conv1d": _conv1d,
    "max_pool1d": _pool1d,
    "avg_pool1d": _pool1d,
    "global_avg_pool1d": lambda draw: (draw(sequences), {}),
    "patch_embedding": _patches,
    "multi_head_attention": _attention,
    "flatten": lambda draw: (draw(pictures), {}),
    "scale": lambda draw: (_any_shape(draw), {"factor": draw(st.floats(-2.0, 2.0))}),
    "softmax": lambda draw: (_flat(draw), {}),
    "batch_norm": _batch_norm,
    "group_norm": _sample_norm("group_norm"),
    "layer_norm": _sample_norm("layer_norm"),
    "lrn": _local_norm,
    "lcn": _local_norm,
    "dropout": lambda draw: (_any_shape(draw), {"rate": draw(st.sampled_from([0.0, 0.3, 0.9]))}),
    "stochastic_depth": lambda draw: (
        _any_shape(draw),
        {"rate": draw(st.sampled_from([0.0, 0.3, 0.9]))},
    ),
    "relu": _plain,
    "leaky_relu": lambda draw: (_any_shape(draw), {"negative_slope": draw(st.floats(0.0, 1.0))}),
    "sigmoid": _plain,
    "tanh": _plain,
    "elu": lambda draw: (_any_shape(draw), {"alpha": draw(st.floats(0.0, 2.0))}),
    "softplus": _plain,
    "silu": _plain,
    "gelu": lambda draw: (_any_shape(draw), {"approximate": draw(st.booleans())}),
    "scaled_tanh": _plain,
    "pad2d": lambda draw: (
        draw(pictures),
        {"padding": draw(sizes(0, 2)), "value": draw(st.floats(-1.0, 1.0))},
    ),
    "scaled_subsampling": lambda draw: (
        draw(pictures),
        {
            "pool_size": draw(sizes(1, 3)),
            "stride": draw(st.none() | sizes(1, 3)),
            "pooling": draw(st.sampled_from(["sum", "average"])),
        },
    ),
    "rbf": lambda draw: ((84,), {}),
    "sequential": lambda draw: drawn("sequential", draw),
    "residual": lambda draw: drawn("residual", draw),
    "concat": lambda draw: drawn("concat", draw),
}
# Every layer that a config can name but the threshold, which has no gradient: what it learns is
# tested with the perceptron.
DRAWN = {kind: _declared(kind) for kind in LAYERS if kind != "heaviside"} | _SPECIAL


@st.composite
def layers(draw: DrawFn, kind: str) -> Layer:
    """A layer of this kind with geometry that fits."""
    shape, options = DRAWN[kind](draw)
    try:
        return build_layers([LayerSpec(kind, options=options)], shape)[0]
    except ShapeError:
        assume(False)
        raise


@st.composite
def stacks(draw: DrawFn, classes: int = 4) -> list[LayerSpec]:
    """A classifier of pictures of 2 x 9 x 9: convolutions, pools, activations, dense layers.

    Only layers with the same derivative on both sides of every drawn value are smooth; relu and
    max-pool are not, so compare these nets with themselves, not with differences.
    """
    activation = st.sampled_from(
        ["relu", "leaky_relu", "sigmoid", "tanh", "elu", "softplus", "silu", "gelu", "scaled_tanh"]
    )
    specs: list[LayerSpec] = []
    for _ in range(draw(st.integers(0, 2))):
        channels = draw(st.integers(1, 4))
        specs.append(
            LayerSpec(
                "conv2d",
                options={
                    "filters": channels,
                    "kernel_size": draw(st.integers(1, 3)),
                    "padding": "same",
                    "use_bias": draw(st.booleans()),
                },
            )
        )
        if draw(st.booleans()):
            specs.append(LayerSpec("batch_norm", options={"eps": 0.1}))
        if draw(st.booleans()):
            specs.append(LayerSpec(draw(activation)))
        if draw(st.booleans()):
            specs.append(composite(draw, channels, 1)[0])
            specs.append(LayerSpec(draw(activation)))
        if draw(st.booleans()):
            kind = draw(st.sampled_from(["max_pool2d", "avg_pool2d"]))
            specs.append(LayerSpec(kind, options={"pool_size": 3, "stride": draw(sizes(1, 2))}))
            if draw(st.booleans()):
                specs.append(LayerSpec(draw(activation)))
    specs.append(LayerSpec(draw(st.sampled_from(["flatten", "global_avg_pool2d"]))))
    if draw(st.booleans()):
        units = draw(st.integers(1, 6))
        specs.append(LayerSpec("dense", options={"units": units, "use_bias": draw(st.booleans())}))
        if draw(st.booleans()):
            specs.append(LayerSpec("dropout", options={"rate": 0.25}))
        specs.append(LayerSpec(draw(activation)))
    specs.append(LayerSpec("dense", options={"units": classes}))
    if draw(st.booleans()):
        specs.append(LayerSpec("softmax"))
    return specs
