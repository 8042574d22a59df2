"""The device memory that a network needs, known before any of it is allocated.

A bound, not an account: every tensor has a place of its own, channels and units are padded as far
as any choice pads them, tensors between a padded and a plain operation exist twice, and workspaces
are as large as a plan may ask. Needs no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....common.errors import ConfigError
from ...graph import Graph, Op, Tensor
from ...ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter, GatherBatch, Reshape
from ..base import Precision, Residency
from .conv_graph import WORKSPACE_LIMIT
from .cublas import WORKSPACE_BYTES
from .numbers import NARROW, narrow_tensors

# Rows, units and channels are padded to no more than this many elements.
PADDING: Mapping[str, int] = {"fp32": 8, "tf32": 8, "bf16": 32}
# Pictures of so few channels are not padded.
FEW_CHANNELS = 4
# Streams with handles, and so workspaces, of their own.
LANES = 3
# The share of the free memory up to which "auto" keeps data sets on the device.
DATA_SHARE = 0.5
# Partial sums, tables and what the allocator rounds up.
SLACK = 16 << 20

_CONVOLUTIONS = (Conv2d, Conv2dBackwardData, Conv2dBackwardFilter)


@dataclass(frozen=True)
class SectionNeed:
    """Bytes that a section alone needs; ``per_sample``: what one more in its batch would add."""

    batch_size: int
    activations: int
    workspace: int

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
        workspace = sum(need.workspace for need in self.sections.values())
        known = self.parameters + self.gradients + self.optimizer + self.data + self.libraries
        return known + workspace

    def largest_batch(self, section: str, free: int) -> int:
        """The largest batch with which the section would fit into so many bytes; 0 for none."""
        need = self.sections[section]
        rest = free - (self.total - need.activations)
        return max(rest // max(need.per_sample, 1), 0)

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
    chosen = "tf32" if precision in ("auto", "fp64") else precision
    shared: dict[str, set[Tensor]] = {"parameter": set(), "gradient": set(), "state": set()}
    data: set[Tensor] = set()
    buffers = 0
    sections = {}
    for name, graph in graphs.items():
        for tensor in graph.tensors():
            if tensor.role in shared:
                shared[tensor.role].add(tensor)
            elif tensor.role == "data":
                data.add(tensor)
        if streamed:
            gathers = [op for op in graph.ops if isinstance(op, GatherBatch)]
            data -= {t for op in gathers for t in (op.images, op.labels, op.order)}
            # On the device a buffer to read from and four on their way.
            buffers += 5 * sum(op.x.size + 12 * op.x.shape[0] for op in gathers)
        sections[name] = _section(graph, chosen)
    weights = _stored(shared["parameter"], chosen)
    copies = weights // 2 if chosen == "bf16" else 0
    return MemoryPlan(
        parameters=weights + copies,
        gradients=_stored(shared["gradient"], chosen),
        optimizer=_stored(shared["state"], chosen),
        data=sum(tensor.nbytes for tensor in data) + buffers,
        libraries=LANES * WORKSPACE_BYTES + SLACK,
        sections=sections,
    )


def fits_the_share(graphs: Mapping[str, Graph], free: int) -> bool:
    """Whether the data sets may be kept on the device where nobody said so."""
    tensors = {t for graph in graphs.values() for t in graph.tensors() if t.role == "data"}
    return sum(tensor.nbytes for tensor in tensors) <= DATA_SHARE * free


def streams(graphs: Mapping[str, Graph], residency: Residency, free: int) -> bool:
    """Whether data sets stay in host memory; ``free``: bytes of the device."""
    gathers = any(isinstance(op, GatherBatch) for graph in graphs.values() for op in graph.ops)
    if residency == "auto":
        return gathers and not fits_the_share(graphs, free)
    return gathers and residency == "stream"


def check_fits(plan: MemoryPlan, free: int, device: str) -> None:
    """Raise ConfigError, with the largest batch that fits, where the plan needs more than is free.

    The largest section is the one that has to shrink.
    """
    if plan.total <= free:
        return
    name = max(plan.sections, key=lambda section: plan.sections[section].activations)
    need = plan.sections[name]
    key = "data.batch_size" if name == "train" else "data.evaluation_batch_size"
    parts = {
        "parameters, gradients and optimizer": plan.parameters + plan.gradients + plan.optimizer,
        "data": plan.data,
        f"'{name}' with a batch of {need.batch_size}": need.activations,
        "workspaces": plan.libraries + sum(s.workspace for s in plan.sections.values()),
    }
    listed = ", ".join(f"{part} {gigabytes(size)}" for part, size in parts.items())
    largest = plan.largest_batch(name, free)
    if largest:
        advice = f"{key} of at most {largest} fits: --set {key}={largest}"
    else:
        advice = "no batch size fits; take a smaller network, --device cpu"
        advice += ", or data.residency: stream" if plan.data > plan.parameters else ""
    raise ConfigError(
        f"device 'cuda': the network needs {gigabytes(plan.total)} of memory, {device} has "
        f"{gigabytes(free)} free ({listed}); {advice}"
    )


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def _section(graph: Graph, precision: str) -> SectionNeed:
    narrow = narrow_tensors(graph) if precision == "bf16" else frozenset[Tensor]()
    own: dict[Tensor, int] = {}
    for op in graph.ops:
        for tensor in () if isinstance(op, Reshape) else op.writes():
            if tensor.role in ("activation", "scalar"):
                own[tensor] = _bytes(tensor, precision, 2 if tensor in narrow else None)
        for tensor in op.reads():
            if tensor.role in ("input", "scalar"):
                own[tensor] = _bytes(tensor, precision, None)
    convolves = any(isinstance(op, _CONVOLUTIONS) for op in graph.ops)
    return SectionNeed(
        batch_size=graph.batch_size,
        activations=sum(own.values()) + sum(t.nbytes for t in _copied(graph)),
        workspace=LANES * WORKSPACE_LIMIT if convolves else 0,
    )


def _copied(graph: Graph) -> set[Tensor]:
    """Pictures that an operation without padding reads or writes: they exist plain as well."""
    return {
        tensor
        for op in graph.ops
        if not _padded(op)
        for tensor in (*op.reads(), *op.writes())
        if tensor.role == "activation" and len(tensor.shape) == 4
    }


def _padded(op: Op) -> bool:
    return isinstance(op, NARROW)


def _stored(tensors: set[Tensor], precision: str) -> int:
    return sum(_bytes(tensor, precision, None) for tensor in tensors)


def _bytes(tensor: Tensor, precision: str, item: int | None) -> int:
    """Bytes with padding, and to a multiple of 512 as they are allocated."""
    size, multiple = tensor.size, PADDING[precision]
    if len(tensor.shape) == 4:
        n, c, h, w = tensor.shape
        size = _up(n, multiple if tensor.role == "parameter" else 1) * _channels(c, multiple)
        size *= h * w
    elif len(tensor.shape) == 2:
        rows, columns = tensor.shape
        tall = tensor.role in ("parameter", "gradient", "state")
        size = _up(rows, multiple if tall else 1) * _up(columns, multiple)
    each = item if item is not None else tensor.nbytes // max(tensor.size, 1)
    return _up(size * each, 512)


def _channels(count: int, multiple: int) -> int:
    return count if count <= FEW_CHANNELS else _up(count, multiple)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
