"""The device memory that a network needs, known before any of it is allocated. Needs no GPU.

All sections are bound in a dry run, with the choices of most padding and most streams, and what
that would allocate is counted: tensors, scratch and tables to the byte. What remains a bound:

- Other choices that lie channels-last take no more: less padding, fewer streams. Rotated filters,
  which only some plans of convolutions want, are counted for all that may.
- Workspaces of convolutions are as large as a plan may ask; which plan runs is not known.
- What the driver keeps of kernels and captured graphs is a fixed amount.

NCHW is outside of it: it is copied for kernels that are channels-last, such as those of batch norm,
and so takes up to half as much again. A search passes over it where that does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ...common.errors import ConfigError
from ...graph.graph import Graph
from ...graph.ops import GatherBatch
from ..base import Precision, Residency
from . import operations  # noqa: F401  # they register
from .binding.bind import Arithmetic, Binder, workspace_sizes
from .binding.feeds import Feeds
from .binding.layouts import Geometry, add_shared
from .binding.store import PARAMETERS, Store
from .dry_run import ALIGNMENT, STREAM, Array, Cupy, rounded
from .libraries.cublas import WORKSPACE_BYTES
from .libraries.runtime import cupy
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
        return self.fixed + sum(need.activations for need in self.sections.values())

    @property
    def fixed(self) -> int:
        """What does not depend on any batch size."""
        known = self.parameters + self.gradients + self.optimizer + self.data
        return known + self.workspaces

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
        return {
            "parameters": self.parameters,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "data": self.data,
            "libraries": self.libraries,
            "sections": {
                name: {"activations": need.activations, "workspace": need.workspace}
                for name, need in self.sections.items()
            },
            "total": self.total,
        }


def plan_memory(
    graphs: Mapping[str, Graph],
    precision: Precision = "auto",
    streamed: bool = False,
    fusion: bool = True,
) -> MemoryPlan:
    """The need of sections, after rewrites, that share parameters and data sets; see above.

    "auto" counts as fp32, which takes no less than tf32. streamed: data sets stay in host memory;
    fusion: as in Options.
    """
    arithmetic = Arithmetic.of("fp32" if precision == "auto" else precision, fusion)
    return plan_with(graphs, arithmetic, FURTHEST, streamed, variants=True)


def plan_with(
    graphs: Mapping[str, Graph],
    arithmetic: Arithmetic,
    choices: Mapping[str, str],
    streamed: bool = False,
    variants: bool = False,
) -> MemoryPlan:
    """The need with these choices; variants: and whatever else a search would try with them."""
    counted = Cupy()
    store, streams = Store(counted), [STREAM] * int(choices["streams"])
    if streamed:
        store.feeds = Feeds(graphs, lambda step: 0, counted)
    fed, sections = counted.taken, {}
    add_shared(store, graphs, Geometry(choices, arithmetic.dtype))
    binders = [Binder(graph, store, streams, arithmetic, choices) for graph in graphs.values()]
    for name, binder in zip(graphs, binders, strict=True):
        before = counted.taken - sum(_shared(store).values())
        binder.bind()
        if variants:
            for _, make in chain.from_iterable(binder.variants.values()):
                make()
        own = counted.taken - sum(_shared(store).values()) - before
        sections[name] = _need(binder, own)
    shared = _shared(store)
    return MemoryPlan(
        parameters=shared["parameters"],
        gradients=shared["gradients"],
        optimizer=shared["optimizer"],
        data=shared["data"] + fed,
        libraries=len(streams) * WORKSPACE_BYTES + SLACK,
        convolutions=sum(map(rounded, workspace_sizes(binders).values())),
        sections=sections,
    )


def _shared(store: Store) -> Counter[str]:
    """Bytes of what all sections share, by what it is for."""
    sizes: Counter[str] = Counter(data=sum(rounded(a.nbytes) for a in store.data.values()))
    for name, arena in store.arenas.items():
        kind = "parameters" if name.partition(".")[0] == PARAMETERS else "optimizer"
        kind = "gradients" if name.endswith(".gradients") else kind
        sizes[kind] += rounded(arena.nbytes)
    for tensor, buffer in store.alone():
        kind = "parameters" if tensor.role == "parameter" else "optimizer"
        sizes[kind] += rounded(buffer.array.nbytes)
    return sizes


def _need(binder: Binder, own: int) -> SectionNeed:
    """``own``: bytes that binding took for the section alone."""
    batch = binder.graph.batch_size
    arrays = {id(array): array for array in _batched(binder)}.values()
    grows = sum(array.nbytes for array in arrays)
    return SectionNeed(
        batch_size=batch,
        activations=own,
        fixed=own - sum(rounded(array.nbytes) for array in arrays) + ALIGNMENT * len(arrays),
        per_sample=-(-grows // batch),
        workspace=sum(binder.wanted_workspaces().values()),
        parts=binder.graph.parts,
    )


def _batched(binder: Binder) -> Iterator[Array]:
    """Arrays whose size is in proportion to the batch."""
    for tensor, buffer in binder.tensors():
        whole = tensor.role in ("activation", "input")
        if whole and tensor.shape[0] % binder.graph.batch_size == 0:
            yield buffer.array
    yield from (maxima.places for maxima in binder.decisions.maxima.values())


def fits_the_share(graphs: Mapping[str, Graph], free: int) -> bool:
    """Whether the data sets may be kept on the device by default."""
    tensors = {t for graph in graphs.values() for t in graph.tensors() if t.role == "data"}
    return sum(tensor.nbytes for tensor in tensors) <= DATA_SHARE * free


def choose_residency(
    graphs: Mapping[str, Graph],
    precision: Precision,
    residency: Residency,
    free: int,
    fusion: bool = True,
) -> tuple[bool, MemoryPlan]:
    """Whether data sets stay in host memory, and the plan with that; ``free``: bytes.

    "auto" keeps them on the device if they fill at most the share and all else fits too.
    """
    resident = plan_memory(graphs, precision, False, fusion)
    gathers = any(isinstance(op, GatherBatch) for graph in graphs.values() for op in graph.ops)
    if residency == "device" or not gathers:
        return False, resident
    if residency == "auto" and fits_the_share(graphs, free) and resident.total <= free:
        return False, resident
    return True, plan_memory(graphs, precision, True, fusion)


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


def batch_key(section: str) -> str:
    """The key of the config that says how large a section's batch is."""
    return f"data.{'evaluation_' if section.startswith('evaluate') else ''}batch_size"


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def free_bytes() -> int:
    """What the device has free, with what CuPy holds in reserve."""
    free, _ = cupy().cuda.runtime.memGetInfo()
    return int(free) + int(cupy().get_default_memory_pool().free_bytes())
