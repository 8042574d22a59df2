"""How parameters, states and gradients lie on the device: decided for all sections at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....graph import ops
from ....graph.graph import SHARED, Graph, Op, Shape, Tensor
from ....graph.ops.updates import ParameterUpdate
from ..libraries.layout import BFLOAT, FLOAT, Layout, padded, plain
from .small_sums import small_sums
from .store import PARAMETERS, SUMS, Store

# Below this, padding would more than double a tensor: pictures, the scores of a few classes.
FEWEST_CHANNELS, FEWEST_UNITS = 5, 32
# What rows are padded to, 16 bytes, and hidden units: for bfloat16 to the tiles of its gemm.
ROWS = {FLOAT: 4, BFLOAT: 8}
UNITS = {FLOAT: 4, BFLOAT: 64}


class Geometry:
    """The padding that the choices ask for, none of a ``plain`` layout; ``dtype``: the type of
    operands."""

    def __init__(self, choices: Mapping[str, str], dtype: str) -> None:
        self.nhwc = choices.get("layout", "nhwc") == "nhwc"
        self.dtype = dtype
        self.pad = int(choices.get("pad", "1")) if self.nhwc else 1
        multiples = (ROWS[dtype], UNITS[dtype])
        self._row, self._units = (1, 1) if choices.get("layout") == "plain" else multiples

    def channels(self, count: int) -> int:
        """Stored channels of a picture or filters."""
        return padded(count, self.pad) if count >= FEWEST_CHANNELS else count

    def units(self, count: int) -> int:
        """Stored columns of a dense layer's output."""
        return padded(count, self._units) if count >= FEWEST_UNITS else count

    def picture(self, shape: Shape, dtype: str = FLOAT, compact: bool = False) -> Layout:
        """(N, C, H, W) as convolutions take it; compact: without padding."""
        n, c, h, w = shape
        return Layout(shape, (n, c if compact else self.channels(c), h, w), self.nhwc, dtype=dtype)

    def filters(self, shape: Shape, grouped: bool, dtype: str = FLOAT) -> Layout:
        """(O, C, kh, kw); grouped filters are not padded."""
        o, c, h, w = shape
        stored = shape if grouped else (self.channels(o), self.channels(c), h, w)
        return Layout(shape, stored, self.nhwc, dtype=dtype)

    def rows(self, shape: Shape, dtype: str = FLOAT, picture: Shape | None = None) -> Layout:
        """(N, units), or (N, inputs) that hold a flattened ``picture`` in its own order."""
        n, count = shape
        if picture is not None:
            order = picture if self.nhwc else None
            return Layout(shape, (n, padded(count, self._row)), picture=order, dtype=dtype)
        return Layout(shape, (n, self.units(count)), dtype=dtype)


def plan_layouts(graphs: Mapping[str, Graph], geometry: Geometry) -> dict[Tensor, Layout]:
    """The layouts of all parameters that convolutions and dense layers use.

    Where two uses of one parameter differ, the first decides: activations follow their weight.
    """
    found: dict[Tensor, Layout] = {}
    for graph in graphs.values():
        pictures = _flattened(graph)
        for op in _every(graph):
            for tensor, layout in _wanted(op, geometry, pictures):
                if tensor.role == "parameter":
                    found.setdefault(tensor, layout)
    return found


def _flattened(graph: Graph) -> dict[Tensor, Shape]:
    """The rows that hold a picture in its own order, with its shape: what flattens one writes, and
    what keeps its layout from there."""
    found: dict[Tensor, Shape] = {}
    for op in _every(graph):
        if isinstance(op, ops.Reshape) and len(op.x.shape) == 4:
            found[op.y] = op.x.shape[1:]
        elif isinstance(op, (ops.Activation, ops.Dropout, ops.Scale)) and op.x in found:
            found[op.y] = found[op.x]
    return found


def _wanted(
    op: Op, geometry: Geometry, pictures: Mapping[Tensor, Shape]
) -> Iterator[tuple[Tensor, Layout]]:
    if isinstance(op, ops.Conv2d):
        weight = geometry.filters(op.w.shape, op.groups > 1)
        yield op.w, weight
        if op.bias is not None:
            yield op.bias, Layout(op.bias.shape, (weight.stored[0],))
    elif isinstance(op, ops.MatMul) and op.transpose_b and len(op.b.shape) == 2:
        units, inputs = op.b.shape
        columns = geometry.rows((1, inputs), picture=pictures.get(op.a))
        rows = geometry.units(units)
        yield op.b, Layout(op.b.shape, (rows, columns.columns), picture=columns.picture)
        if op.bias is not None:
            yield op.bias, Layout(op.bias.shape, (rows,))
    elif isinstance(op, ops.BiasAdd) and len(op.x.shape) == 2:
        # As where a MatMul has it: kernels read it, and write its gradient, a stored row at a time.
        yield op.b, Layout(op.b.shape, (geometry.units(op.b.shape[0]),))


def _every(graph: Graph) -> Iterator[Op]:
    """All operations, those inside fused ones too."""
    for op in graph.ops:
        yield op
        if isinstance(op, ops.Fused):
            yield from (*op.given, *op.parts)


