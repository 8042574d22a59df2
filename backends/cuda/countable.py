"""Whether every tensor has few enough elements for the libraries and kernels. Needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping

from ...common.errors import ConfigError
from ...graph.graph import Graph, Op, Tensor
from .binding.layouts import ROWS, Geometry
from .libraries.layout import BFLOAT, FLOAT, padded
from .memory_plan import FURTHEST, batch_key

# No tensor descriptor of cuDNN's takes more (cuDNN API, cudnnSetTensor4dDescriptor), and kernels of
# ours count them in 32 bits.
MOST_ELEMENTS = (1 << 31) - 1


def check_countable(graphs: Mapping[str, Graph]) -> None:
    """Raise ConfigError, with the largest batch that does, if a tensor has too many elements.

    Padding included; data sets excepted, which are counted in 64 bits.
    """
    geometry = Geometry(FURTHEST, FLOAT)
    for graph in graphs.values():
        for op in graph.ops:
            for tensor in (*op.reads(), *op.writes()):
                if tensor.role in ("activation", "input", "parameter", "gradient"):
                    _check(graph, op, tensor, _elements(tensor, geometry))


def _check(graph: Graph, op: Op, tensor: Tensor, size: int) -> None:
    if size <= MOST_ELEMENTS:
        return
    largest = MOST_ELEMENTS * graph.batch_size // size
    key, value = batch_key(graph.name), largest * graph.parts
    if not largest or tensor.role in ("parameter", "gradient"):
        advice = "use smaller pictures, fewer channels or units, or --device cpu"
    elif graph.training:
        advice = f"{key} can be at most {value}: --set {key}={value}; or raise train.accumulate"
    else:
        advice = f"{key} can be at most {value}: --set {key}={value}"
    raise ConfigError(
        f"device 'cuda': {op.label()} of '{graph.name}' with a batch of {graph.batch_size}: "
        f"'{tensor.name}' {tensor.shape} has up to {size:,} elements with its padding, but the "
        f"GPU's libraries allow {MOST_ELEMENTS:,} in one tensor; {advice}"
    )


def _elements(tensor: Tensor, geometry: Geometry) -> int:
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
