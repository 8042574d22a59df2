"""Whole trainings drawn by hypothesis: pictures, layers, blocks, loss, optimizer, batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from dnnstack.common.errors import ShapeError
from dnnstack.common.targets import Kind
from dnnstack.datasets import DatasetInfo, ImageSet
from dnnstack.graph.graph import Shape
from dnnstack.layers.build import LAYERS, LayerSpec, build_layers
from dnnstack.layers.losses import LOSSES
from dnnstack.optimizers import RULES
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from .declared import drawn_options
from .formulas import drawn_targets

Layer = str | dict[str, Any]
# Numbers of a picture, or of its features, that a layer may make of it.
LARGEST = 4000
ACTIVATIONS = (
    *("relu", "leaky_relu", "sigmoid", "tanh", "elu", "softplus", "silu", "gelu", "scaled_tanh"),
    {"gelu": {"approximate": True}},
    {"leaky_relu": {"negative_slope": 0.3}},
    {"elu": {"alpha": 0.5}},
)
# Drawn here by hand, with options for which their declarations are too wide.
KNOWN = {
    *("batch_norm", "dropout", "scale", "dense", "conv2d", "max_pool2d", "avg_pool2d", "pad2d"),
    *("conv1d", "max_pool1d", "avg_pool1d", "global_avg_pool1d"),
    *("lrn", "lcn", "scaled_subsampling", "global_avg_pool2d", "flatten", "sequential"),
    *("residual", "concat", "softmax", "rbf", "heaviside"),
    *(name for name in ACTIVATIONS if isinstance(name, str)),
}
FURTHER = sorted(set(LAYERS) - KNOWN)
# Layers that compute an activation behind them in the same call; one is drawn there often, for
# layers drawn one by one rarely come in this order.
FUSED = {"conv1d", "conv2d", "dense", "batch_norm", "residual"}


@dataclass(frozen=True)
class Training:
    """A drawn config, as plain data, with the pictures that it is for; ``steps`` to go."""

    config: dict[str, Any]
    info: DatasetInfo
    data: ImageSet
    steps: int
    seed: int

    def __repr__(self) -> str:
        shown = f"{self.config}, {self.data.images.shape}, steps={self.steps}, seed={self.seed}"
        return f"Training({shown})"


def _pair(draw: DrawFn, low: int, high: int) -> int | list[int]:
    one = st.integers(low, high)
    return draw(st.one_of(one, st.lists(one, min_size=2, max_size=2)))


def _one(draw: DrawFn, low: int, high: int) -> int:
    return draw(st.integers(low, high))


def _padding(draw: DrawFn, most: int, size: Callable[..., Any]) -> Any:
    return draw(st.sampled_from(["same", "valid"])) if draw(st.booleans()) else size(draw, 0, most)


def _conv(draw: DrawFn, kind: str, shape: Shape) -> Layer:
    channels, size = shape[0], _one if kind.endswith("1d") else _pair
    groups = draw(st.sampled_from([g for g in (1, 1, 2, 3, channels) if channels % g == 0]))
    options = {
        "filters": groups * draw(st.sampled_from([1, 1, 2, 3, 4, 8, 16, 17])),
        "kernel_size": size(draw, 1, 4),
        # Wider than some pictures are: for these the libraries have kernels of their own.
        "stride": size(draw, 1, 4),
        "padding": _padding(draw, 2, size),
        "dilation": size(draw, 1, 2),
        "groups": groups,
        "use_bias": draw(st.booleans()),
    }
    if groups == 1:
        way = draw(st.sampled_from(["auto", "auto", "im2col", "connections"]))
        if way == "connections":
            seen = st.lists(st.integers(0, channels - 1), min_size=1, unique=True)
            count = options["filters"]
            options["connections"] = draw(st.lists(seen, min_size=count, max_size=count))
        else:
            options["algorithm"] = way
    return {kind: options}


def _pool(draw: DrawFn, kind: str) -> Layer:
    size = _one if kind.endswith("1d") else _pair
    options = {"pool_size": size(draw, 1, 4), "padding": _padding(draw, 1, size)}
    options["ceil_mode"] = draw(st.booleans())
    if draw(st.booleans()):
        options["stride"] = size(draw, 1, 3)
    return {kind: options}


def _batch_norm(draw: DrawFn) -> Layer:
    return {
        "batch_norm": {
            "momentum": draw(st.sampled_from([0.1, 0.6, 1.0])),
            "eps": draw(st.sampled_from([1e-3, 0.1])),
            "scale": draw(st.booleans()),
            "center": draw(st.booleans()),
        }
    }


def _local_norm(draw: DrawFn, kind: str) -> Layer:
    options = {"size": draw(st.sampled_from([1, 3, 5])), "alpha": draw(st.sampled_from([0.1, 1.0]))}
    return {kind: {**options, "k": draw(st.sampled_from([1.0, 2.0]))}}


def _block(draw: DrawFn, shape: Shape, depth: int) -> Layer:
    kind = draw(st.sampled_from(["sequential", "residual", "residual", "concat"]))
    if kind == "sequential":
        return {"sequential": {"layers": _some(draw, shape, depth - 1)}}
    if kind == "concat":
        branches = [_some(draw, shape, depth - 1) for _ in range(draw(st.integers(1, 2)))]
        return {"concat": {"branches": [*branches, _same_size(draw, shape)]}}
    body = _some(draw, shape, depth - 1)
    shortcut = draw(st.sampled_from(["identity", "projection", "padding", "layers"]))
    if shortcut == "identity" or draw(st.booleans()):
        body = [*_same_size(draw, shape), *body]
    return {
        "residual": {
            "body": body,
            "shortcut": _some(draw, shape, 0) if shortcut == "layers" else shortcut,
        }
    }


def _same_size(draw: DrawFn, shape: Shape) -> list[Layer]:
    """Layers that keep the shape, or none."""
    if len(shape) == 1:
        return draw(st.sampled_from([[], ["tanh"], [{"dense": {"units": shape[0]}}]]))
    conv = {"filters": shape[0], "kernel_size": 3, "padding": "same"}
    # A border that takes the place of what a window has cut off.
    narrow = [{"conv2d": {"filters": shape[0], "kernel_size": 3}}, {"pad2d": {"padding": 1}}]
    return draw(st.sampled_from([[], ["relu"], [{"conv2d": conv}], narrow]))


def _layer(draw: DrawFn, shape: Shape, depth: int) -> Layer:
    kinds = ["activation", "activation", "batch_norm", "dropout", "scale", *FURTHER]
    if len(shape) == 1:
        kind = draw(st.sampled_from([*kinds, "dense", "dense"]))
    else:
        pictures = ["conv2d", "conv2d", "conv2d", "max_pool2d", "avg_pool2d", "pad2d", "lrn", "lcn"]
        more = ["scaled_subsampling", "global_avg_pool2d", "flatten"]
        if shape[1] == 1:
            more += ["conv1d", "conv1d", "max_pool1d", "avg_pool1d", "global_avg_pool1d"]
        kind = draw(st.sampled_from([*kinds, *pictures, *more, *["block"] * 4 * depth]))
    if kind == "activation":
        return draw(st.sampled_from(ACTIVATIONS))
    if kind in ("conv1d", "conv2d"):
        return _conv(draw, kind, shape)
    if kind in ("max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d"):
        return _pool(draw, kind)
    if kind == "batch_norm":
        return _batch_norm(draw)
    if kind in ("lrn", "lcn"):
        return _local_norm(draw, kind)
    if kind == "block":
        return _block(draw, shape, depth)
    if kind in FURTHER:
        return {kind: drawn_options(LAYERS[kind], draw)}
    return (
        kind
        if kind == "flatten" or kind.startswith("global_avg_pool")
        else {kind: _options(draw, kind)}
    )


def _options(draw: DrawFn, kind: str) -> dict[str, Any]:
    if kind == "dropout":
        return {"rate": draw(st.sampled_from([0.0, 0.3]))}
    if kind == "scale":
        return {"factor": draw(st.sampled_from([-1.5, 0.5]))}
    if kind == "dense":
        return {"units": draw(st.sampled_from([1, 3, 8, 16, 33])), "use_bias": draw(st.booleans())}
    if kind == "pad2d":
        padding = draw(st.sampled_from([1, 2, [1, 2]]))
        return {"padding": padding, "value": draw(st.sampled_from([0.0, 1.0, -0.5]))}
    pooling = draw(st.sampled_from(["sum", "average"]))
    return {"pool_size": draw(st.integers(1, 2)), "pooling": pooling}


def _some(draw: DrawFn, shape: Shape, depth: int, most: int = 3) -> list[Layer]:
    """One layer or a few that fit each other; drawn ones that do not are left out."""
    found: list[Layer] = []
    for _ in range(draw(st.integers(1, most))):
        drawn = _layer(draw, shape, max(depth, 0))
        try:
            output = shape_after(drawn, shape)
        except ShapeError:
            continue
        if prod(output) <= LARGEST:
            found.append(drawn)
            shape = output
            if isinstance(drawn, dict) and FUSED & drawn.keys() and draw(st.booleans()):
                found.append(draw(st.sampled_from(ACTIVATIONS)))
    return found or ["tanh"]


def shape_after(layer: Layer, shape: Shape) -> Shape:
    """The output shape of a layer. Raises ShapeError where it does not fit."""
    return build_layers([_spec(layer)], shape)[-1].output_shape


def _spec(layer: Layer) -> LayerSpec:
    ((kind, options),) = {layer: {}}.items() if isinstance(layer, str) else layer.items()
    return LayerSpec(kind, options={key: _option(value) for key, value in options.items()})


def _option(value: Any) -> Any:
    """Layers as specifications, other lists as the tuples that the config's models make."""
    if isinstance(value, list):
        layers = all(isinstance(item, dict | str) for item in value)
        return [_spec(item) for item in value] if layers else tuple(map(_option, value))
    return value


