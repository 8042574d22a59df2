"""A network as calls of the functions in ``numpy_functions``: what files of code are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..common.records import dataclass
from ..graph import ops
from ..graph.graph import Op, Tensor
from .plain import AFFINE, Plain

Array = NDArray[Any]
Chain: TypeAlias = list[tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Call:
    """y = the last of a chain of (function, *arguments): each but the first takes the result of
    that before as its first argument. A text among the arguments names an array, or the ``y`` of an
    earlier call, or "x". ``layers``: whose work it is."""

    layers: tuple[str, ...]
    y: str
    chain: Chain


class Calls:
    """All calls of a network in order, ``result``: the name of its answer, ``arrays`` by name."""

    def __init__(self, plain: Plain) -> None:
        self.plain = plain
        self.arrays: dict[str, Array] = {}
        self.calls = [self._call(op) for op in plain.ops]
        self.result = str(self(plain.y))

    def _call(self, op: Op) -> Call:
        chain = _CHAINS[type(op)](op, self)
        return Call(tuple(dict.fromkeys(o.layer for o in op.origin)), op.writes()[0].name, chain)

    def __call__(self, tensor: Tensor | None) -> str | None:
        """The name of a tensor."""
        if tensor is None:
            return None
        if tensor == self.plain.x:
            return "x"
        if tensor.role in ("parameter", "state"):
            name = tensor.name.replace(".running_mean.folded", ".shift").removesuffix(".folded")
            return self.stored(name, self.plain.constant(tensor))
        return tensor.name

    def stored(self, name: str, array: Array) -> str:
        self.arrays[name] = array
        return name


def _affine(op: Any, of: Calls) -> Chain:
    name, both = op.y.name, of.plain.affine(op)
    given = [
        of.stored(f"{name}.{key}", v.astype(np.float32))
        for key, v in zip(("scale", "shift"), both, strict=True)
    ]
    return [("affine", of(op.x), *given)]


def _pool(op: Any, of: Calls) -> Chain:
    window = op.window
    return [(f"{op.kind}_pool", of(op.x), window.kernel, window.stride, window.padding)]


def _norm(op: Any, of: Calls) -> Chain:
    name = "lrn" if isinstance(op, ops.Lrn) else "divisive_norm"
    return [(name, of(op.x), op.size, op.alpha, op.beta, op.k)]


def _geometry(op: Any) -> tuple[Any, ...]:
    return op.window.stride, op.window.padding, op.window.dilation, op.groups


def _integers(op: Any, of: Calls) -> Chain:
    (whole, s, b), name = of.plain.integers(op), op.w.name
    w = of.stored(name, whole.astype(np.int8))
    s_b = of.stored(f"{name}.s", op.given.scale * s), of.stored(f"{name}.b", b)
    product = ("matmul", w, None)
    if isinstance(op, ops.QuantizedConv2d):
        product = ("conv2d", w, None, *_geometry(op))
    chain: Chain = [("wide", of(op.x)), product, ("scaled", *s_b, op.relu)]
    return chain if op.to is None else [*chain, _quantize(op.to)]


def _quantize(to: ops.Quantization, *x: object) -> tuple[Any, ...]:
    return ("quantize", *x, to.scale, *to.bounds)


_CHAINS: dict[type[Op], Callable[[Any, Calls], Chain]] = {
    **dict.fromkeys(AFFINE, _affine),
    ops.Activation: lambda op, of: [
        (op.kind, of(op.x), *([op.alpha] if op.kind in ("leaky_relu", "elu") else []))
    ],
    ops.Add: lambda op, of: [("add", *map(of, op.terms))],
    ops.Concat: lambda op, of: [("concat", *map(of, op.parts))],
    ops.Conv2d: lambda op, of: [("conv2d", of(op.x), of(op.w), of(op.bias), *_geometry(op))],
    ops.DivisiveNorm: _norm,
    ops.Heaviside: lambda op, of: [("heaviside", of(op.x))],
    ops.Lrn: _norm,
    ops.MatMul: lambda op, of: [
        ("matmul", of(op.a), of.stored(str(of(op.b)), of.plain.matrix(op)), of(op.bias))
    ],
    ops.Pad2d: lambda op, of: [("pad", of(op.x), op.padding, op.value)],
    ops.PadChannels: lambda op, of: [("pad_channels", of(op.x), op.y.shape[1])],
    ops.Pool2d: _pool,
    ops.Quantize: lambda op, of: [_quantize(op.to, of(op.x))],
    ops.QuantizedConv2d: _integers,
    ops.QuantizedMatMul: _integers,
    ops.Rbf: lambda op, of: [
        ("rbf", of(op.x), of.stored(f"{op.y.name}.centres", np.array(op.centres, np.float32)))
    ],
    ops.Reshape: lambda op, of: [("reshape", of(op.x), op.y.shape[1:])],
    ops.Slice: lambda op, of: [("part", of(op.x), op.begin, op.begin + op.y.shape[1])],
    ops.Softmax: lambda op, of: [("log_softmax" if op.log else "softmax", of(op.x))],
}
CALLABLE = frozenset(_CHAINS)
