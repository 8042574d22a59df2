"""The costs of a network, layer by layer: parameters, operations, memory; from its graphs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.errors import ConfigError
from ..common.printable import html_text
from ..common.records import dataclass
from ..configs import RunConfig
from ..datasets import DatasetInfo
from ..graph.graph import Graph, Op, Shape, Tensor
from ..graph.ops import AllGather, AllReduce, Conv2d, Exchange, Im2col, Reshape
from ..graph.rewrites import LIBRARY_REWRITES, rewritten
from ..layers.layer import Layer
from ..training.assemble import build_network, check_declared, describe_data
from ..training.augmentation import views_of
from ..training.network import Network
from ..training.normalization import preprocessing
from ..training.sections import Sections, expected_sections, samples_needed
from ..training.share import RankShare, shared_out
from ..training.timing import with_batch

if TYPE_CHECKING:
    from ..backends.cuda.memory_plan import MemoryPlan

_INPUT, _LOSS = "input", "loss"


@dataclass(frozen=True)
class Row:
    """A layer, the ``input`` or the ``loss``; shapes exclude the batch.

    A layer of a composite has its row after that of the composite, one ``depth`` further in; the
    composite's own row counts only what it does itself. statistics: numbers that forward updates in
    training, as in batch norm, besides the parameters. forward_flops: for one picture.
    activation_bytes: what forward keeps for backward, for a batch; 0 if the layer's output is a
    view of its input or is internal to a fused operation. unrolled: of a convolution, how often
    im2col has each number of its input, K^2 P Q / (H W).
    """

    name: str
    depth: int
    type: str
    output_shape: Shape
    parameters: int
    statistics: int
    forward_flops: int
    weight_bytes: int
    activation_bytes: int
    unrolled: float | None = None


@dataclass(frozen=True)
class Memory:
    """Bytes of all tensors of a section, without padding, in float32, if none share memory.

    ``statistics``: running ones, as in batch norm. A backend adds padding and copies in other
    layouts; oneDNN writes none of a batch norm that a residual sum normalises itself. The data set
    is not included.
    """

    parameters: int
    statistics: int
    gradients: int
    optimizer: int
    activations: int
    activation_gradients: int

    @property
    def total(self) -> int:
        return sum(vars(self).values())


@dataclass(frozen=True)
class NetworkSummary:
    """A network's rows and totals; ``training`` is a step's memory, ``evaluation`` a batch's.

    If parameters are frozen for a while, the step is one of those that need the most memory.

    ``parts``: the number of parts in which a batch is computed.
    ``ranks`` processes share these out, or compute bands of the pictures, and the one that sends
    most sends ``sent_bytes`` in a step, of which ``sent_by_phase`` says in which phases.
    ``band_flops``: what a rank computes in forward if there are ``bands``, one each.
    ``gpu``: the most memory that training on a GPU takes, with data set, padding and workspaces;
    None where a tensor has too many elements for one.
    """

    config: str
    dataset: str
    input_shape: Shape
    classes: tuple[str, ...]
    batch_size: int
    parts: int
    evaluation_batch_size: int
    rows: tuple[Row, ...]
    step_flops: int
    training: Memory
    evaluation: Memory
    gpu: MemoryPlan | None
    ranks: int = 1
    sent_bytes: int = 0
    sent_by_phase: Mapping[str, int] = field(default_factory=dict)
    bands: int = 1
    band_flops: int = 0

    @property
    def parameters(self) -> int:
        return sum(row.parameters for row in self.rows)

    @property
    def statistics(self) -> int:
        return sum(row.statistics for row in self.rows)

    @property
    def forward_flops(self) -> int:
        """For one picture."""
        return sum(row.forward_flops for row in self.rows)

    @property
    def step_forward_flops(self) -> int:
        """Those of a step on one rank, which computes all pictures where it has bands of them."""
        if self.bands > 1:
            return self.band_flops
        return self.batch_size // self.ranks * self.forward_flops

    def to_dict(self) -> dict[str, Any]:
        """What ``dnnstack summary --json`` prints."""
        return dict(json.loads(json.dumps(self.to_json())))

    def _repr_html_(self) -> str:
        from .summary_text import as_text

        return html_text(as_text(self))

    def to_json(self) -> dict[str, Any]:
        sizes = ("batch_size", "parts", "evaluation_batch_size")
        own = ("config", "dataset", "input_shape", "classes", *sizes)
        return {
            **{key: getattr(self, key) for key in own},
            "layers": [vars(row) for row in self.rows],
            "parameters": self.parameters,
            "statistics": self.statistics,
            "forward_flops_per_picture": self.forward_flops,
            "training_step_flops": self.step_flops,
            "training_step_bytes": {**vars(self.training), "total": self.training.total},
            "evaluation_bytes": {**vars(self.evaluation), "total": self.evaluation.total},
            "gpu_training_bytes": None if self.gpu is None else self.gpu.to_json(),
            **({} if self.ranks == 1 else self._sent()),
        }

    def _sent(self) -> dict[str, Any]:
        phases = dict(self.sent_by_phase)
        return {"ranks": self.ranks, "sent_bytes": self.sent_bytes, "sent_by_phase": phases}


def summarize(
    config: RunConfig,
    file: Path,
    batch_size: int | None = None,
    ranks: int = 1,
    info: DatasetInfo | None = None,
) -> NetworkSummary:
    """The summary of a config's network; batch_size: used instead of the config's.

    info: of the data set, if it need not be looked at.

    ranks: processes that train it; memory and operations are those of one of them. Needs neither
    data nor a device. Raises ShapeError, ConfigError or DatasetError if the config cannot be
    trained.
    """
    config, _ = shared_out(with_batch(config, batch_size), ranks, None)
    check_declared(config)
    info = describe_data(config) if info is None else info
    if batch_size is not None and info.train_count is not None:
        # The batch of a summary may be larger than the data set.
        info = replace(info, train_count=max(info.train_count, samples_needed(config)))
    network = build_network(config, info, file)
    scaling = preprocessing(config, info)
    sections = expected_sections(config, network, scaling, info, RankShare(0, ranks))
    first, held = sections.stretches[0], config.data.evaluation_batch_size
    views = views_of(config.evaluate.tta, config.evaluate.tta_share)
    test = network.evaluate_graph(held, "test", held, 1, scaling, views)
    usual = LIBRARY_REWRITES if config.run.fuses else {}
    stretches = [
        [rewritten(graph, usual) for graph in each.graphs()] for each in sections.stretches
    ]
    train, *updates = stretches[0]
    # The state of what is frozen for a while is held all the time.
    optimizer = _memory(list(chain.from_iterable(stretches)), network).optimizer
    needs = [replace(_memory(graphs, network), optimizer=optimizer) for graphs in stretches]
    each = [_sent(graphs, first.own, rank) for graphs in stretches for rank in range(ranks)]
    sent = max(each, key=lambda phases: sum(phases.values()))
    return NetworkSummary(
        config=str(file),
        dataset=info.name,
        input_shape=info.shape,
        classes=info.classes,
        batch_size=config.data.batch_size,
        parts=first.parts,
        evaluation_batch_size=held,
        rows=_rows(network, first.train, train),
        step_flops=first.own * _flops(train) + sum(map(_flops, updates)),
        training=max(needs, key=lambda need: need.total),
        evaluation=_memory([rewritten(test, usual)], network),
        gpu=_gpu_memory(config, sections),
        ranks=ranks,
        bands=ranks if config.in_bands else 1,
        band_flops=first.own * _flops(first.train, "forward"),
        sent_bytes=sum(sent.values()),
        sent_by_phase=sent,
    )


def _sent(graphs: Sequence[Graph], own: int, rank: int) -> dict[str, int]:
    """The bytes that a rank sends in a step, by phase; the first section runs ``own`` times."""
    found: Counter[str] = Counter()
    for number, graph in enumerate(graphs):
        for op in graph.ops:
            if isinstance(op, AllReduce | AllGather | Exchange):
                nbytes = op.sent(rank) if isinstance(op, Exchange) else op.bytes()
                found[op.origin[0].phase] += nbytes * (1 if number else own)
    return dict(found)


def _rows(network: Network, plain: Graph, train: Graph) -> tuple[Row, ...]:
    stored = _stored(plain, train)
    flops: Counter[str] = Counter()
    unrolled: dict[str, float] = {}
    for op in network.infer_graph(1).ops:
        layer = op.origin[0].layer
        flops[layer] += op.flops()
        if isinstance(op, Conv2d):
            unrolled[layer] = op.window.area * prod(op.y.shape[2:]) / prod(op.x.shape[2:])
        elif isinstance(op, Im2col):
            unrolled[layer] = op.columns.size / op.x.size

    def row(name: str, kind: str, shape: Shape, layer: Layer | None = None) -> Row:
        # The layers of a composite have their own rows.
        own = [layer] if layer is not None and not layer.children else []
        tensors = [p.tensor for each in own for p in each.parameters()]
        statistics = [s.tensor for each in own for s in each.running_statistics()]
        return Row(
            name=name,
            depth=name.count("."),
            type=kind,
            output_shape=shape,
            parameters=sum(t.size for t in tensors),
            statistics=sum(t.size for t in statistics),
            forward_flops=flops[name],
            weight_bytes=sum(t.nbytes for t in tensors),
            activation_bytes=stored[name],
            unrolled=unrolled.get(name),
        )

    return (
        row(_INPUT, "", network.input_shape),
        *(
            row(layer.name, layer.kind, layer.output_shape, layer)
            for layer in network.every_layer()
        ),
        row(_LOSS, network.loss.kind, (1,)),
    )


def _stored(plain: Graph, train: Graph) -> Counter[str]:
    """Bytes that forward keeps for backward, by the layer that makes them in the plain graph."""
    stored: Counter[str] = Counter()
    for op in filter(_is_forward, train.ops):
        for tensor in _own(op):
            origin = (plain.producer(tensor) or op).origin[0]
            stored[_INPUT if origin.phase == "data" else origin.layer] += tensor.nbytes
    return stored


def _flops(graph: Graph, phase: str = "") -> int:
    return sum(op.flops() for op in graph.ops if phase in ("", op.origin[0].phase))


def _memory(graphs: Sequence[Graph], network: Network) -> Memory:
    statistics = {each.tensor for each in network.running_statistics()}
    sums = dict.fromkeys(Memory.__dataclass_fields__, 0)
    for tensor in dict.fromkeys(t for graph in graphs for t in graph.tensors()):
        if tensor.role == "parameter":
            sums["parameters"] += tensor.nbytes
        elif tensor in statistics:
            sums["statistics"] += tensor.nbytes
        elif tensor.role == "state" and tensor.dtype == "float32":
            sums["optimizer"] += tensor.nbytes
    for op in (op for graph in graphs for op in graph.ops):
        for tensor in _own(op):
            if tensor.role == "gradient":
                sums["gradients"] += tensor.nbytes
            else:
                sums["activations" if _is_forward(op) else "activation_gradients"] += tensor.nbytes
    return Memory(**sums)


def _gpu_memory(config: RunConfig, sections: Sections) -> MemoryPlan | None:
    """The memory plan that compiling these sections for CUDA checks, computed without a GPU.

    None where a tensor has too many elements for it. ``residency: auto`` counts as ``device``:
    whether batches are streamed depends on the memory that is free when training starts.
    """
    from ..backends.cuda.backend import CudaBackend
    from ..backends.cuda.memory_plan import plan_memory

    run = config.run
    rewrites = CudaBackend.rewrites if run.fuses else {}
    graphs = {name: rewritten(graph, rewrites) for name, graph in sections.graphs().items()}
    streamed = config.data.residency == "stream"
    try:
        calls, share = run.calls or "best", bool(config.train.recompute)
        return plan_memory(graphs, run.precision, streamed, run.fuses, calls=calls, share=share)
    except ConfigError:
        return None


def _is_forward(op: Op) -> bool:
    return op.origin[0].phase in ("data", "forward", "loss")


def _own(op: Op) -> tuple[Tensor, ...]:
    """The tensors that the operation creates; a reshaped one is only a view."""
    return () if isinstance(op, Reshape) else op.tensors(op.outputs)
