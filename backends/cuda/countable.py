"""Whether every tensor has few enough elements for the libraries and kernels. Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ...common.errors import ConfigError
from ...graph.graph import Graph, Tensor
from ..batch import batch_key, parts_of
from .binding.buffer import Buffer

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
