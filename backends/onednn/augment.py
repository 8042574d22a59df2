"""Gathering with augmentation: NumPy moves pixels, oneDNN scales them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...graph.augmentations import stages
from ...graph.ops import GatherAugmented
from ..base import Array
from ..reference.augment import augmented, decisions
from .bind import Binder, binds
from .memory import Descriptor
from .step import Rows, scale_pixels


@binds(GatherAugmented)
def gather_augmented(b: Binder, op: GatherAugmented) -> None:
    n = op.x.shape[0]
    resamples = bool(stages(op.augment)[1])
    raw = None if resamples else b.scratch(Descriptor.of(op.x.shape, "plain", "uint8"))
    if raw is None:
        pictures = b.output(op.x).array(op.x.shape)
    else:
        pictures = raw.array(op.x.shape, np.uint8)
    images, order, step = b.data(op.images), b.data(op.order), b.array(op.step)
    chosen = Rows(b, op)

    @lru_cache(1)
    def drawn_in(epoch: int, count: int) -> list[Array]:
        """What is drawn for all samples, at once: NumPy's calls cost more than numbers."""
        return decisions(op, np.arange(count), epoch)

    def gather() -> None:
        rows = np.maximum(chosen(), 0)
        epoch = int(step[0]) // (len(order()) // n)
        source = images()
        drawn = [each[rows] for each in drawn_in(epoch, len(source))]
        augmented(op, source, rows, epoch, drawn, pictures)

    kinds = ", ".join(each.kind for each in op.augment)
    details = {"augment": kinds, "pictures": f"{'u8' if raw else 'f32'} {n}x{op.x.size // n}"}
    b.host(op, gather, "take", details)
    scale_pixels(b, op, raw, chosen)
