"""The operations that a kernel can take the place of; operations.txt has formulas and loops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.reference.kernels import KERNELS, Kernel
from ..common.errors import DnnstackError
from ..common.records import dataclass
from ..graph import ops
from ..graph.geometry import Window
from ..graph.graph import DType, Op, Tensor

Array = NDArray[Any]
_KINDS: dict[str, type[Op]] = {
    "conv2d": ops.Conv2d,
    "conv2d_backward_data": ops.Conv2dBackwardData,
    "conv2d_backward_filter": ops.Conv2dBackwardFilter,
    "matmul": ops.MatMul,
    "max_pool2d": ops.Pool2d,
    "relu": ops.Activation,
    "loss": ops.RowLoss,
    "update": ops.SgdUpdate,
}
# What an update calls the arrays of a kernel.
UPDATED = {"g": "gradients", "w": "parameters", "v": "buffers"}
# The rate of an update that is checked.
_RATE = 0.5


class LabError(DnnstackError):
    """A kernel cannot be used, or is wrong; the message names the file and the first fault."""


@dataclass(frozen=True)
class Argument:
    """An array of a kernel; ``dims``: the names of its sizes, none where it is passed flat."""

    name: str
    dtype: str
    is_input: bool
    dims: tuple[str, ...]

    def shaped(self, array: Array) -> Array:
        """As a kernel sees it: flat unless it has several sizes."""
        return array if len(self.dims) > 1 else array.reshape(-1)


@dataclass(frozen=True)
class Case:
    """One call: arrays as before it, by name, numbers in order, and what is to come out."""

    title: str
    arrays: Mapping[str, Array]
    numbers: tuple[float, ...]
    expected: Mapping[str, Array]


@dataclass(frozen=True)
class Operation:
    """``numbers``: what a kernel gets behind the arrays, by name with its type; ``loops``: its
    body; ``kind``: what it is in a graph; ``reference``: the kernel of the reference."""

    name: str
    formula: str
    arguments: tuple[Argument, ...]
    numbers: Mapping[str, str]
    loops: str
    kind: type[Op]
    reference: Kernel

    def takes(self, op: Any) -> bool:
        """Whether a kernel can compute an operation of a graph."""
        if not isinstance(op, self.kind):
            return False
        match op:
            case ops.RowLoss():
                plain = op.formula == ops.CrossEntropy() and op.reduction == "mean"
                return plain and op.target.dtype == "int32"
            case ops.SgdUpdate():
                return not op.nesterov
            case ops.Activation():
                return op.kind == "relu"
            case ops.Pool2d():
                return op.kind == "max" and op.window.dilation == (1, 1)
        united = (getattr(op, name, None) for name in ("bias", "bias_grad", "activation"))
        return getattr(op, "groups", 1) == 1 and not any(united)

    def calls(self, op: Any) -> list[Any]:
        """An operation for each call of the kernel: an update has one for each parameter."""
        if self.name != "update":
            return [op]
        fields = (*UPDATED.values(), "weight_decay", "lr_factor")
        return [
            replace(op, **{field: getattr(op, field)[i : i + 1] for field in fields})
            for i in range(len(op.parameters))
        ]

    def values(self, op: Any, lr: float = _RATE) -> tuple[float, ...]:
        """The numbers of a call."""
        found: dict[str, float] = {}
        if isinstance(op, ops.MatMul):
            m, n, k = op.mnk
            left = (1, m) if op.transpose_a else (k, 1)
            right = (1, k) if op.transpose_b else (n, 1)
            found = dict(zip(("K", "AM", "AK", "BK", "BN"), (k, *left, *right), strict=True))
        elif isinstance(op, ops.SgdUpdate):
            found = {"lr": lr * op.factor(0), "momentum": op.momentum, "decay": op.weight_decay[0]}
        elif window := getattr(op, "window", None):
            sizes = (*window.kernel, *window.stride, *window.dilation, *window.padding[::2])
            names = ("KH", "KW", "SH", "SW", "DH", "DW", "TOP", "LEFT")
            found = dict(zip(names, sizes, strict=True))
        for argument in self.arguments:
            shape = self._tensor(op, argument.name).shape
            sizes = shape if len(argument.dims) > 1 else (prod(shape),)
            found.update(zip(argument.dims, sizes, strict=False))
        return tuple(float(found[name]) for name in self.numbers)

    def title(self, op: Any) -> str:
        """The numbers of a call, each with its name."""
        values = zip(self.numbers, self.values(op), strict=True)
        return " ".join(f"{name}={value:g}" for name, value in values)

    def _tensor(self, op: Any, name: str) -> Tensor:
        if self.name == "update":
            # Without momentum there is no buffer; the kernel gets one that is not kept.
            return (getattr(op, UPDATED[name]) or op.parameters)[0]  # type: ignore[no-any-return]
        return getattr(op, name)  # type: ignore[no-any-return]

    def case(self, op: Any, rng: np.random.Generator) -> Case:
        """A call on small multiples of 1/8, whose sums of products are exact in any order."""
        arrays: dict[str, Array] = {}
        for argument in self.arguments:
            name, shape = argument.name, self._tensor(op, argument.name).shape
            if argument.dtype == "int":
                arrays[name] = rng.integers(-1, op.x.shape[1], shape, np.int32)
            else:
                arrays[name] = (rng.integers(-8, 9, shape) / 8).astype(np.float32)
        given: dict[str, Any] = {
            k: a.astype("f8" if a.dtype == "f4" else a.dtype) for k, a in arrays.items()
        }
        if self.name == "update":
            given = {field: (given[name],) for name, field in UPDATED.items()}
            given |= {"rates": np.array([_RATE]), "step": np.array([0])}
            given["buffers"] = given["buffers"] if op.buffers else ()
        fields = (*op.outputs, *op.updates)
        found = self.reference.compute(op, *map(given.get, (*op.inputs, *op.updates)))
        results = dict(zip(fields, found if len(fields) > 1 else (found,), strict=True))
        expected = {}
        for argument in (argument for argument in self.arguments if not argument.is_input):
            name = argument.name
            if self.name != "update":
                arrays[name] = np.full_like(arrays[name], np.nan)
                expected[name] = argument.shaped(results[name])
            elif results[UPDATED[name]]:
                expected[name] = argument.shaped(results[UPDATED[name]][0])
        shaped = {a.name: a.shaped(arrays[a.name]) for a in self.arguments}
        return Case(self.title(op), shaped, self.values(op), expected)

    def draw(self, rng: np.random.Generator, size: int) -> Op:
        """An operation; ``size``: how large it may be, 1 for what is slow."""
        n, c, o = map(int, rng.integers(1, [4, 2 + 2 * size, 5 * size]))
        if self.name == "matmul":
            m, k = map(int, rng.integers(1, 13 * size, 2))
            ta, tb = map(bool, rng.integers(0, 2, 2))
            a, b = _t("a", *((k, m) if ta else (m, k))), _t("b", *((o, k) if tb else (k, o)))
            return ops.MatMul(a=a, b=b, c=_t("c", m, o), transpose_a=ta, transpose_b=tb)
        if self.name == "relu":
            return ops.Activation(x=_t("x", c, 9 * o), y=_t("y", c, 9 * o), kind="relu")
        if self.name == "loss":
            x, target = _t("x", 9 * o, c + 1), _t("target", 9 * o, dtype="int32")
            return ops.RowLoss(x=x, target=target, loss=_t("loss", 1), formula=ops.CrossEntropy())
        if self.name == "update":
            g, w, v = ((_t(name, c, 9 * o),) for name in "gwv")
            momentum, decay = (float(number) for number in rng.integers(0, 2, 2) / 2)
            return ops.SgdUpdate(
                gradients=g,
                rates=_t("rates", 1),
                step=_t("step", 1, dtype="int64"),
                parameters=w,
                buffers=v if momentum else (),
                momentum=momentum,
                weight_decay=(decay,),
            )
        pool = self.name == "max_pool2d"
        kernel, stride, dilation = (
            (int(a), int(b)) for a, b in rng.integers(1, [[5], [4], [3]], (3, 2))
        )
        # A pool's window has a pixel of the picture in it.
        top, bottom, left, right = map(int, rng.integers(0, min(kernel) if pool else 4, 4))
        window = Window(kernel, stride, (top, bottom, left, right), (1, 1) if pool else dilation)
        picture = [extent + int(rng.integers(0, 5 * size)) for extent in window.extent]
        given, made = (n, c, *picture), (n, c if pool else o, *window.output(*picture))
        if pool:
            return ops.Pool2d(x=_t("x", *given), y=_t("y", *made), window=window, kind="max")
        shapes = {"x": given, "w": (o, c, *kernel), "y": made}
        found: dict[str, Any] = {a.name: _t(a.name, *shapes[a.name[-1]]) for a in self.arguments}
        return self.kind(**found | {"window": window})


def _t(name: str, *shape: int, dtype: DType = "float32") -> Tensor:
    return Tensor(name, shape, dtype)


def _read(part: str) -> Operation:
    """An operation as operations.txt has it."""
    head, formula, declared, *loops = part.strip().splitlines()
    given, _, further = declared.partition(";")
    arguments = tuple(
        Argument(array, dtype, bool(const), tuple(filter(None, dims.split(","))))
        for const, dtype, array, dims in re.findall(r"(const )?(\w+) (\w+)\[([\w,]*)\]", given)
    )
    sizes = dict.fromkeys((dim for argument in arguments for dim in argument.dims), "int")
    numbers = {**sizes, **{number: dtype for dtype, number in re.findall(r"(\w+) (\w+)", further)}}
    name = head.strip("[]")
    kind = _KINDS[name]
    body = "\n".join(loops)
    return Operation(name, formula, arguments, numbers, body, kind, KERNELS[kind])


_TEXT = resources.files(__package__).joinpath("operations.txt").read_text("utf-8")
OPERATIONS = {operation.name: operation for operation in map(_read, _TEXT.split("\n\n"))}