# ---------------------------------------------------------------- what trains them

# Of every loss the layers that end the network for so many classes.
ENDS: dict[str, Any] = {
    "cross_entropy": lambda k: [{"dense": {"units": k}}, "softmax"],
    "mse": lambda k: [{"dense": {"units": k}}],
    "hinge": lambda k: [{"dense": {"units": k}}],
    "one_minus_p": lambda k: [{"dense": {"units": k}}, "softmax"],
    "squared_distance": lambda k: [{"dense": {"units": k}}, "softmax"],
    "rbf_map": lambda k: [{"dense": {"units": 84}}, "scaled_tanh", "rbf"],
}


def _loss(draw: DrawFn) -> dict[str, Any]:
    further = sorted(set(LOSSES) - set(ENDS) - {"perceptron", "distill"})
    kind = draw(st.sampled_from(["cross_entropy"] * 4 + list(ENDS)[1:] + further))
    loss = {"type": kind, "reduction": draw(st.sampled_from(["mean", "mean", "sum"]))}
    if draw(st.integers(0, 3)) == 0:
        loss["class_weights"] = "balanced"
    if kind in further:
        return {**loss, **drawn_options(LOSSES[kind], draw)}
    if loss["type"] == "cross_entropy":
        loss["label_smoothing"] = draw(st.sampled_from([0.0, 0.1]))
    return loss


