"""The operations that a kernel can take the place of; operations.txt has formulas and loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.reference.kernels import KERNELS
from ..common.errors import DnnstackError
from ..common.records import dataclass
from ..graph import ops
from ..graph.geometry import Window
from ..graph.graph import DType, Op, Tensor

Array = NDArray[Any]
# Random numbers, and how large sizes may be: 1 for what is slow.
Draw = Callable[[np.random.Generator, int], Op]
# The rate of an update that is checked.
_RATE = 0.5
_UPDATED = {"g": "gradients", "w": "parameters", "v": "buffers"}


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
    """``kind``: what it is in a graph; ``further``: numbers with types, beside the sizes of arrays;
    ``takes``: whether a kernel can compute an operation; ``tolerance``: relative, from 1 on.
    """

    name: str
    formula: str
    arguments: tuple[Argument, ...]
    further: Mapping[str, str]
    loops: str
    kind: type[Op]
    takes: Callable[[Any], bool]
    draw: Draw
    tolerance: float = 1e-3

    @property
    def numbers(self) -> dict[str, str]:
        """Every number that a kernel gets, with its type, in order."""
        dims = [dim for argument in self.arguments for dim in argument.dims]
        return {**dict.fromkeys(dims, "int"), **self.further}

    def values(self, op: Any, lr: float = _RATE) -> tuple[float, ...]:
        """The numbers of a call."""
        found: dict[str, float] = _further(op, lr)
        for argument in self.arguments:
            shape = self._tensor(op, argument).shape
            sizes = shape if len(argument.dims) > 1 else (prod(shape),)
            found.update(zip(argument.dims, sizes, strict=False))
        return tuple(float(found[name]) for name in self.numbers)

    def calls(self, op: Any) -> list[Any]:
        """An operation for each call of the kernel: an update has one for each parameter."""
        if self.name != "update":
            return [op]
        fields = (*_UPDATED.values(), "weight_decay", "lr_factor")
        return [
            replace(op, **{field: getattr(op, field)[i : i + 1] for field in fields})
            for i in range(len(op.parameters))
        ]

    def _tensor(self, op: Any, argument: Argument) -> Tensor:
        if self.name != "update":
            return getattr(op, argument.name)  # type: ignore[no-any-return]
        # Without momentum the op has no buffer; the kernel gets one that is not kept.
        return (getattr(op, _UPDATED[argument.name]) or op.parameters)[0]  # type: ignore[no-any-return]

    def case(self, op: Any, rng: np.random.Generator) -> Case:
        """A call on small multiples of 1/8, whose sums of products are exact in any order."""
        arrays: dict[str, Array] = {}
        for argument in self.arguments:
            shape = self._tensor(op, argument).shape
            if argument.dtype == "int":
                arrays[argument.name] = rng.integers(-1, op.x.shape[1], shape).astype(np.int32)
            else:
                arrays[argument.name] = (rng.integers(-8, 9, shape) / 8).astype(np.float32)
        exact = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in arrays.items()}
        given: dict[str, Any] = dict(exact)
        if self.name == "update":
            given = {field: (exact[name],) for name, field in _UPDATED.items()}
            given |= {"rates": np.array([_RATE]), "step": np.array([0])}
            given |= {} if op.buffers else {"buffers": ()}
        elif self.name == "loss":
            given["x"] = np.log(1 + np.abs(exact["x"]))
            arrays["x"] = given["x"].astype(np.float32)
        fields = (*op.outputs, *op.updates)
        found = KERNELS.of(op).compute(op, *map(given.get, (*op.inputs, *op.updates)))
        results = dict(zip(fields, found if len(fields) > 1 else (found,), strict=True))
        names = [argument.name for argument in self.arguments if not argument.is_input]
        if self.name == "update":
            results = {n: results[_UPDATED[n]][0] for n in names if results[_UPDATED[n]]}
        else:
            arrays |= {name: np.full_like(arrays[name], np.nan) for name in names}
        arrays = {a.name: a.shaped(arrays[a.name]) for a in self.arguments}
        shown = (a for a in self.arguments if a.name in results)
        expected = {a.name: a.shaped(results[a.name]) for a in shown}
        return Case(described(self, op), arrays, self.values(op), expected)


def described(operation: Operation, op: Any) -> str:
    """The sizes of an operation, as one word for each number."""
    values = zip(operation.numbers, operation.values(op), strict=True)
    return " ".join(f"{name}={value:g}" for name, value in values)


def _further(op: Any, lr: float) -> dict[str, float]:
    match op:
        case ops.MatMul():
            m, n, k = op.mnk
            left, right = (
                ((1, m) if op.transpose_a else (k, 1)),
                ((1, k) if op.transpose_b else (n, 1)),
            )
            return dict(zip(("K", "AM", "AK", "BK", "BN"), (k, *left, *right), strict=True))
        case ops.SgdUpdate():
            numbers = lr * op.factor(0), op.momentum, op.weight_decay[0]
            return dict(zip(("lr", "momentum", "decay"), numbers, strict=True))
    if window := getattr(op, "window", None):
        pairs = zip(("K", "S", "D"), (window.kernel, window.stride, window.dilation), strict=True)
        found = {
            name + axis: v for name, sizes in pairs for axis, v in zip("HW", sizes, strict=True)
        }
        return {**found, "TOP": window.padding[0], "LEFT": window.padding[2]}
    return {}


def _t(name: str, *shape: Any, dtype: DType = "float32") -> Tensor:
    return Tensor(name, tuple(map(int, shape)), dtype)


def _drawn_window(rng: np.random.Generator, size: int, pool: bool) -> tuple[Window, list[int]]:
    """A window, and a picture (H, W) that it fits."""
    kernel, stride, dilation = (tuple(map(int, rng.integers(1, m, 2))) for m in (5, 4, 3))
    # A pool's window has a pixel of the picture in it.
    most = [min(kernel)] * 4 if pool else [4] * 4
    padding = tuple(int(rng.integers(0, m)) for m in most)
    window = Window(kernel, stride, padding, (1, 1) if pool else dilation)  # type: ignore[arg-type]
    return window, [extent + int(rng.integers(0, 5 * size)) for extent in window.extent]


def _conv(kind: type[Op], names: str) -> Draw:
    """Draws a convolution; names: its tensors for x, w and y."""

    def draw(rng: np.random.Generator, size: int) -> Op:
        window, picture = _drawn_window(rng, size, pool=False)
        n, c, o = rng.integers(1, [4, 2 + 2 * size, 5 * size])
        shapes = (n, c, *picture), (o, c, *window.kernel), (n, o, *window.output(*picture))
        found = {k: _t(k, *shape) for k, shape in zip(names.split(), shapes, strict=True)}
        return kind(window=window, **found)

    return draw


def _pool(rng: np.random.Generator, size: int) -> Op:
    window, picture = _drawn_window(rng, size, pool=True)
    n, c = rng.integers(1, [4, 2 + 2 * size])
    y = _t("y", n, c, *window.output(*picture))
    return ops.Pool2d(x=_t("x", n, c, *picture), y=y, window=window, kind="max")


def _matmul(rng: np.random.Generator, size: int) -> Op:
    m, n, k = rng.integers(1, 13 * size, 3)
    ta, tb = map(bool, rng.integers(0, 2, 2))
    a, b = _t("a", *((k, m) if ta else (m, k))), _t("b", *((n, k) if tb else (k, n)))
    return ops.MatMul(a=a, b=b, c=_t("c", m, n), transpose_a=ta, transpose_b=tb)


def _relu(rng: np.random.Generator, size: int) -> Op:
    shape = rng.integers(1, [5, 75 * size])
    return ops.Activation(x=_t("x", *shape), y=_t("y", *shape), kind="relu")


def _loss(rng: np.random.Generator, size: int) -> Op:
    n, k = rng.integers(1, [75 * size, 20])
    target = _t("target", n, dtype="int32")
    return ops.RowLoss(
        x=_t("x", n, k), target=target, loss=_t("loss", 1), formula=ops.CrossEntropy()
    )


def _update(rng: np.random.Generator, size: int) -> Op:
    shape, momentum = rng.integers(1, [40, 10 * size]), float(rng.integers(0, 2) / 2)
    g, w, v = (_t(name, *shape) for name in "gwv")
    rates, step = _t("rates", 1), _t("step", 1, dtype="int64")
    return ops.SgdUpdate(
        gradients=(g,),
        rates=rates,
        step=step,
        parameters=(w,),
        buffers=(v,) if momentum else (),
        momentum=momentum,
        weight_decay=(float(rng.integers(0, 2) / 4),),
    )


def _is_plain(op: Any) -> bool:
    """Whether nothing was united with the operation; a product's bias is one."""
    united = ("bias", "bias_grad", "activation")
    return getattr(op, "groups", 1) == 1 and not any(getattr(op, name, None) for name in united)


