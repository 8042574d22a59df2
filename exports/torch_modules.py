"""What computes in PyTorch what a layer does here: the calls that make it, and its arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.records import dataclass
from ..graph.geometry import Pair, Window
from ..layers.layer import Layer

Array = NDArray[Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Module:
    """A module of PyTorch: the call that makes it, and its state by name.

    ``name``: what it should be called, by the config if ``named``.
    """

    name: str
    text: str
    state: Arrays
    named: bool = False

    def of(self, layer: Layer) -> Module:
        """With the name of its layer, where the config gives one."""
        name = layer.name.rpartition(".")[2].replace("-", "_").strip("_")
        named = not re.fullmatch(rf"{layer.kind}_\d+", name)
        name = name if name.isidentifier() else f"layer{name}"
        return replace(self, name=name, named=True) if named else self


def number(role: str, value: int) -> str:
    """A number that may become an argument, called so, of a class that several blocks share."""
    return f"\1{role}:{value}\2"


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


def _conv(layer: Any, arrays: Arrays) -> list[Module]:
    window, before = layer.window, []
    if window.is_lopsided:
        before = [Module("pad", call("nn.ZeroPad2d", _ends(window)), {})]
        window = replace(window, padding=(0, 0, 0, 0))
    state = _own(layer, arrays)
    kind = "nn.Conv2d"
    if layer.pairs:
        kind, seen = "ConnectedConv2d", np.zeros(layer.filters_shape[:2], np.float32)
        seen[tuple(zip(*layer.pairs, strict=True))] = 1
        state |= {"weight": arrays[f"{layer.name}.filters"], "seen": seen}
    text = call(
        kind,
        number("inputs", layer.input_shape[0]),
        number("outputs", layer.filters),
        _size(window.kernel),
        **_window(window),
        groups=None if layer.groups == 1 else number("groups", layer.groups),
        bias=_other(layer.use_bias, True),
    )
    return [*before, Module("conv", text, state)]


def _dense(layer: Any, arrays: Arrays) -> list[Module]:
    sides = number("inputs", layer.input_shape[0]), number("outputs", layer.units)
    text = call("nn.Linear", *sides, bias=_other(layer.use_bias, True))
    return [Module("fc", text, _own(layer, arrays))]


def _batch_norm(layer: Any, arrays: Arrays) -> list[Module]:
    text = call(
        f"nn.BatchNorm{'2d' if len(layer.input_shape) == 3 else '1d'}",
        number("channels", layer.input_shape[0]),
        eps=_other(layer.eps, 1e-5),
        momentum=_other(layer.momentum, 0.1),
    )
    # PyTorch has both or none of factors and offsets.
    ones = np.ones(layer.input_shape[0], np.float32)
    state = {"weight": ones, "bias": 0 * ones, **_own(layer, arrays)}
    return [Module("bn", text, {**state, "num_batches_tracked": np.array(0, np.int64)})]


def _pool(layer: Any, arrays: Arrays) -> list[Module]:
    window, is_max = layer.window, layer.pool == "max"
    kernel, step = _size(window.kernel), _other(_size(window.stride), _size(window.kernel))
    ceil = True if layer.ceil_mode and layer.padding != "same" else None
    if not window.is_lopsided or ceil:
        options = {"stride": step, "padding": _window(window)["padding"], "ceil_mode": ceil}
        inside = {} if is_max or not options["padding"] else {"count_include_pad": False}
        kind = "nn.MaxPool2d" if is_max else "nn.AvgPool2d"
        return [Module("pool", call(kind, kernel, **options, **inside), {})]
    if not is_max:
        # The mean over the pixels inside the picture.
        pads, given = _ends(window), f"{kernel}, {_size(window.stride)}"
        ones = f"F.pad(torch.ones_like(x), {pads})"
        mean = f"F.avg_pool2d(F.pad(x, {pads}), {given}) / F.avg_pool2d({ones}, {given})"
        return [Module("pool", formula(mean), {})]
    pad = Module("pad", call("nn.ConstantPad2d", _ends(window), 'float("-inf")'), {})
    return [pad, Module("pool", call("nn.MaxPool2d", kernel, stride=step), {})]


def _global_pool(layer: Any, arrays: Arrays) -> list[Module]:
    texts = {"pool": "nn.AdaptiveAvgPool2d(1)", "flatten": "nn.Flatten()"}
    return [Module(name, text, {}) for name, text in texts.items()]


def _border(layer: Any, arrays: Arrays) -> list[Module]:
    (rows, _, columns, _), value = layer.ends, [repr(layer.value)] * bool(layer.value)
    ends = rows if rows == columns else (columns, columns, rows, rows)
    kind = "nn.ConstantPad2d" if value else "nn.ZeroPad2d"
    return [Module("pad", call(kind, ends, *value), {})]


def _subsampling(layer: Any, arrays: Arrays) -> list[Module]:
    window = layer.window
    text = call(
        "Subsampling",
        number("channels", layer.input_shape[0]),
        _size(window.kernel),
        _size(window.stride),
        layer.factor,
    )
    state = {key: array[:, None, None] for key, array in _own(layer, arrays).items()}
    return [Module("pool", text, state)]


def _prelu(layer: Any, arrays: Arrays) -> list[Module]:
    text = call("nn.PReLU", number("channels", layer.input_shape[0]))
    return [Module("prelu", text, {"weight": arrays[layer.slope.name]})]


def _rbf(layer: Any, arrays: Arrays) -> list[Module]:
    centres = np.array(layer.centres, np.float32)
    return [Module("rbf", call("Rbf", *centres.shape), {"centres": centres})]


def _padding(layer: Any, arrays: Arrays) -> list[Module]:
    more = layer.output_shape[0] - layer.input_shape[0]
    picked = "x[:, :, ::{}, ::{}]".format(*layer.window.stride)
    text = formula(f"F.pad({picked}, (0, 0, 0, 0, 0, {number('channels', more)}))")
    return [Module("pad", text, {})]


def _plain(*texts: str) -> Callable[[Any, Arrays], list[Module]]:
    """Modules without arrays; {0} is the layer."""
    return lambda layer, arrays: [
        Module(re.sub(r"_.*|\dd$", "", layer.kind), text.format(layer), {}) for text in texts
    ]


def _own(layer: Layer, arrays: Arrays) -> dict[str, Array]:
    """The arrays of a layer by the last part of their names."""
    tensors = [p.tensor for p in layer.parameters()]
    tensors += [statistic.tensor for statistic in layer.running_statistics()]
    return {t.name.rpartition(".")[2]: arrays[t.name] for t in tensors}


MODULES: dict[str, Callable[[Any, Arrays], list[Module]]] = {
    "avg_pool1d": _pool,
    "avg_pool2d": _pool,
    "batch_norm": _batch_norm,
    "conv1d": _conv,
    "conv2d": _conv,
    "dense": _dense,
    "dropout": _plain("nn.Dropout({0.rate})"),
    "elu": _plain("nn.ELU({0.alpha})"),
    "flatten": _plain("nn.Flatten()"),
    "gelu": lambda layer, arrays: [
        Module("gelu", call("nn.GELU", *['"tanh"'] * layer.approximate), {})
    ],
    "global_avg_pool1d": _global_pool,
    "global_avg_pool2d": _global_pool,
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
