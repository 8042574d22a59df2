"""A network as a graph of ONNX, whose nodes are written as expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..common.records import dataclass
from ..graph import ops
from ..graph.geometry import Window
from ..graph.graph import Op, Tensor
from .plain import AFFINE, Plain

# Of gelu_tanh.
_SLOPE = math.sqrt(2 / math.pi)
_TYPES: dict[Any, int] = {np.float32: 1, np.uint8: 2, np.float64: 11}


class Network:
    """Nodes in order, and the arrays that they read, all by different names.

    ``known``: what tensors became. ``at``: with what the names of the nodes that follow begin.
    ``real``: the type of plain numbers.
    """

    def __init__(self, plain: Plain) -> None:
        from onnx import helper

        self.plain, self.at = plain, ""
        self.real: Any = np.float64
        self.known: dict[Tensor | None, Value | None] = {None: None}
        self._helper: Any = helper
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._arrays: dict[str, Any] = {}
        self._taken = {"output0"}

    def __call__(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """The output of a new node that reads values, arrays and numbers; None is left out."""
        name, names = self._free(f"{self.at}.{kind}"), []
        for each in (each for each in inputs if each is not None):
            value = each if isinstance(each, Value) else self._constant(f"{name}.constant", each)
            names.append(value.name)
        self._nodes.append(self._helper.make_node(kind, names, [name], name, **attributes))
        return Value(self, name)

    def __getitem__(self, tensor: Tensor | None) -> Any:
        if tensor is not None and tensor not in self.known:
            self.known[tensor] = self._constant(tensor.name, self.plain.constant(tensor))
        return self.known[tensor]

    def input(self, name: str, dtype: Any, sizes: tuple[int | str, ...]) -> Value:
        """A batch that is given; sizes that are words may differ from call to call."""
        self._inputs.append(self._batch(self._free(name), dtype, sizes))
        return Value(self, name)

    def cast(self, value: Value, dtype: Any) -> Value:
        return self("Cast", value, to=_TYPES[dtype])

    def write(self) -> None:
        """All operations; nodes and what they compute are called as layers are."""
        self.real = np.float32
        for op in self.plain.ops:
            self.at = op.origin[0].layer
            y = CODE[type(op)](op, self)
            if not isinstance(op, ops.Quantize):
                y = self._named(self.at)
            self.known[op.writes()[0]] = y

    def model(self, about: Mapping[str, str]) -> bytes:
        """The file; what the last node computes is ``output0``."""
        from onnx import numpy_helper

        self._nodes[-1].output[0] = "output0"
        results = [self._batch("output0", np.float32, (self.plain.y.size,))]
        arrays = [numpy_helper.from_array(array, name) for name, array in self._arrays.items()]
        graph = self._helper.make_graph(self._nodes, "dnnstack", self._inputs, results, arrays)
        opsets = [self._helper.make_opsetid("", 18)]
        model = self._helper.make_model(graph, ir_version=8, opset_imports=opsets)
        model.producer_name, model.producer_version = "dnnstack", about["version"]
        self._helper.set_model_props(model, about)
        return bytes(model.SerializeToString(deterministic=True))

    def _batch(self, name: str, dtype: Any, sizes: tuple[int | str, ...]) -> Any:
        return self._helper.make_tensor_value_info(name, _TYPES[dtype], ("batch", *sizes))

    def _constant(self, name: str, array: Any) -> Value:
        name = self._free(name)
        self._arrays[name] = np.array(array, self.real) if isinstance(array, float) else array
        return Value(self, name)

    def _named(self, name: str) -> Value:
        """The output of the last node under this name, which the node gets too."""
        self._nodes[-1].name = self._nodes[-1].output[0] = name = self._free(name)
        return Value(self, name)

    def _free(self, name: str) -> str:
        """The name, or one like it that nothing has yet."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _node(kind: str) -> Callable[[Value, Any], Value]:
    return lambda x, other: x.network(kind, x, other)