def add_shared(store: Store, graphs: Mapping[str, Graph], geometry: Geometry) -> None:
    """Allocate what belongs to no section alone: parameters, states, gradients."""
    _add_parameters(store, graphs, geometry)
    if geometry.dtype == BFLOAT and PARAMETERS in store.arenas:
        # Before any section is bound: whoever updates parameters renews their copies.
        store.bf16_arena()
    for name, graph in graphs.items():
        _add_gradients(store, name, graph)
    store.small_sums = small_sums(store.spans, graphs)


def _add_parameters(store: Store, graphs: Mapping[str, Graph], geometry: Geometry) -> None:
    """Lay out parameters in one arena, the optimizers' states beside them, and the rest alone."""
    layouts = plan_layouts(graphs, geometry)
    changed = updates(graphs)
    trained = {
        op.parameters[i]: layouts.get(op.parameters[i], plain(op.parameters[i].shape))
        for op in changed
        # Those with weight decay lie first.
        for i in sorted(range(len(op.parameters)), key=lambda i: -op.weight_decay[i])
    }
    if trained:
        store.add_arena(PARAMETERS, trained)
    for op in changed:
        for name, tensors in op.families().items():
            store.add_mirror(name, dict(zip(tensors, op.parameters, strict=True)))
        if sums := {g: p for g, p in _pairs(op) if g.role in SHARED}:
            store.add_mirror(SUMS, sums)
    for tensor, layout in layouts.items():
        if tensor not in trained:
            store.buffers[tensor] = store.zeros(layout)
    _add_averages(store, graphs)


def _add_averages(store: Store, graphs: Mapping[str, Graph]) -> None:
    """Averages lie as what they are of, to take its place; masks and codes as parameters."""
    found: list[tuple[Tensor, Tensor]] = []
    for op in (op for graph in graphs.values() for op in graph.ops):
        if isinstance(op, ops.Average):
            found += zip(op.averages, op.values, strict=True)
        elif isinstance(op, ops.Mask):
            found += zip(op.masks, op.values, strict=True)
        elif isinstance(op, ops.ShareWeights):
            found += zip(op.codes, op.parameters, strict=True)
    for beside, value in sorted(found, key=lambda pair: pair[1].role != "parameter"):
        held = store.buffers.get(value)
        layout = plain(value.shape) if held is None else held.layout
        if beside not in store.buffers:
            store.buffers[beside] = store.zeros(layout)


def _add_gradients(store: Store, name: str, graph: Graph) -> None:
    """Lay out the gradients that a section's updates read as the parameters."""
    found = (pair for op in updates({name: graph}) for pair in _pairs(op))
    pairs = {gradient: parameter for gradient, parameter in found if gradient.role not in SHARED}
    for op in graph.ops:
        if isinstance(op, ops.Accumulate):
            first, *further = op.slots()
            summed = zip(op.gradients, first, strict=True)
            pairs |= {gradient: total for gradient, total in summed if total in store.spans}
            for level, tensors in enumerate(further, 1):
                waiting = dict(zip(tensors, first, strict=True))
                held = {tensor: total for tensor, total in waiting.items() if total in store.spans}
                if held:
                    store.add_mirror(f"{SUMS}.{level}", held)
    if pairs:
        store.add_mirror(f"{name}.gradients", pairs)


def _pairs(op: ParameterUpdate) -> Iterator[tuple[Tensor, Tensor]]:
    """Gradients, or their sums, with the parameters."""
    return zip(op.gradients, op.parameters, strict=True)


def updates(graphs: Mapping[str, Graph]) -> list[ParameterUpdate]:
    """All updates of all sections."""
    return [op for graph in graphs.values() for op in graph.ops if isinstance(op, ParameterUpdate)]


# Operations with kernels that read and write bfloat16. All others are bracketed by conversions.
BF16_OPS: tuple[type[Op], ...] = (
    *(ops.Activation, ops.ActivationBackward, ops.Add, ops.BatchNorm, ops.BatchNormBackward),
    *(ops.BatchNormInference, ops.BatchNormInferenceBackward, ops.BiasAdd, ops.BiasGrad),
    *(ops.Concat, ops.Conv2d),
    *(ops.Conv2dBackwardData, ops.Conv2dBackwardFilter, ops.Dropout, ops.DropoutBackward),
    *(ops.GatherBatch, ops.Lrn, ops.LrnBackward, ops.MatMul, ops.PadChannels, ops.Pool2d),
    *(ops.Pool2dBackward, ops.Reshape, ops.Scale, ops.Slice, ops.Views),
)


def bf16_tensors(graph: Graph) -> frozenset[Tensor]:
    """Activations between operations that take bfloat16; scores and losses stay float32."""
    good: set[Tensor] = set()
    bad: set[Tensor] = set()
    for op in graph.ops:
        for tensor in (*op.reads(), *op.writes()):
            if tensor.role != "activation" or tensor.dtype != "float32":
                continue
            (good if _takes(op, tensor) else bad).add(tensor)
    return frozenset(good - bad)


def _takes(op: Op, tensor: Tensor) -> bool:
    if isinstance(op, ops.Fused):
        return tensor in op.bf16
    if isinstance(op, ops.Scale):
        # Rows are scores, which the loss needs unrounded.
        return len(tensor.shape) == 4
    if isinstance(op, ops.GatherBatch):
        return tensor == op.x
    # Vectors, such as the mean and deviation of batch norm, stay in float32.
    return isinstance(op, BF16_OPS) and len(tensor.shape) > 1
