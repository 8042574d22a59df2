"""What an exported file needs of PyTorch, in NumPy, where PyTorch itself is not installed."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
from dnnstack.exports import numpy_functions as functions


class Tensor(np.ndarray):
    """An array with the methods that files call."""

    def flatten(self, start: int) -> Any:
        return self.reshape(*self.shape[:start], -1)

    def movedim(self, at: int, to: int) -> Any:
        return np.moveaxis(self, at, to).view(Tensor)

    def softmax(self, axis: int) -> Any:
        assert axis == 1
        return functions.softmax(self)

    def sigmoid(self) -> Any:
        return functions.sigmoid(self)

    def square(self) -> Any:
        return self * self

    def float(self) -> Any:
        return self.astype(np.float32)

    def numpy(self) -> Any:
        return np.asarray(self)


def tensor(values: Any, dtype: Any = np.float32) -> Any:
    return np.asarray(values, dtype).view(Tensor)


def pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def ends(value: Any) -> tuple[int, ...]:
    """(top, bottom, left, right) of PyTorch's symmetric padding."""
    rows, columns = pair(value)
    return rows, rows, columns, columns


class Module:
    training = True

    def __call__(self, x: Any) -> Any:
        return self.forward(x)

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def add_module(self, name: str, module: Module) -> None:
        assert not hasattr(self, name)
        setattr(self, name, module)

    def children(self) -> list[Module]:
        return [each for each in vars(self).values() if isinstance(each, Module)]

    def state(self) -> dict[str, Any]:
        found = {}
        for name, value in vars(self).items():
            if isinstance(value, Module):
                found |= {f"{name}.{key}": each for key, each in value.state().items()}
            elif isinstance(value, Tensor):
                found[name] = value
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        own = self.state()
        assert sorted(own) == sorted(state)
        for name, value in state.items():
            assert own[name].shape == value.shape, name
            assert own[name].dtype == value.dtype, name
            own[name][...] = value

    def eval(self) -> Module:
        self.training = False
        for each in self.children():
            each.eval()
        return self


class Sequential(Module):
    def __init__(self, *modules: Module) -> None:
        for at, module in enumerate(modules):
            setattr(self, str(at), module)

    def forward(self, x: Any) -> Any:
        for module in self.children():
            x = module(x)
        return x


