"""What a backend gathers of augmented pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.augmentations import Augmentation, augmentation_keys
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import GatherAugmented

SEED, FILL = 11, 77


def gathered(
    augment: tuple[Augmentation, ...],
    images: Array,
    order: list[int],
    batch_size: int,
    step: int,
    backend: Backend | None = None,
    before: tuple[int, ...] = (),
) -> Array:
    """x of a step after those ``before``: pixels as they are, (N, C, H, W)."""
    _, channels, height, width = images.shape
    graph = Graph("gather", batch_size)

    def tensor(name: str, value: Array, role: str) -> Tensor:
        made = graph.tensor(name, value.shape, str(value.dtype), role)  # type: ignore[arg-type]
        values[made] = value
        return made

    values: dict[Tensor, Array] = {}
    x = graph.tensor("x", (batch_size, channels, height, width))
    graph.add(
        GatherAugmented(
            images=tensor("images", images, "data"),
            labels=tensor("labels", np.zeros(len(images), np.int32), "data"),
            order=tensor("order", np.array(order, np.int32), "data"),
            step=tensor("step", np.array([step], np.int64), "state"),
            x=x,
            target=graph.tensor("target", (batch_size,), "int32"),
            scale=(1.0,) * channels,
            shift=(0.0,) * channels,
            augment=augment,
            keys=augmentation_keys(augment, SEED),
            fill=(FILL,) * channels,
        )
    )
    precision: Any = "fp64" if backend is None else "fp32"
    chosen = backend or ReferenceBackend(1)
    executable = chosen.compile({"gather": graph}, Options(precision))
    for made, value in values.items():
        executable.write(made, value)
    for now in (*before, step):
        executable.write(graph.ops[0].step, np.array([now], np.int64))  # type: ignore[attr-defined]
        executable.run("gather")
    found = executable.read(x)
    executable.close()
    return found


def pictures(count: int, channels: int, height: int, width: int) -> Array:
    return np.random.default_rng(5).integers(1, 256, (count, channels, height, width), np.uint8)
