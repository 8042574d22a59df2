"""LaunchList: launches in order, on one or more streams that wait for each other if they must."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....common.records import dataclass
from ....graph.graph import Op
from ....graph.ops import Advance
from ....graph.ops.formulas import Formula
from ....graph.ops.updates import ParameterUpdate
from ...base import BoundCall
from ...live import Live, LiveOps
from ..libraries.kernels import THREADS, Defines, Grid, Kernel, i32, linear_grid
from ..libraries.layout import FLOAT
from .buffer import Buffer
from .launches import Launch, Step, Stream

OpT = TypeVar("OpT", bound=Op)
# One of our kernels: file and name, and the type of activations if that is not float32.
Named = tuple[str, str] | tuple[str, str, str]


@dataclass(frozen=True)
class Varying(Generic[OpT]):
    """An argument of a kernel that ``read`` makes of an operation, whatever that is by then."""

    live: Live[OpT]
    read: Callable[[OpT], Any]


class LaunchList:
    """What a section launches; ``current`` is the stream that the next launch goes to, 0 the main
    one.

    ``cuda``: see Store. ``overlaps``: CHAINS or JOINS, or "" where every launch waits for the one
    in front; ``apart``: kernels that always do; ``quiet``: those that no other may overlap with.
    ``beside``: one more stream, for what ranks do together while the others compute.
    """

    def __init__(
        self,
        cuda: Any,
        streams: Sequence[Stream],
        overlaps: str = "",
        apart: Collection[str] = (),
        beside: Stream | None = None,
        quiet: Collection[str] = (),
    ) -> None:
        self.cuda = cuda
        # How many of the streams compute.
        self.lanes = len(streams)
        self.streams = streams = [*streams, *([] if beside is None else [beside])]
        self.overlaps = overlaps
        self._apart, self._quiet = apart, quiet
        self.current = 0
        self._cuda_streams = [stream.cuda for stream in streams]
        self.steps: list[Step] = []
        self._counts = [0] * len(streams)
        # -1: not even begun, so that the first launch of a stream waits for the main one.
        self._seen = [[-1] * len(streams) for _ in streams]
        self._keep: list[Any] = []
        self._scratch: list[Any] = []
        self._early: tuple[int, Step] | None = None
        self._joined: tuple[int, Step] | None = None
        self._kernels: list[Kernel] = []
        # What may change of the operations; whether a launch has other arguments for it.
        self.live, self._relaunched = LiveOps(), False

    @property
    def stream(self) -> Stream:
        """The stream of the operation that is bound now."""
        return self.streams[self.current]

    def keep(self, thing: Any) -> Any:
        """Hold something alive as long as the section."""
        self._keep.append(thing)
        return thing

    def scratch(self, size: int, dtype: str) -> Any:
        """A flat array that every run writes before it reads it."""
        array = self.keep(self.cuda.empty(size, dtype))
        self._scratch.append(array)
        return array

    def numbers(self, *values: float, dtype: str = "int32") -> Any:
        """A few numbers on the device."""
        return self.upload(np.asarray(values, dtype))

    def upload(self, array: NDArray[Any]) -> Any:
        """A host array on the device; structures as bytes."""
        return self.keep(self.cuda.asarray(array.view("u1") if array.dtype.fields else array))

    def varying(self, live: Live[OpT], read: Callable[[OpT], NDArray[Any]]) -> Any:
        """A host array that ``read`` makes of an operation, on the device; it is written again when
        that is another one."""

        def bytes_of(op: OpT) -> NDArray[Any]:
            array = read(op)
            return array.view("u1") if array.dtype.fields else array

        held = self.upload(bytes_of(live.op))
        live.on_change(lambda op: held.set(bytes_of(op)))
        return held

    def zeros(self, size: int, dtype: str = FLOAT) -> Any:
        """A flat array of zeros."""
        return self.keep(self.cuda.zeros(size, dtype))

    def counter(self) -> Any:
        """A counter of blocks for one launch, see ``come`` in common.cuh."""
        return self.zeros(1, "uint32")

    def join(self, others: Iterable[int]) -> None:
        """Let the present stream wait for what the others have been given so far."""
        for other in others:
            if other == self.current or self._seen[self.current][other] == self._counts[other]:
                continue
            # A stream that has waited belongs to a capture, even if nothing was launched on it.
            if other and not self._counts[other] and max(self._seen[other]) < 0:
                continue
            self._seen[self.current][other] = self._counts[other]
            self.steps.append(self._wait(self.current, other))

    def mark(self) -> Any:
        """An event behind what the present stream has been given so far."""
        event, stream = self.cuda.Event(), self.stream.cuda
        self.steps.append(Step(lambda: event.record(stream), self.current))
        return event

    def wait_for_mark(self, event: Any) -> None:
        """Let the present stream wait for a mark of another."""
        stream = self.stream.cuda
        self.steps.append(Step(lambda: stream.wait_event(event), self.current))

    def add(
        self,
        op: Op,
        library: str,
        function: str,
        launch: Callable[[], None],
        details: Mapping[str, object] | None = None,
        implementation: str = "",
        behind: Callable[[], None] | None = None,
    ) -> None:
        """Append a launch on the present stream; ``behind``: see Step."""
        shown = {key: str(value) for key, value in (details or {}).items()}
        if self.current:
            shown["stream"] = str(self.current)
        self._counts[self.current] += 1
        call = BoundCall(op, library, function, implementation, shown)
        self.steps.append(Step(launch, self.current, call, behind))

    def kernel(
        self,
        op: Op,
        kernel: Named,
        grid: Grid | int,
        arguments: Sequence[Any],
        details: Mapping[str, object] | None = None,
        block: Grid = (THREADS,),
        shared: int = 0,
        defines: Defines = (),
        formula: Formula | None = None,
        wrap: Callable[[Launch], Launch] = lambda launch: launch,
    ) -> None:
        """Append a launch of one of our kernels; grid: blocks, or the elements to share out.

        Arguments are buffers, device arrays, None for a null pointer, integers for a C int, or
        NumPy scalars of the kernel's types, or Varying. ``wrap``: makes what is called instead of
        the launch.
        """
        if kernel[1] in self._quiet:
            defines = (*defines, ("QUIET", 1))
        found = self._found(*kernel, defines=defines, formula=formula)
        blocks = linear_grid(grid) if isinstance(grid, int) else grid
        stream = self.stream.cuda
        overlaps = self.overlaps and self.current < self.lanes and kernel[1] not in self._apart

        def made() -> tuple[Launch, Launch | None]:
            given = (stream, blocks, block, [*map(self.argument, arguments)], shared)
            behind = wrap(found.overlapping(*given)) if overlaps else None
            return wrap(found.launch(*given)), behind

        launch, behind = self._following(arguments, made)
        shown = {**dict(defines), **(formula.constants() if formula else {}), **(details or {})}
        self.add(op, "dnnstack", kernel[1], launch, shown, kernel[0], behind)

    def in_front(self) -> str:
        """The function that was launched last on the present stream; "" if none was."""
        own = (step.call for step in reversed(self.steps) if step.stream == self.current)
        return next((call.function for call in own if call is not None), "")

    def _following(
        self, arguments: Sequence[Any], made: Callable[[], tuple[Launch, Launch | None]]
    ) -> tuple[Launch, Launch | None]:
        """What is made, or, if an argument may vary, what then calls what is made of it anew."""
        varying = [each for each in arguments if isinstance(each, Varying)]
        held = made()
        if not varying:
            return held

        def values() -> list[Any]:
            return [each.read(each.live.op) for each in varying]

        known = values()

        def again(_: Op) -> None:
            nonlocal held, known
            if values() != known:
                held, known, self._relaunched = made(), values(), True

        for live in {id(each.live): each.live for each in varying}.values():
            live.on_change(again)
        # Whether there is a launch that overlaps never changes.
        return lambda: held[0](), held[1] and (lambda: (held[1] or held[0])())

    def was_relaunched(self) -> bool:
        """Whether launches have got other arguments since this was asked last."""
        found, self._relaunched = self._relaunched, False
        return found

    def _found(self, *named: Any, **how: Any) -> Kernel:
        """A kernel, which may be compiled while others are bound."""
        found = self.stream.kernel(*named, **how)
        found.begin()
        self._kernels.append(found)
        return found

    def compile(self) -> None:
        """Have every kernel ready to be launched. Raises LibraryError if one cannot be."""
        for kernel in self._kernels:
            kernel.ready()

    def aside(self, bind: Callable[[], None]) -> list[Step]:
        """What ``bind`` would append: another way to do what is appended then."""
        steps, counts = self.steps, [*self._counts]
        self.steps = []
        try:
            bind()
            return self.steps
        finally:
            self.steps, self._counts = steps, counts

    def host(self, op: Op, work: Callable[[], None], name: str, details: Mapping[str, str]) -> None:
        """Append work on the host, between what is launched before it and what comes after."""
        self.current = 0
        self.join(range(len(self.streams)))
        call = BoundCall(op, "numpy", name, "on the host", details)
        self.steps.append(Step(work, 0, call, on_host=True))
        # Behind it begins another graph, in which every stream waits for the main one first.
        self._counts = [0] * len(self._counts)
        self._seen = [[-1] * len(row) for row in self._seen]

    @property
    def has_host_work(self) -> bool:
        """Whether some of the list cannot be part of a graph."""
        return any(step.on_host for step in self.steps)

    def cudnn(
        self,
        op: Op,
        function: str,
        arguments: Sequence[Any],
        details: Mapping[str, object],
        **shown: object,
    ) -> None:
        """Append a call of cuDNN with its handle and these arguments; shown: in an error."""
        cudnn = self.stream.cudnn
        launch = partial(cudnn.call, function, cudnn.owned, *arguments, **shown)
        self.add(op, "cuDNN", function, launch, details)

    def argument(self, value: Any) -> Any:
        """What a kernel is given for an argument of ``kernel``."""
        if isinstance(value, Varying):
            value = value.read(value.live.op)
        if isinstance(value, Buffer):
            return value.array
        return 0 if value is None else i32(value) if isinstance(value, int) else value

    def early(self, kernel: Named, grid: Grid, arguments: Sequence[Any], shared: int = 0) -> None:
        """Say how the launch just added is made beside the update of the step before."""
        if len(self._cuda_streams) == 1:
            # A stream alone: no library works on it, so it needs no handles.
            self._cuda_streams.append(self.stream.numbered(1))
        given = [*map(self.argument, arguments)]
        found = self._found(*kernel)
        launch = found.launch(self._cuda_streams[1], grid, (THREADS,), given, shared)
        self._early = (len(self.steps) - 1, Step(launch, 1))

    def early_op(self) -> Op | None:
        """The operation whose launch is made beside the update of the step before."""
        call = None if self._early is None else self.steps[self._early[0]].call
        return None if call is None else call.op

    def forget_early(self) -> None:
        """Have no launch made beside the update of the step before."""
        self._early = None

    def joined(self, bind: Callable[[], None]) -> None:
        """Say that the launch just added can gather the next batch too: as ``bind`` appends it."""
        (step,) = self.aside(bind)
        self._joined = (len(self.steps) - 1, step)

    def repeated(self, times: int) -> list[Step]:
        """The launches of ``times`` steps, one after the other; heads but the first are early.

        Early means: in the launch of the update where that is joined, else after everything but
        the updates at a step's end, on another stream than these.
        """
        if times > 1 and self._early is not None and self._joined is not None:
            (head, _), (at, joined) = self._early, self._joined
            first = [*self.steps[:at], joined, *self.steps[at + 1 :]]
            middle = [*first[:head], *first[head + 1 :]]
            last = [*self.steps[:head], *self.steps[head + 1 :]]
            return [*first, *middle * (times - 2), *last]
        end = self._updates()
        if times == 1 or self._early is None or end is None:
            return self.steps * times
        head, early = self._early
        rest = [*self.steps[:head], *self.steps[head + 1 :]]
        other = [stream for stream, count in enumerate(self._counts) if stream != 1 and count]
        fork = [self._wait(1, stream) for stream in other]
        middle = [*rest[: end - 1], *fork, early, *rest[end - 1 :], self._wait(0, 1)]
        first = [*self.steps[:end], *fork, early, *self.steps[end:], self._wait(0, 1)]
        return [*first, *middle * (times - 2), *rest]

    def leads(self, last: LaunchList, times: int) -> list[Step]:
        """The launches of this section and ``last`` in turn, ``times`` times, where the last launch
        of an update gathers what this section begins with: so all but the first do without."""
        assert self._early is not None
        assert last._joined is not None
        (head, _), (at, joined) = self._early, last._joined
        rest = [*self.steps[:head], *self.steps[head + 1 :]]
        other = [*last.steps[:at], joined, *last.steps[at + 1 :]]
        return [*self.steps, *[*other, *rest] * (times - 1), *last.steps]

    def _updates(self) -> int | None:
        """Where the updates of parameters at the end of the step begin, None without any."""
        first = None
        for at in reversed(range(len(self.steps))):
            call = self.steps[at].call
            if call is not None and not isinstance(call.op, (ParameterUpdate, Advance)):
                break
            if call is not None and isinstance(call.op, ParameterUpdate):
                first = at
        return first

    def _wait(self, behind: int, ahead: int) -> Step:
        """Let one stream wait for another."""
        event = self.cuda.Event()
        last, waiting = self._cuda_streams[ahead], self._cuda_streams[behind]

        def wait() -> None:
            event.record(last)
            waiting.wait_event(event)

        return Step(wait, behind)
