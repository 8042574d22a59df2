"""Gathering with augmentation: NumPy moves pixels, oneDNN scales them."""

from __future__ import annotations

import numpy as np

from ...graph.augmentations import stages
from ...graph.ops import GatherAugmented
from ..base import Array
from ..reference.augment import augmented, decisions
from .bind import Binder, binds
from .memory import Descriptor
from .step import rows_of_step, scale_pixels


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
    chosen, plan = rows_of_step(b, op), _Plan(op)

    def gather() -> None:
        rows = np.maximum(chosen(), 0)
        epoch = int(step[0]) // (len(order()) // n)
        source = images()
        drawn = plan.decisions(rows, epoch, len(source))
        augmented(op, source, rows, epoch, drawn, pictures)

    kinds = ", ".join(each.kind for each in op.augment)
    details = {"augment": kinds, "pictures": f"{'u8' if raw else 'f32'} {n}x{op.x.size // n}"}
    b.host(op, gather, "take", details)
    scale_pixels(b, op, raw)


class _Plan:
    """What is drawn for every sample of an epoch, at once: NumPy's calls cost more than numbers."""

    def __init__(self, op: GatherAugmented) -> None:
        self._op = op
        self._known: tuple[int, int] = (-1, -1)
        self._drawn: list[Array] = []

    def decisions(self, rows: Array, epoch: int, count: int) -> list[Array]:
        """Those of ``rows`` out of ``count`` samples."""
        if self._known != (epoch, count):
            self._drawn = decisions(self._op, np.arange(count), epoch)
            self._known = epoch, count
        return [drawn[rows] for drawn in self._drawn]