@dataclass(frozen=True, eq=False)
class Value:
    """What a node computes; + and the like add a node each."""

    network: Network
    name: str
    __add__ = _node("Add")
    __sub__ = _node("Sub")
    __mul__ = _node("Mul")
    __truediv__ = _node("Div")
    __pow__ = _node("Pow")


def _window(window: Window) -> dict[str, Any]:
    top, bottom, left, right = window.padding
    pads = (top, left, bottom, right)
    return {"kernel_shape": window.kernel, "strides": window.stride, "pads": pads}


def _product(op: Any, of: Network, w: Any, bias: Any) -> Value:
    x = of[op.reads()[0]]
    if isinstance(op, ops.MatMul | ops.QuantizedMatMul):
        return of("Gemm", x, w, bias, transB=int(getattr(op, "transpose_b", True)))
    how = {"group": op.groups, "dilations": op.window.dilation, **_window(op.window)}
    return of("Conv", x, w, bias, **how)


def _integers(op: Any, of: Network) -> Value:
    """A product of numbers for which integers stand, which a run-time computes with these."""
    whole, steps, sums = of.plain.integers(op)
    # Steps are above 0, and such that sums of 32 bits hold the bias.
    least = np.maximum(np.abs(sums) / (2.0**30 * op.given.scale), 1e-30)
    known = np.maximum(np.abs(steps), least)
    whole = np.rint(whole.T * (steps / known)).T.astype(np.int8)
    # Without these zeros ONNX Runtime computes matrix products in float32.
    zeros = np.zeros(len(steps), np.int8)
    w = of("DequantizeLinear", whole, known.astype(np.float32), zeros, axis=0)
    unit = op.given.scale * known
    offsets = np.rint(sums / unit).astype(np.int32)
    bias = of("DequantizeLinear", offsets, unit.astype(np.float32), axis=0)
    y = _product(op, of, w, bias)
    y = of("Relu", y) if op.relu else y
    return y if op.to is None else _rounded(of, y, op.to)


def _rounded(of: Network, x: Value, to: ops.Quantization) -> Value:
    """The numbers for which the integers nearest to x stand."""
    ends = np.array(to.scale, np.float32), np.array(0, np.int8 if to.signed else np.uint8)
    return of("DequantizeLinear", of("QuantizeLinear", x, *ends), *ends)


def _affine(op: Any, of: Network) -> Value:
    scale, shift = (
        each.astype(np.float32).reshape(-1, *[1] * (len(op.y.shape) - 2))
        for each in of.plain.affine(op)
    )
    x: Value = of[op.x]
    return x * scale + shift


def _own_norm(op: ops.BatchNorm, of: Network) -> Value:
    """Over groups of each sample, which are channels of the one picture of a section for one."""
    ones = np.ones(op.x.shape[1], np.float32)
    return of("InstanceNormalization", of[op.x], ones, 0 * ones, epsilon=op.eps)


