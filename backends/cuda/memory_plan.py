"""The device memory that a network needs, known before any of it is allocated.

A bound, not an account: every tensor has a place of its own, channels and units are padded as far
as any choice pads them, tensors between a padded and a plain operation exist twice, and workspaces
are as large as a plan may ask. Needs no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...common.errors import ConfigError
from ...graph.graph import Graph, Op, Tensor
from ...graph.ops import (
    Average,
    Conv2d,
    Conv2dBackwardData,
    Conv2dBackwardFilter,
    Fused,
    GatherAugmented,
    GatherBatch,
    MuonUpdate,
    Pool2d,
    Reshape,
)
from ..base import Precision, Residency
from .binding.element_types import BF16_OPS, bf16_tensors
from .binding.feeds import SLOTS, Packed
from .binding.layouts import ROWS, Geometry, updates
from .libraries.conv_graph import WORKSPACE_LIMIT
from .libraries.cublas import WORKSPACE_BYTES
from .libraries.layout import BFLOAT, FLOAT, Layout, padded, plain
from .libraries.runtime import cupy
from .operations.augment import FLOATS_A_PIXEL
from .operations.muon import scratch_bytes as muon_bytes

# The choices with the most padding that a search may take.
FURTHEST: Mapping[str, str] = {"layout": "nhwc", "pad": "32"}
# Streams with handles, and so workspaces, of their own.
STREAMS = 3
# The share of the free memory up to which "auto" keeps data sets on the device.
DATA_SHARE = 0.5
# Partial sums, tables and what the allocator rounds up: some megabytes and a share.
SLACK = 16 << 20
SCRATCH = 0.06

_CONVOLUTIONS = (Conv2d, Conv2dBackwardData, Conv2dBackwardFilter)


@dataclass(frozen=True)
class SectionNeed:
    """Bytes that a section alone needs; ``per_sample``: what one more in its batch would add;
    ``parts``: how many of its batches are one of the config's."""

    batch_size: int
    activations: int
    workspace: int
    parts: int = 1

    @property
    def per_sample(self) -> int:
        return -(-self.activations // self.batch_size)

    @property
    def total(self) -> int:
        return self.activations + self.workspace


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on the device. ``data``: data sets, or the buffers through which they are streamed."""

    parameters: int
    gradients: int
    optimizer: int
    data: int
    libraries: int
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
        """What libraries work in; sections, one after the other, share what they ask for."""
        asked = (need.workspace for need in self.sections.values())
        return self.libraries + max(asked, default=0)

    def largest_batch(self, section: str, free: int) -> int:
        """The largest batch with which the section would fit into ``free`` bytes; 0 for none.

        Sections with the same batch size shrink with it.
        """
        size = self.sections[section].batch_size
        alike = [need for need in self.sections.values() if need.batch_size == size]
        rest = free - (self.total - sum(need.activations for need in alike))
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
    graphs: Mapping[str, Graph], precision: Precision = "auto", streamed: bool = False
) -> MemoryPlan:
    """The need of sections, after rewrites, that share parameters and data sets.

    streamed: data sets stay in host memory.
    """
    dtype = BFLOAT if precision == "bf16" else FLOAT
    geometry = Geometry(FURTHEST, dtype)
    parameters: set[Tensor] = set()
    others: set[Tensor] = set()
    data: set[Tensor] = set()
    families: set[str] = set()
    kept: set[Tensor] = set()
    averaged: dict[Tensor, Tensor] = {}
    buffers = trained = scratch = 0
    sections = {}
    for name, graph in graphs.items():
        for tensor in graph.tensors():
            if tensor.role == "parameter":
                parameters.add(tensor)
            elif tensor.role == "data":
                data.add(tensor)
            elif tensor.role in ("state", "gradient"):
                others.add(tensor)
        changes = updates({name: graph})
        trained += bool(changes)
        for change in changes:
            families |= set(change.families())
            kept |= set(change.gradients)
            kept |= {tensor for family in change.families().values() for tensor in family}
            if isinstance(change, MuonUpdate):
                scratch += muon_bytes([_filters(p, geometry) for p in change.parameters])
        for op in graph.ops:
            if isinstance(op, Average):
                averaged |= dict(zip(op.averages, op.values, strict=True))
        if streamed:
            gathers = [op for op in graph.ops if isinstance(op, GatherBatch)]
            data -= {t for op in gathers for t in (op.images, op.labels, op.order)}
            buffers += (SLOTS + 1) * sum(Packed.nbytes(op.x.shape) for op in gathers)
        sections[name] = _section(graph, geometry, dtype)
    # States and gradients lie in arenas of the same form as that of the parameters.
    arena = sum(_bytes(tensor, geometry) for tensor in parameters)
    # An average lies in memory as the tensor that it averages.
    states = sum(_bytes(averaged.get(tensor, tensor), geometry) for tensor in others - kept)
    return MemoryPlan(
        parameters=arena + (arena // 2 if dtype == BFLOAT else 0),
        gradients=trained * arena,
        optimizer=len(families) * arena + states + scratch,
        data=sum(tensor.nbytes for tensor in data) + buffers,
        libraries=STREAMS * WORKSPACE_BYTES + SLACK,
        sections=sections,
    )


def fits_the_share(graphs: Mapping[str, Graph], free: int) -> bool:
    """Whether the data sets may be kept on the device by default."""
    tensors = {t for graph in graphs.values() for t in graph.tensors() if t.role == "data"}
    return sum(tensor.nbytes for tensor in tensors) <= DATA_SHARE * free


def choose_residency(
    graphs: Mapping[str, Graph], precision: Precision, residency: Residency, free: int
) -> tuple[bool, MemoryPlan]:
    """Whether data sets stay in host memory, and the plan with that; ``free``: bytes.

    "auto" keeps them on the device if they fill at most the share and all else fits too.
    """
    resident = plan_memory(graphs, precision)
    gathers = any(isinstance(op, GatherBatch) for graph in graphs.values() for op in graph.ops)
    if residency == "device" or not gathers:
        return False, resident
    if residency == "auto" and fits_the_share(graphs, free) and resident.total <= free:
        return False, resident
    return True, plan_memory(graphs, precision, streamed=True)


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


def elements(tensor: Tensor, geometry: Geometry) -> int:
    """Elements of a tensor, with padding."""
    size = tensor.size
    if len(tensor.shape) == 4:
        if tensor.role == "parameter":
            size = geometry.filters(tensor.shape, grouped=False).size
        else:
            size = geometry.picture(tensor.shape).size
    elif len(tensor.shape) == 2:
        rows, columns = tensor.shape
        columns = max(geometry.units(columns), padded(columns, ROWS[BFLOAT]))
        size = (geometry.units(rows) if tensor.role == "parameter" else rows) * columns
    return size


def free_bytes() -> int:
    """What the device has free, with what CuPy holds in reserve."""
    free, _ = cupy().cuda.runtime.memGetInfo()
    return int(free) + int(cupy().get_default_memory_pool().free_bytes())


def _section(graph: Graph, geometry: Geometry, dtype: str) -> SectionNeed:
    halved = bf16_tensors(graph) if dtype == BFLOAT else frozenset[Tensor]()
    own: dict[Tensor, int] = {}
    for op in graph.ops:
        for tensor in () if isinstance(op, Reshape) else op.writes():
            if tensor.role in ("activation", "scalar"):
                own[tensor] = _bytes(tensor, geometry, tensor in halved)
        for tensor in op.reads():
            if tensor.role in ("input", "scalar"):
                own[tensor] = _bytes(tensor, geometry)
    noise = sum(_noise(op) for op in graph.ops)
    bordered = sum(_bytes(x, geometry, x in halved) for op in graph.ops for x in _bordered(op))
    # Pooling notes where each maximum came from.
    chosen = sum(tensor.size for op in graph.ops for tensor in _pooled(op))
    copies = sum(
        _bytes(t, geometry) + (t.nbytes // 2 if dtype == BFLOAT else 0) for t in _copied(graph)
    )
    convolves = any(isinstance(op, _CONVOLUTIONS) for op in graph.ops)
    return SectionNeed(
        batch_size=graph.batch_size,
        activations=int((sum(own.values()) + copies + chosen + bordered + noise) * (1 + SCRATCH)),
        workspace=STREAMS * WORKSPACE_LIMIT if convolves else 0,
        parts=graph.parts,
    )


def _bordered(op: Op) -> Iterator[Tensor]:
    """The picture with its padding, which a filter gradient needs where that is lopsided."""
    if isinstance(op, Conv2dBackwardFilter) and op.window.is_lopsided:
        n, c, h, w = op.x.shape
        top, bottom, left, right = op.window.padding
        yield replace(op.x, shape=(n, c, h + top + bottom, w + left + right))


def _copied(graph: Graph) -> set[Tensor]:
    """Pictures that an operation without padding reads or writes: they exist plain as well."""
    return {
        tensor
        for op in graph.ops
        if not isinstance(op, (*BF16_OPS, Fused))
        for tensor in (*op.reads(), *op.writes())
        if tensor.role == "activation" and len(tensor.shape) == 4
    }


def _noise(op: Op) -> int:
    """Bytes of the noise that displaces pixels, as it is smoothed."""
    if not isinstance(op, GatherAugmented) or "elastic" not in {each.kind for each in op.augment}:
        return 0
    n, _, height, width = op.x.shape
    return 4 * FLOATS_A_PIXEL * n * height * width


def _filters(tensor: Tensor, geometry: Geometry) -> Layout:
    if len(tensor.shape) == 4:
        return geometry.filters(tensor.shape, grouped=False)
    return plain(tensor.shape)


def _pooled(op: Op) -> tuple[Tensor, ...]:
    if isinstance(op, Pool2d):
        return (op.y,)
    return tuple(t for t in op.results if len(t.shape) == 4) if isinstance(op, Fused) else ()


def _bytes(tensor: Tensor, geometry: Geometry, halved: bool = False) -> int:
    """Bytes with padding, and to a multiple of 512 as they are allocated."""
    item = 2 if halved else tensor.nbytes // max(tensor.size, 1)
    return padded(elements(tensor, geometry) * item, 512)