class Conv2d(Module):
    def __init__(
        self, inputs, outputs, size, stride=1, padding=0, dilation=1, groups=1, bias=True
    ) -> None:
        self.weight = tensor(np.zeros((outputs, inputs // groups, *pair(size))))
        self.bias = tensor(np.zeros(outputs)) if bias else None
        self.given = pair(stride), ends(padding), pair(dilation), groups

    def _conv_forward(self, x: Any, weight: Any, bias: Any) -> Any:
        return functions.conv2d(x, weight, bias, *self.given)

    def forward(self, x: Any) -> Any:
        return self._conv_forward(x, self.weight, self.bias)


class Linear(Module):
    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        self.weight = tensor(np.zeros((outputs, inputs)))
        self.bias = tensor(np.zeros(outputs)) if bias else None

    def forward(self, x: Any) -> Any:
        return x @ self.weight.T + (0 if self.bias is None else self.bias)


class BatchNorm(Module):
    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        for name in ("weight", "bias", "running_mean", "running_var"):
            setattr(self, name, tensor(np.zeros(channels)))
        self.num_batches_tracked = tensor(0, np.int64)
        self.eps = eps

    def forward(self, x: Any) -> Any:
        assert not self.training
        scale = self.weight / np.sqrt(self.running_var + np.float32(self.eps))
        return functions.affine(x, scale, self.bias - self.running_mean * scale)


class LayerNorm(Module):
    def __init__(self, channels: int, eps: float) -> None:
        self.weight, self.bias = tensor(np.zeros(channels)), tensor(np.zeros(channels))
        self.eps = eps

    def forward(self, x: Any) -> Any:
        apart = x - x.mean(-1, keepdims=True)
        variance = (apart * apart).mean(-1, keepdims=True)
        return apart / np.sqrt(variance + np.float32(self.eps)) * self.weight + self.bias


class GroupNorm(LayerNorm):
    def __init__(self, groups: int, channels: int, eps: float) -> None:
        super().__init__(channels, eps)
        self.groups = groups

    def forward(self, x: Any) -> Any:
        rows = x.reshape(len(x) * self.groups, -1)
        apart = rows - rows.mean(1, keepdims=True)
        variance = (apart * apart).mean(1, keepdims=True)
        normal = apart / np.sqrt(variance + np.float32(self.eps))
        return functions.affine(normal.reshape(x.shape), self.weight, self.bias).view(Tensor)


class Function(Module):
    """A module without state."""

    def __init__(self, function: Any) -> None:
        self.forward = function


def pool(kind: str, kernel: Any, step: Any, padding: Any = 0) -> Any:
    """Averages count the padding."""
    sizes, around = (pair(kernel), pair(step)), ends(padding)
    if kind == "max":
        return lambda x: functions.max_pool(x, *sizes, around).view(Tensor)
    return lambda x: functions.avg_pool(functions.pad(x, around, 0), *sizes).view(Tensor)


def padded(x: Any, padding: Any, value: float = 0.0) -> Any:
    """``padding``: from the last axis to the first."""
    axes = [tuple(padding[at : at + 2]) for at in range(0, len(padding), 2)]
    axes += [(0, 0)] * (x.ndim - len(axes))
    return np.pad(x, axes[::-1], constant_values=value).view(Tensor)


def border(padding: Any, value: float = 0.0) -> Function:
    around = padding if isinstance(padding, tuple) else (padding,) * 4
    return Function(lambda x: padded(x, around, value))


def _activation(name: str, *names: Any) -> Any:
    return lambda *given: Function(lambda x: getattr(functions, name)(x, *given).view(Tensor))


def _prelu(channels: int) -> Module:
    made = Function(lambda x: np.where(x > 0, x, functions.along(made.weight, x) * x).view(Tensor))
    made.weight = tensor(np.zeros(channels))
    return made


def _gelu(approximate: str = "none") -> Function:
    return _activation("gelu_tanh" if approximate == "tanh" else "gelu")()


NN = {
    **{name: each for name, each in globals().items() if isinstance(each, type) and name[0] != "_"},
    "BatchNorm1d": BatchNorm,
    "BatchNorm2d": BatchNorm,
    "Parameter": lambda value: value,
    "Dropout": lambda rate: Function(lambda x: x),
    "Flatten": lambda: Function(lambda x: x.flatten(1)),
    "AdaptiveAvgPool2d": lambda size: Function(lambda x: x.mean((2, 3), keepdims=True)),
    "MaxPool2d": lambda *given, **options: Function(pool("max", *given, **options)),
    "AvgPool2d": lambda *given, **options: Function(pool("avg", *given, **options)),
    "ZeroPad2d": border,
    "ConstantPad2d": border,
    "Identity": lambda: Function(lambda x: x),
    "Softmax": lambda axis: Function(lambda x: functions.softmax(x)),
    "LocalResponseNorm": _activation("lrn"),
    "PReLU": _prelu,
    "GELU": _gelu,
    "ReLU": _activation("relu"),
    "LeakyReLU": _activation("leaky_relu"),
    "Sigmoid": _activation("sigmoid"),
    "Tanh": _activation("tanh"),
    "ELU": _activation("elu"),
    "Softplus": _activation("softplus"),
    "SiLU": _activation("silu"),
    "ReLU6": _activation("relu6"),
    "Hardsigmoid": _activation("hardsigmoid"),
    "Hardswish": _activation("hardswish"),
    "Mish": _activation("mish"),
}
TORCH = {
    "__version__": "in NumPy",
    "float32": np.float32,
    "tensor": tensor,
    "as_tensor": tensor,
    "zeros": lambda *shape: tensor(np.zeros(shape)),
    "ones": lambda *shape: tensor(np.ones(shape[0] if isinstance(shape[0], tuple) else shape)),
    "ones_like": lambda x: tensor(np.ones(x.shape)),
    "cat": lambda parts, axis: np.concatenate(parts, axis).view(Tensor),
    "tanh": np.tanh,
    "no_grad": lambda: lambda function: function,
}


def install(monkeypatch: Any) -> None:
    """Let ``import torch`` find this."""
    from safetensors.numpy import load_file

    functional = {"pad": padded, "avg_pool2d": lambda x, *given: pool("avg", *given)(x)}
    named = {
        "torch": TORCH,
        "torch.nn": NN,
        "torch.nn.functional": functional,
        "safetensors.torch": {"load_file": load_file},
    }
    for name, members in named.items():
        module = ModuleType(name)
        vars(module).update(members, __spec__=ModuleSpec(name, None))
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["torch"].nn = sys.modules["torch.nn"]
    sys.modules["torch.nn"].functional = sys.modules["torch.nn.functional"]