def _is_mean(op: ops.RowLoss) -> bool:
    plain = op.formula == ops.CrossEntropy() and op.reduction == "mean"
    return plain and op.target.dtype == "int32"


_GRAPH: Mapping[str, Sequence[Any]] = {
    "conv2d": (ops.Conv2d, _is_plain, _conv(ops.Conv2d, "x w y")),
    "conv2d_backward_data": (
        ops.Conv2dBackwardData,
        _is_plain,
        _conv(ops.Conv2dBackwardData, "dx w dy"),
    ),
    "conv2d_backward_filter": (
        ops.Conv2dBackwardFilter,
        _is_plain,
        _conv(ops.Conv2dBackwardFilter, "x dw dy"),
    ),
    "matmul": (ops.MatMul, _is_plain, _matmul),
    "max_pool2d": (ops.Pool2d, lambda op: op.kind == "max" and op.window.dilation == (1, 1), _pool),
    "relu": (ops.Activation, lambda op: op.kind == "relu", _relu),
    "loss": (ops.RowLoss, _is_mean, _loss, 1e-5),
    "update": (ops.SgdUpdate, lambda op: not op.nesterov, _update, 1e-5),
}


def _read() -> dict[str, Operation]:
    text = resources.files(__package__).joinpath("operations.txt").read_text("utf-8")
    found = {}
    for part in text.split("\n\n"):
        head, formula, declared, *loops = part.strip().splitlines()
        name = head.strip("[]")
        arrays, _, numbers = declared.partition(";")
        arguments = tuple(
            Argument(array, dtype, bool(const), tuple(filter(None, dims.split(","))))
            for const, dtype, array, dims in re.findall(r"(const )?(\w+) (\w+)\[([\w,]*)\]", arrays)
        )
        further = {number: dtype for dtype, number in re.findall(r"(\w+) (\w+)", numbers)}
        found[name] = Operation(name, formula, arguments, further, "\n".join(loops), *_GRAPH[name])
    return found


OPERATIONS = _read()