def _divisive(op: ops.DivisiveNorm, of: Network) -> Value:
    x: Value = of[op.x]
    window = Window((op.size, op.size), padding=(op.size // 2,) * 4)
    squares = of("AveragePool", x * x, count_include_pad=1, **_window(window))
    return x / (squares * op.alpha + op.k) ** op.beta


def _padded(op: ops.Pad2d | ops.PadChannels, of: Network) -> Value:
    ends = np.zeros((2, len(op.x.shape)), np.int64)
    if isinstance(op, ops.Pad2d):
        ends[:, 2:] = np.reshape(op.padding, (2, 2)).T
    else:
        ends[1, 1] = op.y.shape[1] - op.x.shape[1]
    return of("Pad", of[op.x], ends.reshape(-1), getattr(op, "value", 0.0))


def _rbf(op: ops.Rbf, of: Network) -> Value:
    apart = of("Unsqueeze", of[op.x], np.array([1])) - np.array(op.centres, np.float32)
    return of("Neg", of("ReduceSumSquare", apart, np.array([2]), keepdims=0))


_ACTIVATIONS: dict[str, Callable[[Network, Value, float], Value]] = {
    "relu": lambda of, x, alpha: of("Relu", x),
    "leaky_relu": lambda of, x, alpha: of("LeakyRelu", x, alpha=alpha),
    "sigmoid": lambda of, x, alpha: of("Sigmoid", x),
    "tanh": lambda of, x, alpha: of("Tanh", x),
    "elu": lambda of, x, alpha: of("Elu", x, alpha=alpha),
    "softplus": lambda of, x, alpha: of("Softplus", x),
    "silu": lambda of, x, alpha: x * of("Sigmoid", x),
    "gelu": lambda of, x, alpha: x * 0.5 * (of("Erf", x * math.sqrt(0.5)) + 1.0),
    "gelu_tanh": lambda of, x, alpha: (
        x * 0.5 * (of("Tanh", (x + x**3.0 * 0.044715) * _SLOPE) + 1.0)
    ),
    "relu6": lambda of, x, alpha: of("Clip", x, 0.0, 6.0),
    "hardsigmoid": lambda of, x, alpha: of("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "hardswish": lambda of, x, alpha: of("HardSwish", x),
    "mish": lambda of, x, alpha: of("Mish", x),
    "scaled_tanh": lambda of, x, alpha: of("Tanh", x * (2 / 3)) * 1.7159,
}
CODE: dict[type[Op], Callable[[Any, Network], Value]] = {
    **dict.fromkeys(AFFINE, _affine),
    ops.Activation: lambda op, of: _ACTIVATIONS[op.kind](of, of[op.x], op.alpha),
    ops.Add: lambda op, of: of("Sum", *map(of.__getitem__, op.terms)),
    ops.Concat: lambda op, of: of("Concat", *map(of.__getitem__, op.parts), axis=1),
    ops.BatchNorm: _own_norm,
    ops.Col2im: lambda op, of: of(
        "Transpose",
        of("Reshape", of[op.columns], np.array([-1, *op.x.shape[2:], op.x.shape[1]])),
        perm=(0, 3, 1, 2),
    ),
    ops.Conv2d: lambda op, of: _product(op, of, of[op.w], of[op.bias]),
    ops.DivisiveNorm: _divisive,
    ops.GateChannels: lambda op, of: (
        of[op.x] * of("Reshape", of[op.s], np.array([-1, op.s.size, 1, 1]))
    ),
    ops.Heaviside: lambda op, of: of.cast(of("Greater", of[op.x], 0.0), np.float32),
    ops.Im2col: lambda op, of: of(
        "Reshape", of("Transpose", of[op.x], perm=(0, 2, 3, 1)), np.array([-1, op.x.shape[1]])
    ),
    ops.Lrn: lambda op, of: of(
        "LRN", of[op.x], size=op.size, alpha=op.alpha, beta=op.beta, bias=op.k
    ),
    ops.MatMul: lambda op, of: _product(op, of, of[op.b], of[op.bias]),
    ops.Pad2d: _padded,
    ops.PadChannels: _padded,
    ops.Pool2d: lambda op, of: of(
        {"max": "MaxPool", "avg": "AveragePool"}[op.kind], of[op.x], **_window(op.window)
    ),
    ops.Quantize: lambda op, of: _rounded(of, of[op.x], op.to),
    ops.QuantizedConv2d: _integers,
    ops.QuantizedMatMul: _integers,
    ops.Rbf: _rbf,
    ops.Reshape: lambda op, of: of("Reshape", of[op.x], np.array([-1, *op.y.shape[1:]])),
    ops.Slice: lambda op, of: of(
        "Slice", of[op.x], *np.array([[op.begin], [op.begin + op.y.shape[1]], [1]])
    ),
    ops.Softmax: lambda op, of: of("LogSoftmax" if op.log else "Softmax", of[op.x], axis=1),
}
