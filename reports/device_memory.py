"""The GPU memory that training a config needs, computed without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.errors import ConfigError
from ..graph.rewrites import rewritten
from ..training.sections import Sections

if TYPE_CHECKING:
    from ..backends.cuda.memory_plan import MemoryPlan
    from ..configs.schema.run import RunConfig


def gpu_memory(config: RunConfig, sections: Sections) -> MemoryPlan | None:
    """The memory plan that compiling these sections for CUDA checks.

    None where a tensor has too many elements for it. ``residency: auto`` counts as ``device``:
    whether batches are streamed depends on the memory that is free when training starts.
    """
    from ..backends.cuda.backend import CudaBackend
    from ..backends.cuda.memory_plan import plan_memory

    rewrites = CudaBackend.rewrites if config.run.fusion else {}
    graphs = {name: rewritten(graph, rewrites) for name, graph in sections.graphs().items()}
    streamed = config.data.residency == "stream"
    try:
        return plan_memory(graphs, config.run.precision, streamed, config.run.fusion)
    except ConfigError:
        return None
