"""Which samples form which batch: pure functions of counts, seed and epoch."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.random import key, permutation

Index = NDArray[np.int32]


def split_validation(
    count: int,
    validation: int | float,
    seed: int,
    labels: Index | None = None,
    barred: NDArray[np.bool_] | None = None,
    each: bool = False,
) -> tuple[Index, Index]:
    """Two disjoint parts of range(count): (train_index, validation_index), each ascending int32.

    validation: a number of samples (int), or a fraction in [0, 1) of them (float), rounded down;
    0 leaves the validation part empty. With ``labels``, (count,), each class has its share of the
    validation part, see ``_shares``; if ``each``, at least a sample of two or more, for which the
    part may be larger. ``barred``, (count,), are never in it, which may be smaller therefore.
    Raises DatasetError if the split is impossible.
    """
    groups = np.zeros(count, np.int32) if labels is None else labels
    sizes = np.bincount(groups)
    most = np.bincount(groups if barred is None else groups[~barred], minlength=len(sizes))
    spared = np.minimum(most, np.maximum(sizes - 1, 0))
    least = np.minimum(spared, int(each))
    held = math.floor(count * validation) if isinstance(validation, float) else validation
    if each and validation:
        held = max(held, int(np.count_nonzero(least > 0)))
    if held == 0 and validation > 0:
        raise DatasetError(
            f"data.validation: {validation} of {count} samples is less than one; "
            "use a larger fraction, or 0 for no validation"
        )
    if held < 0 or held >= count:
        raise DatasetError(
            f"data.validation: {held} of {count} training samples leaves {max(count - held, 0)} "
            f"for training; use a number from 0 to {max(count - 1, 0)}"
        )
    order = _order(count, seed)
    allowed = order if barred is None else order[~barred[order]]
    # Where it can be, each class keeps a sample to train on.
    shares = _shares(held, sizes, spared if spared.sum() >= held else most, least)
    chosen = np.zeros(count, np.bool_)
    for group, share in enumerate(shares.tolist()):
        chosen[allowed[groups[allowed] == group][:share]] = True
    return np.flatnonzero(~chosen).astype(np.int32), np.flatnonzero(chosen).astype(np.int32)


def _shares(
    held: int, sizes: NDArray[np.int64], most: NDArray[np.int64], least: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many of ``held`` samples each class gives: (K,), their sum as near to ``held`` as can be.

    held sizes / sum(sizes), rounded down, then one more for those that lack most, the first of
    equals; never more than ``most``, and ``least`` at the cost of those that give most.
    """
    total = int(sizes.sum())
    found: NDArray[np.int64] = np.minimum(held * sizes // max(total, 1), most)
    found = np.maximum(found, least)
    while found.sum() > held:
        found[found.argmax()] -= 1
    while (left := min(held, int(most.sum())) - int(found.sum())) > 0:
        free = np.flatnonzero(found < most)
        lacking = (held * sizes - found * total)[free]
        found[free[np.argsort(-lacking, kind="stable")[:left]]] += 1
    return found


@lru_cache(maxsize=1)
def _order(count: int, seed: int) -> NDArray[np.int64]:
    """Kept for the next training, which in a search has the same one."""
    order = permutation(key(seed, "validation split"), 0, count)
    order.setflags(write=False)
    return order


def split_fold(
    count: int, folds: int, fold: int, seed: int, labels: Index | None = None
) -> tuple[Index, Index]:
    """range(count) without one of ``folds`` parts, and that part, 0 to folds - 1: ascending int32.

    The parts are disjoint, hold every sample, and differ in size by at most one; with ``labels``,
    (count,), also in the number of samples of each class. They depend on the seed, but not on which
    of them is asked for: a permutation is dealt out in turn, sorted by class first for ``labels``.
    """
    order = permutation(key(seed, "folds"), 0, count)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
    held = np.zeros(count, np.bool_)
    held[order[fold::folds]] = True
    return np.flatnonzero(~held).astype(np.int32), np.flatnonzero(held).astype(np.int32)


def steps_per_epoch(count: int, batch_size: int) -> int:
    """The number of full batches in ``count`` samples; DatasetError if there is none."""
    steps = count // batch_size
    if steps == 0:
        raise DatasetError(
            f"data.batch_size: {batch_size} is more than the {count} training samples, so an epoch "
            f"has no full batch; set it to {max(count, 1)} or less, or hold back fewer samples "
            "for validation"
        )
    return steps


def epoch_order(train_index: Index, seed: int, epoch: int, batch_size: int) -> Index:
    """The samples of one epoch in training order: (steps * batch_size,) int32.

    A permutation of train_index keyed by (seed, epoch), without the last partial batch; batch ``s``
    is ``order[s * batch_size : (s + 1) * batch_size]``. Raises DatasetError if no batch is full.
    """
    steps = steps_per_epoch(len(train_index), batch_size)
    order = permutation(key(seed, "epoch order"), epoch, len(train_index))
    return train_index[order[: steps * batch_size]]


def balanced_order(
    train_index: Index, labels: Index, seed: int, epoch: int, batch_size: int
) -> Index:
    """As ``epoch_order``, but with every class equally often; labels: of the whole set.

    A class fills its places with its samples in an order of their own, then in another one, and so
    on through the epochs, so that all samples of a class are used equally often. Where the classes
    do not divide the places, one place more for some, the same in every epoch. Keyed by (seed,
    epoch); which places a class fills is a permutation of the epoch.
    """
    places = steps_per_epoch(len(train_index), batch_size) * batch_size
    own = labels[train_index]
    # A class of which all samples are held back for validation cannot be drawn.
    classes = np.unique(own)
    share, more = divmod(places, len(classes))
    extra = np.sort(permutation(key(seed, "balanced extra"), 0, len(classes))[:more])
    drawn = []
    for at, label in enumerate(classes):
        samples = train_index[own == label]
        count = share + (at in extra)
        stream = key(seed, "balanced class", str(label))
        place, end = epoch * count, (epoch + 1) * count
        while place < end:
            turn, first = divmod(place, len(samples))
            chosen = permutation(stream, turn, len(samples))[first : first + end - place]
            drawn.append(samples[chosen])
            place += len(chosen)
    order = permutation(key(seed, "balanced order"), epoch, places)
    return np.concatenate(drawn)[order]


def evaluation_order(index: Index, batch_size: int) -> Index:
    """``index`` padded with -1 to whole batches: (ceil(n / batch_size) * batch_size,) int32.

    -1 stands for no sample: its target is -1, which every loss and ``Metrics`` leave out.
    """
    batches = -(-len(index) // batch_size)
    padded = np.full(batches * batch_size, -1, np.int32)
    padded[: len(index)] = index
    return padded
