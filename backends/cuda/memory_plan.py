"""The device memory that a network needs, known before any of it is allocated. Needs no GPU.

All sections are bound in a dry run, which counts tensors, scratch and tables to the byte for given
choices. The plan is that of the most padding and streams, and remains a bound: other choices that
lie channels-last take no more; rotated filters are counted for all convolutions that may want them;
workspaces of convolutions are as large as a plan may ask; and SLACK is a guess. NCHW is outside of
it: copies for channels-last kernels, such as batch norm's, can make it half as much again. A search
passes over NCHW where that does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from ...common.errors import ConfigError
from ...common.records import dataclass
from ...graph.graph import Graph, Tensor
from ...graph.ops import GatherBatch
from ..base import Calls, Options, Precision
from ..batch import batch_key, parts_of
from . import operations  # noqa: F401  # they register
from .binding.bind import Arithmetic, Binder, workspace_sizes
from .binding.buffer import Buffer
from .binding.feeds import Feeds
from .binding.layouts import Geometry, add_shared
from .binding.store import PARAMETERS, Store
from .dry_run import ALIGNMENT, STREAM, Array, Cuda
from .lecture import CHOICES
from .libraries.cublas import WORKSPACE_BYTES
from .libraries.runtime import cuda_api, spare_bytes
from .tuner import STREAMS

# The choices with the most padding and streams that a search may take.
FURTHEST: Mapping[str, str] = {"layout": "nhwc", "pad": "32", "streams": STREAMS[-1]}
# The share of the free memory up to which "auto" keeps data sets on the device.
DATA_SHARE = 0.5
# What the driver keeps of kernels and captured graphs.
SLACK = 16 << 20


@dataclass(frozen=True)
class SectionNeed:
    """Bytes that a section alone needs.

    activations: all but workspaces; with a smaller batch at most ``fixed`` and ``per_sample`` for
    each sample. parts: how many of its batches are one of the config's.
    """

    batch_size: int
    activations: int
    fixed: int
    per_sample: int
    workspace: int
    parts: int = 1


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on the device. ``data``: data sets, or the buffers through which they are streamed;
    ``convolutions``: the workspaces that sections, one after the other, share.
    """

    parameters: int
    gradients: int
    optimizer: int
    data: int
    libraries: int
    convolutions: int
    sections: Mapping[str, SectionNeed]

    @property
    def total(self) -> int:
        shared = self.parameters + self.gradients + self.optimizer + self.data + self.workspaces
        return shared + sum(need.activations for need in self.sections.values())

    @property
    def workspaces(self) -> int:
        """What libraries work in."""
        return self.libraries + self.convolutions

    def largest_batch(self, section: str, free: int) -> int:
        """The largest batch with which the section would fit into ``free`` bytes; 0 for none.

        Sections with the same batch size shrink with it.
        """
        size = self.sections[section].batch_size
        alike = [need for need in self.sections.values() if need.batch_size == size]
        rest = free - self.total + sum(need.activations - need.fixed for need in alike)
        return max(rest // max(sum(need.per_sample for need in alike), 1), 0)

    def to_json(self) -> dict[str, Any]:
        names = ("parameters", "gradients", "optimizer", "data", "libraries")
        sections = {
            name: {"activations": need.activations, "workspace": need.workspace}
            for name, need in self.sections.items()
        }
        shared = {name: getattr(self, name) for name in names}
        return {**shared, "sections": sections, "total": self.total}


def plan_memory(
    graphs: Mapping[str, Graph],
    precision: Precision = "auto",
    streamed: bool = False,
    fusion: bool = True,
    choices: Mapping[str, str] | None = None,
    calls: Calls = "best",
    share: bool = False,
) -> MemoryPlan:
    """The need of sections, after rewrites, that share parameters and data sets.

    "auto" counts as fp32 or tf32, whichever takes more. streamed: data sets stay in host memory;
    fusion, calls, share (``share_memory``): as in Options; choices: the need with these, without
    whatever else a search would try.
    Raises ConfigError if a tensor has too many elements for the libraries.
    """
    if calls == "lecture":
        precision, fusion, choices = "fp32", False, CHOICES
    if precision == "auto":
        both: tuple[Precision, ...] = ("fp32", "tf32")
        needs = [plan_memory(graphs, e, streamed, fusion, choices, share=share) for e in both]
        return max(needs, key=lambda plan: plan.total)
    arithmetic = Arithmetic.of(precision, fusion)
    arithmetic = replace(arithmetic, lecture=calls == "lecture", share=share)
    wanted = FURTHEST if choices is None else choices
    counted = Cuda()
    store, streams = Store(counted), [STREAM] * int(wanted["streams"])
    if streamed:
        store.feeds = Feeds(graphs, lambda step: 0, counted)
    fed, sections = counted.taken, {}
    add_shared(store, graphs, Geometry(wanted, arithmetic.dtype))
    check_countable(graphs.values(), store.buffers.items())
    binders = [
        Binder(graph, store, streams, arithmetic, wanted, lambda: STREAM)
        for graph in graphs.values()
    ]
    for name, binder in zip(graphs, binders, strict=True):
        before = counted.taken - _shared(store).total()
        try:
            binder.bind()
        finally:
            # A number beyond 32 bits ends the binding at the tensor, or behind it.
            check_countable([binder.graph], binder.tensors())
        if choices is None:
            for _, make in chain.from_iterable(binder.variants.values()):
                make()
            for _ in binder.at_once:
                # Of a kernel that updates weights: its rule, and a count of blocks.
                binder.numbers(0.0, 0.0, dtype="float32")
                binder.counter()
        sections[name] = _need(binder, counted.taken - _shared(store).total() - before)
    shared = _shared(store)
    shared["data"] += fed
    return MemoryPlan(
        **shared,
        libraries=len(streams) * WORKSPACE_BYTES + SLACK + sum(store.peer_memory.values()),
        convolutions=sum(workspace_sizes(binders).values()),
        sections=sections,
    )


def _shared(store: Store) -> Counter[str]:
    """Bytes of what all sections share, by what it is for."""
    sizes = Counter(parameters=0, gradients=0, optimizer=0)
    sizes["data"] = sum(array.taken for array in store.data.values())
    for name, arena in store.arenas.items():
        kind = "parameters" if name.partition(".")[0] == PARAMETERS else "optimizer"
        sizes["gradients" if name.endswith(".gradients") else kind] += arena.taken
    for tensor, buffer in store.alone():
        kind = "parameters" if tensor.role == "parameter" else "optimizer"
        sizes[kind] += buffer.array.taken
    return sizes


def _need(binder: Binder, own: int) -> SectionNeed:
    """``own``: bytes that binding took for the section alone."""
    batch = binder.graph.batch_size
    # In proportion to the batch: activations, and where each maximum was.
    grows: dict[int, Array] = {id(m.places): m.places for m in binder.decisions.maxima.values()}
    for tensor, buffer in binder.tensors():
        if tensor.role in ("activation", "input") and tensor.shape[0] % batch == 0:
            grows[id(buffer.array)] = buffer.array
    return SectionNeed(
        batch_size=batch,
        activations=own,
        fixed=own - sum(array.taken - ALIGNMENT for array in grows.values()),
        per_sample=-(-sum(array.nbytes for array in grows.values()) // batch),
        workspace=sum(workspace_sizes([binder]).values()),
        parts=parts_of(binder.graph),
    )


def choose_residency(
    graphs: Mapping[str, Graph], precision: Precision, options: Options, free: int
) -> tuple[bool, MemoryPlan]:
    """Whether data sets stay in host memory, and the plan with that; ``free``: bytes.

    "auto" keeps them on the device if they fill at most the share and all else fits too, but not
    for a lecture's calls.
    """
    how: Any = {"calls": options.calls, "share": options.share_memory}
    resident = plan_memory(graphs, precision, False, options.fusion, **how)
    gathers = any(isinstance(op, GatherBatch) for graph in graphs.values() for op in graph.ops)
    if options.residency == "device" or not gathers:
        return False, resident
    fits = resident.data <= DATA_SHARE * free and resident.total <= free
    if options.residency == "auto" and fits and options.calls == "best":
        return False, resident
    return True, plan_memory(graphs, precision, True, options.fusion, **how)


def check_fits(plan: MemoryPlan, free: int, device: str) -> None:
    """Raise ConfigError, with the largest batch that fits, if the plan needs more than is free.

    The largest section is the one that has to shrink.
    """
    if plan.total <= free:
        return
    name = max(plan.sections, key=lambda section: plan.sections[section].activations)
    need = plan.sections[name]
    key = batch_key(name)
    parts = {
        "parameters, gradients and optimizer": plan.parameters + plan.gradients + plan.optimizer,
        "data": plan.data,
        f"'{name}' with a batch of {need.batch_size}": need.activations,
        "workspaces": plan.workspaces,
    }
    listed = ", ".join(f"{part} {gigabytes(size)}" for part, size in parts.items())
    largest = plan.largest_batch(name, free) * need.parts
    if largest:
        advice = f"{key} of at most {largest} fits: --set {key}={largest}"
    else:
        advice = "no batch size fits; use a smaller network or --device cpu"
    if plan.total - plan.data <= free:
        advice = "data.residency: auto or stream keeps the data in host memory; otherwise " + advice
    raise ConfigError(
        f"device 'cuda': the network needs {gigabytes(plan.total)} of memory, but {device} has "
        f"{gigabytes(free)} free ({listed}); {advice}"
    )


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def free_bytes() -> int:
    """What the device has free, with what is held in reserve."""
    free, _ = cuda_api().runtime.memGetInfo()
    return int(free) + int(cuda_api().pool.free_bytes()) + spare_bytes()


def used_bytes() -> int:
    """What the arrays of this process take on the device."""
    return int(cuda_api().pool.used_bytes())


# No tensor descriptor of cuDNN's takes more (cuDNN API, cudnnSetTensor4dDescriptor), and kernels of
# ours count them in 32 bits.
MOST_ELEMENTS = (1 << 31) - 1


def check_countable(graphs: Iterable[Graph], held: Iterable[tuple[Tensor, Buffer]]) -> None:
    """Raise ConfigError, with the largest batch that does, if a buffer has too many elements.

    Padding included; data sets are no buffers, and counted in 64 bits.
    """
    large = {t: b.layout.size for t, b in held if b.layout.size > MOST_ELEMENTS}
    for graph in graphs:
        for op in graph.ops:
            for tensor in (*op.reads(), *op.writes()):
                if tensor in large:
                    where = f"{op.label()} of '{graph.name}' with a batch of {graph.batch_size}"
                    raise _error(graph, tensor, large[tensor], where)


def _error(graph: Graph, tensor: Tensor, size: int, where: str) -> ConfigError:
    largest = MOST_ELEMENTS * graph.batch_size // size
    key, value = batch_key(graph.name), largest * parts_of(graph)
    if not largest or tensor.role in ("parameter", "gradient"):
        advice = "use smaller pictures, fewer channels or units, or --device cpu"
    elif graph.training:
        advice = f"{key} can be at most {value}: --set {key}={value}; or raise train.accumulate"
    else:
        advice = f"{key} can be at most {value}: --set {key}={value}"
    return ConfigError(
        f"device 'cuda': {where}: '{tensor.name}' {tensor.shape} has up to {size:,} elements with "
        f"its padding, but the GPU's libraries allow {MOST_ELEMENTS:,} in one tensor; {advice}"
    )
