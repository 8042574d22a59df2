"""What computes in PyTorch what a layer does here: calls that make modules, and their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph.geometry import Pair, Window
from ..layers.layer import Layer

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Modules = list[tuple[str, Arrays]]
"""Calls, each with the state of what it makes."""


def call(name: str, *given: object, **options: object) -> str:
    """The text of a call; None is what PyTorch does anyway."""
    texts = [str(each) for each in given]
    texts += [f"{key}={value}" for key, value in options.items() if value is not None]
    return f"{name}({', '.join(texts)})"


def formula(of_x: str) -> str:
    return call("Function", f"lambda x: {of_x}")


def _other(value: Any, usual: object) -> Any:
    return None if value == usual else value


def _size(sides: Pair) -> int | Pair:
    return sides[0] if sides[0] == sides[1] else sides


def _window(window: Window) -> dict[str, Any]:
    return {
        "stride": _other(_size(window.stride), 1),
        "padding": _other(_size(window.padding[::2]), 0),
        "dilation": _other(_size(window.dilation), 1),
    }


def _ends(window: Window) -> Pair | tuple[int, ...]:
    """As PyTorch orders them: left, right, top, bottom."""
    return (*window.padding[2:], *window.padding[:2])


def _conv(layer: Any, arrays: Arrays) -> Modules:
    window = layer.window
    before: Modules = []
    if window.is_lopsided:
        before = [(call("nn.ZeroPad2d", _ends(window)), {})]
        window = replace(window, padding=(0, 0, 0, 0))
    state = _own(layer, arrays)
    kind = "nn.Conv2d"
    if layer.pairs:
        kind, seen = "ConnectedConv2d", np.zeros(layer.filters_shape[:2], np.float32)
        seen[tuple(zip(*layer.pairs, strict=True))] = 1
        state |= {"weight": arrays[f"{layer.name}.filters"], "seen": seen}
    text = call(
        kind,
        layer.input_shape[0],
        layer.filters,
        _size(window.kernel),
        **_window(window),
        groups=_other(layer.groups, 1),
        bias=_other(layer.use_bias, True),
    )
    return [*before, (text, state)]


def _dense(layer: Any, arrays: Arrays) -> Modules:
    sides = layer.input_shape[0], layer.units
    return [(call("nn.Linear", *sides, bias=_other(layer.use_bias, True)), _own(layer, arrays))]


def _batch_norm(layer: Any, arrays: Arrays) -> Modules:
    text = call(
        f"nn.BatchNorm{'2d' if len(layer.input_shape) == 3 else '1d'}",
        layer.input_shape[0],
        eps=_other(layer.eps, 1e-5),
        momentum=_other(layer.momentum, 0.1),
    )
    # PyTorch has both or none of factors and offsets.
    ones = np.ones(layer.input_shape[0], np.float32)
    state = {"weight": ones, "bias": 0 * ones, **_own(layer, arrays)}
    return [(text, {**state, "num_batches_tracked": np.array(0, np.int64)})]


def _pool(layer: Any, arrays: Arrays) -> Modules:
    window, is_max = layer.window, layer.pool == "max"
    kernel, step = _size(window.kernel), _other(_size(window.stride), _size(window.kernel))
    ceil = True if layer.ceil_mode and layer.padding != "same" else None
    if not window.is_lopsided or ceil:
        options = {"stride": step, "padding": _window(window)["padding"], "ceil_mode": ceil}
        inside = {} if is_max or not options["padding"] else {"count_include_pad": False}
        kind = "nn.MaxPool2d" if is_max else "nn.AvgPool2d"
        return [(call(kind, kernel, **options, **inside), {})]
    if not is_max:
        # The mean over the pixels inside the picture.
        pads, given = _ends(window), f"{kernel}, {_size(window.stride)}"
        ones = f"F.pad(torch.ones_like(x), {pads})"
        mean = f"F.avg_pool2d(F.pad(x, {pads}), {given}) / F.avg_pool2d({ones}, {given})"
        return [(formula(mean), {})]
    pad = call("nn.ConstantPad2d", _ends(window), 'float("-inf")')
    return [(pad, {}), (call("nn.MaxPool2d", kernel, stride=step), {})]


def _border(layer: Any, arrays: Arrays) -> Modules:
    (rows, _, columns, _), value = layer.ends, [repr(layer.value)] * bool(layer.value)
    ends = rows if rows == columns else (columns, columns, rows, rows)
    kind = "nn.ConstantPad2d" if value else "nn.ZeroPad2d"
    return [(call(kind, ends, *value), {})]


def _subsampling(layer: Any, arrays: Arrays) -> Modules:
    window = layer.window
    sizes = _size(window.kernel), _size(window.stride)
    state = {key: array[:, None, None] for key, array in _own(layer, arrays).items()}
    return [(call("Subsampling", layer.input_shape[0], *sizes, layer.factor), state)]


def _prelu(layer: Any, arrays: Arrays) -> Modules:
    return [(call("nn.PReLU", layer.input_shape[0]), {"weight": arrays[layer.slope.name]})]


def _rbf(layer: Any, arrays: Arrays) -> Modules:
    centres = np.array(layer.centres, np.float32)
    return [(call("Rbf", *centres.shape), {"centres": centres})]


def _padding(layer: Any, arrays: Arrays) -> Modules:
    more = layer.output_shape[0] - layer.input_shape[0]
    picked = "x[:, :, ::{}, ::{}]".format(*layer.window.stride)
    return [(formula(f"F.pad({picked}, (0, 0, 0, 0, 0, {more}))"), {})]


def _plain(*texts: str) -> Callable[[Any, Arrays], Modules]:
    """Modules without arrays; {0} is the layer."""
    return lambda layer, arrays: [(text.format(layer), {}) for text in texts]


def _own(layer: Layer, arrays: Arrays) -> dict[str, Array]:
    """The arrays of a layer by the last part of their names."""
    tensors = [p.tensor for p in layer.parameters()]
    tensors += [statistic.tensor for statistic in layer.running_statistics()]
    return {t.name.rpartition(".")[2]: arrays[t.name] for t in tensors}


_MEAN = _plain("nn.AdaptiveAvgPool2d(1)", "nn.Flatten()")
MODULES: dict[str, Callable[[Any, Arrays], Modules]] = {
    "avg_pool1d": _pool,
    "avg_pool2d": _pool,
    "batch_norm": _batch_norm,
    "conv1d": _conv,
    "conv2d": _conv,
    "dense": _dense,
    "dropout": _plain("nn.Dropout({0.rate})"),
    "elu": _plain("nn.ELU({0.alpha})"),
    "flatten": _plain("nn.Flatten()"),
    "gelu": lambda layer, arrays: [(call("nn.GELU", *['"tanh"'] * layer.approximate), {})],
    "global_avg_pool1d": _MEAN,
    "global_avg_pool2d": _MEAN,
    "heaviside": _plain(formula("(x > 0).float()")),
    "lcn": _plain(
        formula(
            "x / ({0.k} + {0.alpha} * F.avg_pool2d(x * x, {0.size}, 1, {0.size} // 2)) ** {0.beta}"
        )
    ),
    "leaky_relu": _plain("nn.LeakyReLU({0.negative_slope})"),
    "lrn": _plain("nn.LocalResponseNorm({0.size}, {0.alpha}, {0.beta}, {0.k})"),
    "max_pool1d": _pool,
    "max_pool2d": _pool,
    "pad2d": _border,
    "padding": _padding,
    "prelu": _prelu,
    "rbf": _rbf,
    "relu": _plain("nn.ReLU()"),
    "scale": _plain(formula("{0.factor} * x")),
    "scaled_subsampling": _subsampling,
    "scaled_tanh": _plain(formula("1.7159 * torch.tanh(2 / 3 * x)")),
    "sigmoid": _plain("nn.Sigmoid()"),
    "silu": _plain("nn.SiLU()"),
    "softmax": _plain("nn.Softmax(1)"),
    "softplus": _plain("nn.Softplus()"),
    "tanh": _plain("nn.Tanh()"),
}
"""How each kind of layer is written."""
