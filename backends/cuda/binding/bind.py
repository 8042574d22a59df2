"""Binder: turns the operations of one section into a list of launches on one or more streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from math import prod
from typing import Any, TypeVar

import numpy as np

from ....common.errors import ShapeError
from ....common.records import dataclass
from ....graph.graph import EXTERNAL, SHARED, Graph, Op, Tensor
from ....graph.ops import SgdUpdate
from ...base import Precision
from ...registry import Registry
from ..libraries.candidates import Candidates
from ..libraries.conv_graph import ConvGraph
from ..libraries.cublas_lt import Algorithms
from ..libraries.kernels import i64
from ..libraries.layout import BFLOAT, FLOAT, Layout, Number, plain
from ..libraries.runtime import address_of
from ..libraries.timing import captured_seconds
from .buffer import Buffer
from .choices import Choice, parsed
from .decisions import Decisions, Together
from .early_sums import changes, early_sums, only_gradients
from .launch_list import LaunchList
from .launches import Stream
from .layouts import Geometry, bf16_tensors
from .reuse import Reuse
from .slices import Slices, places_of, sum_of_rows, table_of
from .store import Store

OpT = TypeVar("OpT", bound=Op)
Bind = Callable[["Binder", Any], None]
KERNELS: Registry[Bind] = Registry("cuda")
# What an operation needs that depends on no other of the step: bound first, on the last stream.
PREPARATIONS: dict[type[Op], Bind] = {}
# What an operation becomes instead where the calls are to be a lecture's.
LECTURE: dict[type[Op], Bind] = {}


def binds(
    kind: type[OpT], kernels: dict[type[Op], Bind] = KERNELS
) -> Callable[[Callable[[Binder, OpT], None]], Bind]:
    """Register the function that binds one type of operation."""

    def register(kernel: Callable[[Binder, OpT], None]) -> Bind:
        kernels[kind] = kernel
        return kernel

    return register


@dataclass(frozen=True)
class Arithmetic:
    """exact: no operand rounded to TF32; dtype: the type of activations and copies of weights;
    lecture: the calls of training are those of lecture.py; share: activations share memory."""

    exact: bool
    dtype: Number
    deterministic: bool
    fusion: bool
    lecture: bool = False
    share: bool = False

    @classmethod
    def of(cls, precision: Precision, fusion: bool, deterministic: bool = True) -> Arithmetic:
        """That of a precision that a device has."""
        dtype: Number = BFLOAT if precision == "bf16" else FLOAT
        return cls(precision == "fp32", dtype, deterministic, fusion)

    @property
    def mark(self) -> tuple[object, ...]:
        """What choices by timing depend on besides."""
        return (self.deterministic, *["lecture"] * self.lecture)


class Binder(LaunchList):
    """Binds a section; ``choices`` say how pictures lie on the device and which plans run."""

    def __init__(
        self,
        graph: Graph,
        store: Store,
        streams: Sequence[Stream],
        arithmetic: Arithmetic,
        choices: Mapping[str, str],
        beside: Callable[[], Stream] | None = None,
    ) -> None:
        """``beside``: makes the stream for what ranks add up while backward goes on."""
        overlap = choices["overlap"] if "overlap" in choices and streams[0].overlaps() else ""
        self._ops, self._beside = graph.ops, set[int]()
        if beside:
            self._ops, self._beside = early_sums(graph.ops, store.small_sums)
        more = beside() if beside and self._beside else None
        apart, quiet = (choices.get(key, "").split(",") for key in ("apart", "quiet"))
        super().__init__(store.cuda, streams, overlap, apart, more, quiet if overlap else ())
        self.graph, self.store, self.arithmetic, self.choices = graph, store, arithmetic, choices
        self.geometry = Geometry(choices, arithmetic.dtype)
        self.buffers = store.gradients(graph.name)
        wait = partial(self.join, range(len(streams)))
        self.reuse = Reuse(graph, self._ops if arithmetic.share else (), store.zeros, wait)
        self.convolutions: dict[str, ConvGraph] = {}
        # By the name of a choice: other ways to compute a convolution or a product, each with what
        # its choices begin with, and how long a kernel takes that must finish a library's result.
        self.variants: dict[str, list[tuple[str, Callable[[], Candidates]]]] = defaultdict(list)
        self.tails: dict[str, Callable[[int], float]] = {}
        # Likewise: seconds that a convolution spares which leaves the sums of a batch norm.
        self.spared: dict[str, Callable[[int], float]] = {}
        # By the name of a choice: a product that the launch of the update may take along.
        self.at_once: dict[str, Callable[[], Candidates]] = {}
        self.together: list[Together] = []
        self.products: dict[str, Algorithms] = {}
        # By the name of a choice: for each kernel that may run, seconds of the fastest of runs.
        self.either: dict[str, dict[str, Callable[[int], float]]] = defaultdict(dict)
        self.decisions = Decisions()
        self.decisions.merged.update(map(id, store.small_sums.merged()))
        self._bf16 = bf16_tensors(graph) if arithmetic.dtype == BFLOAT else frozenset[Tensor]()
        self.workspaces: dict[int, list[tuple[int, Callable[[int], None]]]] = {}
        self._op: Op = graph.ops[0] if graph.ops else Op()
        self._copies: dict[tuple[Tensor, Layout], tuple[Buffer, int]] = {}
        self._writers: dict[Tensor, int] = {}
        self._pending: list[Slices] = []
        self._in_slices: dict[Tensor, Op] = {}

    def bind(self) -> None:
        """Bind every operation in order; then the section wants its workspaces."""
        # Beside others run the operations that only gradients of parameters come from: all but the
        # last of what comes before the first update.
        before = [op for op in self.graph.ops if not changes(op)]
        aside = {id(op) for op in before[:-1] if op.outputs and only_gradients(op)}
        lanes = cycle(range(1, self.lanes))
        self.current = self.lanes - 1
        for op in self.graph.ops:
            if type(op) in PREPARATIONS:
                self._op = op
                self.join([0])
                PREPARATIONS[type(op)](self, op)
        for op in self.reuse.counted(self._ops, self.steps):
            if id(op) in self.decisions.merged:
                continue
            self.current = next(lanes, 0) if id(op) in aside else 0
            self._op = op
            if self._needs_sums(op) and not self.adds_up_itself(op):
                self.add_up()
            if id(op) in self._beside:
                self.current = self.lanes
            self._wait_for(op)
            bind = LECTURE.get(type(op)) if self.arithmetic.lecture else None
            (bind or KERNELS.of(op))(self, op)
            self._writers.update(dict.fromkeys(op.writes(), self.current))
        self.current = 0
        self.add_up()
        self.join(range(len(self.streams)))

    def close(self) -> None:
        """Forget everything.

        Launches and what they are made of refer to this in circles: the memory of the device that
        they hold would wait for a collection of garbage.
        """
        self.live.close()
        vars(self).clear()

    def tensors(self) -> Iterator[tuple[Tensor, Buffer]]:
        """What is held for the section's tensors: their homes, and copies in other layouts."""
        yield from self.buffers.items()
        yield from ((tensor, copy) for (tensor, _), (copy, _) in self._copies.items())

    def seconds_of(self, op: Op, repeats: int) -> float:
        """Device seconds of an operation's launches, one after the other."""
        own = [step for step in self.steps if step.call is not None and step.call.op is op]
        streams = [self.streams[step.stream].cuda for step in own]
        return sum(
            captured_seconds(step.launch, stream, repeats)
            for step, stream in zip(own, streams, strict=True)
        )

    def give_workspaces(self, workspaces: Mapping[int, Any]) -> None:
        """Fix the workspace of every stream, an array of bytes, which other sections may share."""
        for stream, asked in self.workspaces.items():
            address = address_of(self.keep(workspaces[stream]))
            for _, bind in asked:
                bind(address)

    def _wait_for(self, op: Op) -> None:
        if self.current:
            self.join([0])
        if changes(op):
            self.join(range(len(self.streams)))
        self.join({self._writers[t] for t in op.reads() if t in self._writers})

    def choice(self, op: Op, kind: str) -> str:
        """The name of an operation's plan among the choices: plans depend on the batch size."""
        return f"{self.graph.name}/{op.origin[0].layer if op.origin else ''}/{kind}"

    def chosen(self, name: str) -> Choice | None:
        """What is chosen under a name, if anything. Raises ChoiceError if it is no choice."""
        return parsed(name, self.choices[name]) if name in self.choices else None

    def offer(self, name: str, kind: type[Choice], make: Callable[[], Candidates]) -> None:
        """Let a search also try candidates whose choices are of this kind."""
        self.variants[name].append((kind.mark, make))

    def in_training(self, op: Op, kind: str) -> str:
        """The choice of the same layer in the first section that trains, for one that does not:
        only those that train are timed. "" if there is none."""
        end = self.choice(op, kind).removeprefix(self.graph.name)
        found = [] if self.graph.training else [key for key in self.choices if key.endswith(end)]
        return self.choices[min(found, key=len)] if found else ""

    def number(self, tensor: Tensor) -> str:
        """How an activation is stored: float32, or bfloat16 if that is the precision."""
        return BFLOAT if tensor in self._bf16 else tensor.dtype

    def home(self, tensor: Tensor) -> Buffer:
        """The buffer that holds a tensor; one that comes from outside starts zeroed, row-major."""
        held = self._held(tensor)
        if tensor not in held:
            held[tensor] = self.store.zeros(plain(tensor.shape, tensor.dtype))
        return held[tensor]

    def _held(self, tensor: Tensor) -> dict[Tensor, Buffer]:
        return self.store.buffers if tensor.role in SHARED else self.buffers

    def data(self, tensor: Tensor) -> Any:
        """The device array of a data set as it is now; it may be exchanged, see generation.

        Of one that stays in host memory, the part that the present step reads.
        """
        if self.store.feeds.holds(tensor):
            return self.store.feeds.staged(self.graph.name, tensor)
        return self.store.data_of(tensor)

    def words(self, held: Any) -> Any:
        """Numbers of 32 bits, a Buffer's or an array, as the integers that kernels copy."""
        array = held.array if isinstance(held, Buffer) else held
        return array if str(array.dtype) == "int32" else array.view("int32")

    def want(self, tensor: Tensor, layout: Layout) -> Buffer:
        """The tensor in this layout: its home, or a copy that a launch makes now."""
        home = self.home(tensor)
        if home.layout.same(layout):
            return home
        if tensor.role == "parameter" and home.layout.same(replace(layout, dtype=FLOAT)):
            return self.store.bf16_copy(tensor)
        key = (tensor, layout)
        if key in self._copies and tensor.role in ("activation", "gradient"):
            copy, stream = self._copies[key]
            self.join([stream])
            return copy
        copy = self._copies[key][0] if key in self._copies else self.store.zeros(layout)
        self._copies[key] = (copy, self.current)
        self.convert(home, copy, tensor.name)
        return copy

    def floats(self, tensor: Tensor) -> Buffer:
        """The tensor row-major in float32 without padding: what any plain call takes."""
        return self.want(tensor, plain(tensor.shape, tensor.dtype))

    def output(self, tensor: Tensor, layout: Layout | None = None) -> Buffer:
        """The zeroed buffer to write an output in this layout; a gradient's lies in its arena.

        Without a layout in that which is planned, else row-major.
        """
        layout = layout or self.planned(tensor) or plain(tensor.shape, tensor.dtype)
        if tensor not in self.buffers:
            self.buffers[tensor] = self.reuse.room(tensor, layout)
        held = self.buffers[tensor]
        if not held.layout.same(layout):
            raise ShapeError(f"{tensor.name}: laid out {held.layout}, not {layout}")
        return held

    def planned(self, tensor: Tensor) -> Layout | None:
        """The layout of a tensor that has a buffer already: parameters, states, gradients."""
        held = self._held(tensor).get(tensor)
        return None if held is None else held.layout

    def alias(self, tensor: Tensor, buffer: Buffer, layout: Layout) -> None:
        """Let a tensor share another's bytes."""
        self.buffers[tensor] = Buffer(buffer.array, layout)
        self.reuse.join(tensor, buffer)

    def convert(self, source: Buffer, target: Buffer, name: str) -> None:
        """Copy between layouts, in the order of the target's memory."""
        a, b = source.layout, target.layout
        _, come = a.among(b)
        whole, go = b.among(a)
        axes = sorted(range(4), key=lambda axis: -go[axis])
        sizes = [whole[axis] for axis in axes]
        steps = [step[axis] for step in (come, go) for axis in axes]
        size, cast = prod(sizes), self.numbers(*sizes[1:], *steps)
        if _alike(a, b) and source.pointer % 16 == target.pointer % 16 == 0:
            size, cast = size // 8, None
        kernel = "convert_same"
        if a.dtype != b.dtype:
            kernel = "convert_from_bf16" if a.dtype == BFLOAT else "convert_to_bf16"
        named = ("elementwise.cu", kernel, BFLOAT if BFLOAT in (a.dtype, b.dtype) else FLOAT)
        shown = {"tensor": name, "from": a.dtype, "to": b.dtype}
        self.kernel(self._op, named, size, (source, target, i64(size), cast), shown)

    def argument(self, value: Any) -> Any:
        """As in LaunchList; a tensor stands for its home."""
        return super().argument(self.home(value) if isinstance(value, Tensor) else value)

    def workspace(self, size: int, bind: Callable[[int], None]) -> None:
        """Ask for bytes of the stream's workspace; ``bind`` gets its address."""
        self.workspaces.setdefault(self.current, []).append((size, bind))

    def poison(self) -> None:
        """NaN in all that every run writes before it reads it; zeros where a layout is padded, for
        these are written nowhere and read everywhere."""
        # A parameter under another shape is an activation that must stay.
        outside = {b.pointer for t, b in self.store.buffers.items() if t.role in EXTERNAL}
        inside = (b for t, b in self.buffers.items() if t.role not in EXTERNAL)
        held = [buffer for buffer in inside if buffer.pointer not in outside]
        for buffer in (*held, *(copy for copy, _ in self._copies.values())):
            layout = buffer.layout
            integers = layout.item[0] != "f" and layout.dtype != BFLOAT
            values = np.full(layout.shape, -1 if integers else np.nan)
            buffer.array.set(layout.pack(values))
        for array in self._scratch:
            array.view("uint8").fill(0xFF)

    def slices(
        self, op: Op, source: Any, first: int, count: int, stride: int, target: Tensor, size: int
    ) -> None:
        """Say that ``target`` is the sum of rows source[first + i * stride :][:size], i < count."""
        held, stream = self.output(target), self.current
        found = Slices(
            op, stream, target, held, address_of(source) + 4 * first, count, stride, size
        )
        self._pending.append(found)
        self._in_slices[target] = op

    def summed(self, op: Op, bias_grad: Tensor) -> bool:
        """Whether a kernel of another operation than its own has summed a bias's gradient."""
        return self._in_slices.get(bias_grad, op) is not op

    def _needs_sums(self, op: Op) -> bool:
        targets = {id(pending.held.array) for pending in self._pending}
        reads = self.store.small_sums.reads(op)
        read = [self.buffers[tensor] for tensor in reads if tensor in self.buffers]
        return any(id(buffer.array) in targets for buffer in read)

    def adds_up_itself(self, op: Op) -> bool:
        """Whether the kernel of an operation adds up the slices of what it reads: ``taken``."""
        return self.arithmetic.fusion and isinstance(op, SgdUpdate)

    def taken(self, targets: Iterable[Tensor]) -> list[Slices]:
        """The slices that wait to become one of these: whoever takes them adds them up."""
        wanted = set(targets)
        found = [pending for pending in self._pending if pending.target in wanted]
        self._pending = [pending for pending in self._pending if pending.target not in wanted]
        self.join({pending.stream for pending in found})
        return found

    def add_up(self) -> None:
        """Add up all slices that wait, in one launch."""
        if not self._pending:
            return
        pending = self.taken([each.target for each in self._pending])
        where = places_of(pending)
        segments, places = self.upload(table_of(pending)), self.upload(where.ravel())
        origin = tuple(dict.fromkeys(o for p in pending for o in p.op.origin))
        op, kernel = replace(pending[0].op, origin=origin), ("elementwise.cu", "sum_slices")
        shown = {"sums": len(pending), "slices": max(each.count for each in pending)}
        self.kernel(op, kernel, (len(where),), (segments, places), shown)

    def gathers_for(self, other: Binder) -> bool:
        """Whether a launch of this section may gather what another begins with."""
        own = self.decisions.batch
        return own is not None and own is other.decisions.batch and self._joined is not None

    def bias_gradient_of(self, dy: Tensor) -> tuple[Op, Tensor] | None:
        """The operation that sums dy over its rows, and its result, if a kernel may do it on the
        way: where fusion is on."""
        for op in self.graph.ops if self.arithmetic.fusion else ():
            summed, result = sum_of_rows(op)
            if result is not None and summed == dy and not self.summed(op, result):
                return op, result
        return None


def _alike(a: Layout, b: Layout) -> bool:
    """Whether elements lie in one order without gaps, so that they can be taken in eights."""
    return a.same(replace(b, dtype=a.dtype)) and a.size == prod(a.sizes) and a.size % 8 == 0


def workspace_sizes(binders: Iterable[Binder]) -> dict[int, int]:
    """The bytes of the workspaces that sections share, by stream: they do not run at one time."""
    sizes: dict[int, int] = defaultdict(lambda: 16)
    for binder in binders:
        for stream, asked in binder.workspaces.items():
            sizes[stream] = max(sizes[stream], *(size for size, _ in asked))
    return sizes