def _rule(draw: DrawFn, kind: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"type": kind, "weight_decay": draw(st.sampled_from([0.0, 0.05]))}
    if kind == "sgd":
        momentum = draw(st.sampled_from([0.0, 0.9]))
        nesterov = draw(st.booleans()) if momentum else False
        return {**rule, "lr": 0.02, "momentum": momentum, "nesterov": nesterov}
    if kind == "muon":
        # Few iterations: a direction that the gradient hardly has is drawn from its roundings.
        options = {"iterations": draw(st.integers(1, 2)), "rescale": draw(st.booleans())}
        return {**rule, "lr": 0.02, "rest": _rule(draw, "sgd"), **options}
    # A denominator that is larger than roundings of a gradient that is zero.
    rule |= {"lr": 0.01, "eps": 1e-2}
    if kind in ("adam", "adamw"):
        return {**rule, "betas": [0.8, 0.95]}
    return {**drawn_options(RULES[kind], draw), **rule}


def _optimizer(draw: DrawFn, kinds: list[Any]) -> dict[str, Any]:
    # The sign of what should be 0 is drawn from roundings.
    chosen = _rule(draw, draw(st.sampled_from(["sgd", "sgd", *(r for r in RULES if r != "lion")])))
    if draw(st.integers(0, 3)) == 0:
        chosen["clip_norm"] = draw(st.sampled_from([0.1, 1.0]))
    if draw(st.integers(0, 3)) == 0:
        chosen["ema"] = {"decay": 0.7}
    elif draw(st.integers(0, 5)) == 0:
        chosen["swa"] = {"start_step": draw(st.integers(1, 3)), "every_steps": 2}
    if draw(st.integers(0, 3)) == 0:
        chosen["lookahead"] = {"every": 2, "decay": 0.6}
    if draw(st.integers(0, 2)) == 0:
        ways = ({"lr_factor": 2.0, "weight_decay": 0.0}, {"frozen": True}, {"lr_factor": 0.5})
        phases = ({"freeze_until_epoch": 1}, {"freeze_after_epoch": 1})
        chosen["groups"] = [
            {"kind": draw(st.sampled_from(kinds)), **draw(st.sampled_from([*ways, *phases]))}
        ]
    return chosen


AUGMENTATIONS: tuple[Any, ...] = (
    *("random_flip", "alternating_flip", "recolour"),
    *({"random_crop": {"padding": 1}}, {"random_crop": {"padding": 1, "mode": "reflect"}}),
    {"cutout": {"size": 1}},
)


