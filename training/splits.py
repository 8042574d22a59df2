"""The two parts into which a training divides its training set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError, Warned
from ..configs import RunConfig
from ..datasets import DatasetInfo, ImageSet, split_fold, split_validation
from ..datasets.identity import some
from ..datasets.loader import Index


def settled(config: RunConfig, begun: RunConfig | None = None) -> RunConfig:
    """The config with ``data.stratified``, and the interval of checkpoints, as in the run that was
    ``begun``, unless it contradicts.

    And with its batch size, if that is ``auto``. In a new run, own pictures and rows of a class are
    stratified unless it says otherwise.
    """
    data, own, size = config.data, config.data.stratified, config.data.batch_size
    if begun is not None and (own is None or own == (begun.data.stratified or False)):
        own = begun.data.stratified
    elif begun is None and own is None and data.dataset.type in ("image_folder", "csv"):
        own = data.dataset.options().get("kind") in (None, "class") or None
    saving = config.checkpoint
    if begun is not None:
        size = size or begun.data.batch_size
        if not (saving.every_steps or saving.every_epochs):
            names = ("every_steps", "every_epochs")
            saving = saving.model_copy(update={n: getattr(begun.checkpoint, n) for n in names})
    data = data.model_copy(update={"stratified": own, "batch_size": size})
    return config.model_copy(update={"data": data, "checkpoint": saving})


def divide(
    config: RunConfig,
    labels: Index,
    held: NDArray[np.bool_] | None = None,
    barred: NDArray[np.bool_] | None = None,
) -> tuple[Index, Index]:
    """The samples to train on and those to validate on: each ascending int32; labels: of all.

    ``held``: that of the ``ImageSet``. ``barred``: those that were trained on before, and are never
    validated on. Raises DatasetError.
    """
    data = config.data
    seed = config.seed if data.split_seed is None else data.split_seed
    # Of targets that are no classes there are no shares.
    stratified = labels.ndim == 1
    own = labels if data.stratified and stratified else None
    if held is not None:
        train, found = (np.flatnonzero(held == part).astype(np.int32) for part in (False, True))
        parts = train, found
    elif data.fold is None:
        each = data.stratified == "each"
        parts = split_validation(len(labels), data.validation, seed, own, barred, each)
    elif data.fold.count > len(labels):
        raise DatasetError(
            f"data.fold: {len(labels)} samples cannot be divided into {data.fold.count} folds, "
            "each with a sample to validate on; use fewer"
        )
    else:
        own = labels if data.fold.stratified and stratified else own
        parts = split_fold(len(labels), data.fold.count, data.fold.index - 1, seed, own)
    if barred is not None:
        train, found = parts
        moved = found[barred[found]]
        parts = np.sort(np.concatenate([train, moved])), found[~barred[found]]
    if len(parts[1]) == 0 and (data.validation or data.fold is not None):
        raise DatasetError(
            f"{data.validation_key}: the network that init_from names was trained on all the "
            "samples that would be held back, so none is left to validate on; add other samples, "
            f"or {'set it to 0' if held is None else 'remove it'}"
        )
    return parts


def foreseen(config: RunConfig, info: DatasetInfo, count: int) -> tuple[Index, Index]:
    """The parts of a data set that is not read yet, with ``count`` samples in its training set.

    An unknown number of validation samples of its own is that of a whole batch.
    """
    if not config.data.dataset.own_validation:
        return divide(config, np.zeros(count, np.int32))
    own = info.validation_count or config.data.evaluation_batch_size
    return np.arange(count, dtype=np.int32), np.arange(count, count + own, dtype=np.int32)


def untrained_classes(images: ImageSet, train: Index) -> tuple[str, ...]:
    """A warning of the classes of which no sample is among ``train``, if there are such."""
    counts = [1.0] if images.kind == "numbers" else images.counts(train)
    missing = [name for name, count in zip(images.classes, counts, strict=False) if not count]
    text = f"no sample of {some(missing)} is trained on; the network cannot learn such a class"
    return (Warned(text),) if missing else ()
