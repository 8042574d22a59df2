"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ...common.errors import DatasetError
from ...graph.ops import Advance, ClipByNorm, GatherBatch, GlobalNorm, SkipParts
from ..base import Array
from .kernels import kernel

Arrays = tuple[Array, ...]


@kernel(GatherBatch, "take")
def gather_batch(
    op: GatherBatch, images: Array, labels: Array, order: Array, step: Array
) -> Arrays:
    rows = picked_rows(op, images, labels, order, step)
    return scaled(op, images[np.maximum(rows, 0)], labels, rows)


def scaled(op: GatherBatch, pixels: Array, labels: Array, rows: Array) -> Arrays:
    """pixels * scale + shift, zeros where there is no sample, and the labels."""
    # Always in float64, rounded once: the arguments do not say which precision is wanted.
    scale, shift = (np.array(each).reshape(-1, 1, 1) for each in (op.scale, op.shift))
    x = pixels * scale
    # -0 + 0 = 0
    if any(op.shift) or op.images.dtype == "uint8":
        x += shift
    x[rows < 0] = 0.0
    target = labels[rows]
    target[rows < 0] = np.int32(-1).view(op.target.dtype)
    return x, target


def picked_rows(op: GatherBatch, images: Array, labels: Array, order: Array, step: Array) -> Array:
    """The samples of this step, -1 for none. Raises DatasetError for one that is not there."""
    n = op.x.shape[0]
    first = n * (int(step[0]) % (len(order) // n))
    rows = order[first : first + n]
    if rows.min() < -1 or rows.max() >= min(len(images), len(labels)):
        raise DatasetError(
            f"the order asks for sample {int(rows.min())} to {int(rows.max())} at step "
            f"{int(step[0])}; '{op.images.name}' has {len(images)} pictures, "
            f"'{op.labels.name}' {len(labels)} labels"
        )
    return rows


@kernel(GlobalNorm, "vdot")
def global_norm(op: GlobalNorm, gradients: Arrays) -> Array:
    squares = sum(float(np.vdot(g, g)) for g in gradients)
    return np.array([sqrt(squares)], gradients[0].dtype)


@kernel(ClipByNorm, "multiply")
def clip_by_norm(op: ClipByNorm, norm: Array, gradients: Arrays) -> Arrays:
    factor = min(1.0, op.max_norm / float(norm[0])) if norm[0] > 0 else 1.0
    return tuple(g * factor for g in gradients)


@kernel(SkipParts, "add")
@kernel(Advance, "add")
def advance(op: Advance | SkipParts, step: Array) -> Array:
    return step + (op.parts if isinstance(op, SkipParts) else 1)
