"""Optimizers, averages, sums of gradients: one launch for all tensors of an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graph.graph import Op, Tensor
from ....graph.ops import Accumulate, AdamUpdate, Average, ElementwiseUpdate, Mask
from ....graph.ops.updates import ParameterUpdate
from ...live import Live
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..binding.launch_list import Varying
from ..libraries.kernels import THREADS, f32
from ..libraries.layout import ceil_div

# Elements that a block works on: four a thread.
PIECE = 4 * THREADS
FILE = "optimizers.cu"
# Structures of optimizers.cu: addresses, a size, what else a kernel needs of a tensor.
_RULE = [("size", "i4"), ("factor", "f4"), ("decay", "f4"), ("start", "i4")]
_ADAM = np.dtype([(name, "u8") for name in ("p", "g", "m", "v", "copy")] + _RULE)
_MEAN = np.dtype("u8,u8,u8,i4,i4")


def table(b: Binder, kind: np.dtype[Any], rows: Sequence[tuple[Any, ...]]) -> Any:
    """An array of structures on the device."""
    return b.upload(np.array(list(rows), kind))


def ruled(
    rows: NDArray[Any], factor: str = "factor", decay: str = "decay"
) -> Callable[[ParameterUpdate], NDArray[Any]]:
    """The same structures with the factors of rates and the weight decays of an update in them."""

    def read(op: ParameterUpdate) -> NDArray[Any]:
        made = rows.copy()
        made[factor] = [op.factor(i) for i in range(len(op.parameters))]
        made[decay] = op.weight_decay
        return made

    return read


def pieces(b: Binder, sizes: Sequence[int]) -> tuple[Any, list[int]]:
    """(tensor, first element) of every block, on the device, and how many blocks a tensor has."""
    places = [(i, first) for i, size in enumerate(sizes) for first in range(0, size, PIECE)]
    blocks = [ceil_div(size, PIECE) for size in sizes]
    return b.upload(np.asarray(places, "int32").ravel()), blocks


def like(b: Binder, tensor: Tensor, model: Buffer) -> int:
    """Address of a tensor in the layout of another."""
    return b.want(tensor, model.layout).pointer


def _launch(
    b: Binder,
    op: Op,
    kernel: tuple[str, str],
    kind: np.dtype[Any],
    tensors: Sequence[Tensor],
    row: Callable[[int, Buffer], tuple[Any, ...]],
    arguments: Sequence[Any],
    shown: Mapping[str, object],
    live: Live[Any] | None = None,
    **compiled: Any,
) -> None:
    """A launch for all tensors; row(i, buffer): the structure of one, with _RULE for a live one."""
    homes = [b.home(tensor) for tensor in tensors]
    host = np.array([row(i, home) for i, home in enumerate(homes)], kind)
    rows = b.upload(host) if live is None else b.varying(live, ruled(host))
    where, blocks = pieces(b, [home.layout.size for home in homes])
    b.kernel(op, kernel, (sum(blocks),), (rows, where, *arguments), shown, **compiled)


def _rule(op: AdamUpdate | ElementwiseUpdate, i: int, home: Buffer) -> tuple[Any, ...]:
    return home.layout.size, op.factor(i), op.weight_decay[i], op.start[i]


@binds(AdamUpdate)
def adam_update(b: Binder, op: AdamUpdate) -> None:
    def row(i: int, home: Buffer) -> tuple[Any, ...]:
        gradient = like(b, op.gradients[i], home)
        states = (b.home(op.means[i]).pointer, b.home(op.squares[i]).pointer)
        copy = b.store.bf16_pointer(op.parameters[i])
        return home.pointer, gradient, *states, copy, *_rule(op, i, home)

    live = b.live.add(op, ("lr_factor", "weight_decay", "beta1", "beta2", "eps"))
    betas = (
        Varying(live, lambda op: np.float64(op.beta1)),
        Varying(live, lambda op: np.float64(op.beta2)),
    )
    eps = Varying(live, lambda op: f32(op.eps))
    arguments = (b.data(op.rates), op.step, *betas, eps, op.decoupled)
    shown = {"parameters": len(op.parameters), "beta1": op.beta1, "beta2": op.beta2}
    _launch(b, op, (FILE, "adam_update"), _ADAM, op.parameters, row, arguments, shown, live)


def segment(states: int) -> np.dtype[Any]:
    """Segment of elementwise_update.cu, whose array of addresses is never empty."""
    addresses = [(name, "u8") for name in ("p", "g", "copy")]
    return np.dtype([*addresses, ("states", "u8", (max(states, 1),)), *_RULE])


@binds(ElementwiseUpdate)
def elementwise_update(b: Binder, op: ElementwiseUpdate) -> None:
    families = op.families().values()

    def row(i: int, home: Buffer) -> tuple[Any, ...]:
        gradient, copy = like(b, op.gradients[i], home), b.store.bf16_pointer(op.parameters[i])
        states = [b.home(family[i]).pointer for family in families] or [0]
        return home.pointer, gradient, copy, states, *_rule(op, i, home)

    kernel, kind = ("elementwise_update.cu", "elementwise_update"), segment(len(families))
    arguments, shown = (b.data(op.rates), op.step), {"parameters": len(op.parameters)}
    compiled = {"defines": (("STATES", len(families)),), "formula": op.formula}
    live = b.live.add(op, ("lr_factor", "weight_decay"))
    _launch(b, op, kernel, kind, op.parameters, row, arguments, shown, live, **compiled)


def _beside(
    b: Binder, op: Average | Mask, name: str, others: Sequence[Tensor], *given: Any, **shown: object
) -> None:
    """A launch over the values, each with another tensor that lies as it does."""

    def row(i: int, home: Buffer) -> tuple[Any, ...]:
        copy = b.store.bf16_pointer(op.values[i])
        return like(b, others[i], home), home.pointer, copy, home.layout.size, 0

    details = {"tensors": len(op.values), **shown}
    _launch(b, op, (FILE, name), _MEAN, op.values, row, given, details)


@binds(Average)
def average(b: Binder, op: Average) -> None:
    _beside(b, op, "average", op.averages, b.data(op.decays), op.step, op.pull, pull=op.pull)


@binds(Mask)
def mask(b: Binder, op: Mask) -> None:
    _beside(b, op, "mask", op.masks)


@binds(Accumulate)
def accumulate(b: Binder, op: Accumulate) -> None:
    slots = op.slots()
    kind = np.dtype([("g", "u8"), ("slots", "u8", (len(slots),)), ("size", "i4"), ("unused", "i4")])

    def row(i: int, home: Buffer) -> tuple[Any, ...]:
        waiting = [b.home(level[i]).pointer for level in slots]
        return like(b, op.gradients[i], home), waiting, home.layout.size, 0

    arguments = (op.step, op.parts, f32(op.scale))
    shown = {"tensors": len(op.sums), "parts": op.parts}
    compiled = {"defines": (("LEVELS", len(slots)),)}
    _launch(b, op, (FILE, "accumulate"), kind, op.sums, row, arguments, shown, None, **compiled)
