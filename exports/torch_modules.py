"""What computes in PyTorch what a layer does here: calls that make modules, and their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph.geometry import Window
from ..layers.layer import Layer

Array = NDArray[Any]
Arrays = Mapping[str, Array]
Modules = list[tuple[str, Arrays]]
"""Calls, each with the state of what it makes."""


def formula(of_x: str) -> str:
    return f"Function(lambda x: {of_x})"


def _ends(window: Window) -> tuple[int, ...]:
    """As PyTorch orders them: left, right, top, bottom."""
    return (*window.padding[2:], *window.padding[:2])


def _conv(layer: Any, arrays: Arrays) -> Modules:
    window, state, kind = layer.window, _own(layer, arrays), "nn.Conv2d"
    pads = (0, 0) if window.is_lopsided else window.padding[::2]
    before: Modules = [(f"nn.ZeroPad2d({_ends(window)})", {})] if window.is_lopsided else []
    if layer.pairs:
        kind, seen = "ConnectedConv2d", np.zeros(layer.filters_shape[:2], np.float32)
        seen[tuple(zip(*layer.pairs, strict=True))] = 1
        state |= {"weight": arrays[f"{layer.name}.filters"], "seen": seen}
    sides = f"{layer.input_shape[0]}, {layer.filters}, {window.kernel}, stride={window.stride}"
    more = f"dilation={window.dilation}, groups={layer.groups}, bias={layer.use_bias}"
    return [*before, (f"{kind}({sides}, padding={pads}, {more})", state)]


def _dense(layer: Any, arrays: Arrays) -> Modules:
    sides = f"{layer.input_shape[0]}, {layer.units}, bias={layer.use_bias}"
    return [(f"nn.Linear({sides})", _own(layer, arrays))]


def _batch_norm(layer: Any, arrays: Arrays) -> Modules:
    channels, sides = layer.input_shape[0], "2d" if len(layer.input_shape) == 3 else "1d"
    text = f"nn.BatchNorm{sides}({channels}, eps={layer.eps}, momentum={layer.momentum})"
    # PyTorch has both or none of factors and offsets.
    ones = np.ones(channels, np.float32)
    state = {"weight": ones, "bias": 0 * ones, **_own(layer, arrays)}
    return [(text, {**state, "num_batches_tracked": np.array(0, np.int64)})]


def _pool(layer: Any, arrays: Arrays) -> Modules:
    window = layer.window
    pads, sizes = _ends(window), f"{window.kernel}, {window.stride}"
    if layer.pool == "avg" and any(pads):
        # The mean over the pixels inside the picture.
        sums = (f"F.avg_pool2d(F.pad({x}, {pads}), {sizes})" for x in ("x", "torch.ones_like(x)"))
        return [(formula(" / ".join(sums)), {})]
    if not window.is_lopsided:
        kind = layer.pool.capitalize()
        return [(f"nn.{kind}Pool2d({sizes}, padding={window.padding[::2]})", {})]
    pad = f'nn.ConstantPad2d({pads}, float("-inf"))'
    return [(pad, {}), (f"nn.MaxPool2d({sizes})", {})]


def _border(layer: Any, arrays: Arrays) -> Modules:
    top, bottom, left, right = layer.ends
    return [(f"nn.ConstantPad2d({(left, right, top, bottom)}, {layer.value})", {})]


def _subsampling(layer: Any, arrays: Arrays) -> Modules:
    window = layer.window
    sizes = f"{layer.input_shape[0]}, {window.kernel}, {window.stride}, {layer.factor}"
    state = {key: array[:, None, None] for key, array in _own(layer, arrays).items()}
    return [(f"Subsampling({sizes})", state)]


def _prelu(layer: Any, arrays: Arrays) -> Modules:
    return [(f"nn.PReLU({layer.input_shape[0]})", {"weight": arrays[layer.slope.name]})]


def _rbf(layer: Any, arrays: Arrays) -> Modules:
    centres = np.array(layer.centres, np.float32)
    return [("Rbf({}, {})".format(*centres.shape), {"centres": centres})]


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
    "gelu": lambda layer, arrays: [('nn.GELU("tanh")' if layer.approximate else "nn.GELU()", {})],
    "global_avg_pool1d": _MEAN,
    "global_avg_pool2d": _MEAN,
    "hardsigmoid": _plain("nn.Hardsigmoid()"),
    "hardswish": _plain("nn.Hardswish()"),
    "group_norm": lambda layer, arrays: [
        (f"nn.GroupNorm({layer.groups}, {layer.input_shape[0]}, {layer.eps})", _own(layer, arrays))
    ],
    "heaviside": _plain(formula("(x > 0).float()")),
    "lcn": _plain(
        formula(
            "x / ({0.k} + {0.alpha} * F.avg_pool2d(x * x, {0.size}, 1, {0.size} // 2)) ** {0.beta}"
        )
    ),
    "layer_norm": lambda layer, arrays: [
        (f"PixelNorm({layer.input_shape[0]}, {layer.eps})", _own(layer, arrays))
    ],
    "leaky_relu": _plain("nn.LeakyReLU({0.negative_slope})"),
    "lrn": _plain("nn.LocalResponseNorm({0.size}, {0.alpha}, {0.beta}, {0.k})"),
    "max_pool1d": _pool,
    "max_pool2d": _pool,
    "mish": _plain("nn.Mish()"),
    "pad2d": _border,
    "padding": _padding,
    "prelu": _prelu,
    "rbf": _rbf,
    "relu": _plain("nn.ReLU()"),
    "relu6": _plain("nn.ReLU6()"),
    "scale": _plain(formula("{0.factor} * x")),
    "scaled_subsampling": _subsampling,
    "scaled_tanh": _plain(formula("1.7159 * torch.tanh(2 / 3 * x)")),
    "sigmoid": _plain("nn.Sigmoid()"),
    "silu": _plain("nn.SiLU()"),
    "softmax": _plain("nn.Softmax(1)"),
    "softplus": _plain("nn.Softplus()"),
    "stochastic_depth": _plain("nn.Identity()"),
    "tanh": _plain("nn.Tanh()"),
}
"""How each kind of layer is written."""


# Attributes of modules, but for those that begin with ``register_`` or an underscore.
RESERVED = """
add_module append apply bfloat16 body buffers call_super_init children compile cpu cuda double
dump_patches eval extend extra_repr float forward get_buffer get_extra_state get_parameter
get_submodule half insert ipu load_state_dict modules mtia named_buffers named_children
named_modules named_parameters parameters pop requires_grad_ set_extra_state set_submodule
share_memory shortcut state_dict to to_empty train training type way xpu zero_grad T_destination
"""

SOURCES = {
    "Layers": '''
class Layers(nn.Sequential):
    """Modules one after the other, by name."""

    def __init__(self, modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
''',
    "Residual": '''
class Residual(Layers):
    """body(x) + shortcut(x), of modules by name."""

    def __init__(self, body, shortcut):
        super().__init__({**body, **shortcut})
        self.body, self.shortcut = [*body], [*shortcut]

    def way(self, names, x):
        for name in names:
            x = getattr(self, name)(x)
        return x

    def forward(self, x):
        return self.way(self.body, x) + self.way(self.shortcut, x)
''',
    "Concat": '''
class Concat(Layers):
    """What each module makes of x, side by side."""

    def forward(self, x):
        return torch.cat([module(x) for module in self.children()], 1)
''',
    "ConnectedConv2d": '''
class ConnectedConv2d(nn.Conv2d):
    """A convolution whose filters see some of the maps: those where ``seen`` is 1."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.register_buffer("seen", torch.ones(self.weight.shape[:2]))

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.seen[:, :, None, None], self.bias)
''',
    "Function": '''
class Function(nn.Module):
    """A formula without weights."""

    def __init__(self, forward):
        super().__init__()
        self.forward = forward
''',
    "SqueezeExcite": '''
class SqueezeExcite(Layers):
    """Channels times what the modules make of the whole picture."""

    def forward(self, x):
        return x * super().forward(x)[:, :, None, None]
''',
    "PixelNorm": '''
class PixelNorm(nn.LayerNorm):
    """A norm of the channels of each pixel."""

    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)
''',
    "Rbf": '''
class Rbf(nn.Module):
    """Minus the squared distance to each of the centres, which are fixed."""

    def __init__(self, classes, inputs):
        super().__init__()
        self.register_buffer("centres", torch.zeros(classes, inputs))

    def forward(self, x):
        return -(x[:, None] - self.centres).square().sum(2)
''',
    "Subsampling": '''
class Subsampling(nn.Module):
    """A trained factor and offset of each map, of factor times the mean of each window."""

    def __init__(self, channels, kernel_size, stride, factor):
        super().__init__()
        self.window, self.factor = (kernel_size, stride), factor
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        return self.weight * self.factor * F.avg_pool2d(x, *self.window) + self.bias
''',
}
