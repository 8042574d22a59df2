"""What training a config on a GPU needs of its memory, known without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...datasets import DatasetInfo
from ...layers.graph import Graph
from ...layers.rewrites import rewritten
from ..assemble import optimizer
from ..augmentation import TEST_TIME, augmentations
from ..network import Network
from ..preprocessing import Preprocessing

if TYPE_CHECKING:
    from ...configs.schema.run import RunConfig
    from ...layers.backends.cuda.memory_plan import MemoryPlan


def gpu_memory(
    config: RunConfig, network: Network, info: DatasetInfo, scaling: Preprocessing, batch_size: int
) -> MemoryPlan:
    """The plan that compiling for CUDA checks, for batches of so many pictures.

    Where the size of the data set is not known it counts as one batch.
    """
    from ...layers.backends.cuda.backend import CudaBackend
    from ...layers.backends.cuda.memory_plan import plan_memory

    data, rule = config.data, optimizer(config)
    count = max(info.train_count or 0, batch_size)
    held = data.evaluation_batch_size
    augment, views = augmentations(config, info.shape), TEST_TIME[config.evaluate.tta]
    train = network.train_graph(batch_size, "train", count, 1, 1, scaling, rule, augment=augment)
    sections: dict[str, Graph] = {"train": train}
    if data.validation:
        sections["evaluate"] = network.evaluate_graph(held, "train", count, 1, scaling, views)
    names = CudaBackend.rewrites if config.run.fusion else ()
    graphs = {name: rewritten(graph, names) for name, graph in sections.items()}
    return plan_memory(graphs, config.run.precision, data.residency == "stream")