@st.composite
def trainings(draw: DrawFn) -> Training:
    """A training of a few steps, with a partial last batch of validation."""
    shape = (
        draw(st.sampled_from([1, 1, 2, 3, 3, 4, 8, 16, 17])),
        # Often a sequence.
        draw(st.sampled_from([1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11])),
        draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 11])),
    )
    loss = _loss(draw)
    kind = draw(st.sampled_from(LOSSES[loss["type"]].kinds))
    if kind == "numbers" or (kind == "yes_no" and not LOSSES[loss["type"]].sigmoid):
        loss.pop("class_weights", None)
    classes = 10 if loss["type"] == "rbf_map" else draw(st.integers(2, 6))
    layers = _some(draw, shape, 2, 6)
    output = shape
    for layer in layers:
        output = shape_after(layer, output)
    ends = ENDS.get(loss["type"], ENDS["mse"])(classes)
    layers += [*(["flatten"] if len(output) == 3 else []), *ends]

    parts = draw(st.sampled_from([1, 1, 1, 2]))
    batch = parts * draw(st.integers(2, 5))
    per_epoch, held = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**32 - 1))
    kinds = ["bias", "kernel", *([["scale", "shift"]] if _normalised(layers) else [])]
    # A line of pixels has nothing to be reflected or moved.
    line = min(shape[1:]) == 1
    augmentations = AUGMENTATIONS[:2] if line else AUGMENTATIONS
    views = ["mirror"] if line else ["mirror", "mirror+translate"]
    # Rows and sequences are not augmented.
    most = 2 if shape[1] > 1 else 0
    optimizer = _optimizer(draw, kinds)
    tta = draw(st.sampled_from(["none"] * 3 + views * (most > 0)))
    some = {"tta_share": 0.4} if tta != "none" and kind == "class" and seed >> 11 & 1 else {}
    augment = draw(st.lists(st.sampled_from(augmentations), max_size=most))
    floats = not augment and seed >> 13 & 1 == 1
    config = {
        "name": "drawn",
        "seed": seed,
        "data": {
            "dataset": "strokes",
            "batch_size": batch,
            "evaluation_batch_size": draw(st.integers(1, 6)),
            "validation": held,
            "normalize": {"mean": 0.4, "std": 0.3},
            "augment": augment,
            "balance": kind == "class" and "class_weights" not in loss and seed >> 9 & 3 == 0,
        },
        "layers": layers,
        "loss": loss,
        **_freeze(seed, layers, optimizer),
        **_compression(seed, optimizer),
        "optimizer": optimizer,
        "train": {"max_steps": 6, "accumulate": parts, "recompute": seed >> 15 & 3 == 0},
        "evaluate": {"tta": tta, **some},
        "run": {"fusion": draw(st.sampled_from([True, True, True, False])), "tune": False},
    }
    count = batch * per_epoch + held + draw(st.integers(0, batch - 1))
    data = pictures(shape, classes, count, seed, kind, floats)
    return Training(config, *data, draw(st.integers(2, 4)), seed)


def _compression(seed: int, optimizer: dict[str, Any]) -> dict[str, Any]:
    """Weights that are pruned or that share values, by the seed; averages are never shared."""
    ways: list[dict[str, Any]] = [
        {"prune": {"keep": {"*": 0.6}}},
        {"prune": {"sensitivity": {"*": 0.7}}},
        {"share": {"bits": {"*": 2}, "start": "density"}},
        {"prune": {"keep": {"*": 0.6}}, "share": {"bits": {"*": 3}}},
    ]
    averaged = bool({"ema", "lookahead", "swa"} & optimizer.keys())
    chosen = ways[seed >> 14 & (1 if averaged else 3)]
    return chosen if seed >> 11 & 7 == 0 else {}


def _freeze(seed: int, layers: list[Layer], optimizer: dict[str, Any]) -> dict[str, Any]:
    """Layers that stay as they are, by the seed; none where a group could be left with nothing."""
    text = str(layers)
    kinds = [kind for kind in ("conv2d", "batch_norm", "dense") if f"'{kind}'" in text]
    chosen = [kind for place, kind in enumerate(kinds) if seed >> place + 2 & 1] or kinds[:1]
    if "groups" in optimizer or seed % 4 != 3:
        return {}
    return {"freeze": [f"*{kind}_*" for kind in chosen]}


def _normalised(layers: list[Layer]) -> bool:
    """Whether a batch norm has something to train."""
    text = str(layers)
    return "'batch_norm'" in text and ("'scale': True" in text or "'center': True" in text)


def pictures(
    shape: Shape, classes: int, count: int, seed: int, kind: Kind = "class", floats: bool = False
) -> tuple[DatasetInfo, ImageSet]:
    """Random pixels: a window of equal ones would let roundings decide which is the largest."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, *shape), np.uint8)
    if floats:
        images = rng.random((count, *shape), np.float32)
    labels = drawn_targets(kind, (count, classes), rng)
    names = tuple(str(label) for label in range(classes))
    facts = ("drawn", (shape[0], shape[1], shape[2]), names, count, None)
    info = DatasetInfo(*facts, floats=floats, kind=kind)
    return info, ImageSet("drawn/train", images, labels, names, kind=kind)
