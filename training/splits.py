"""The two parts into which a training divides its training set."""

from __future__ import annotations

from ..common.errors import DatasetError
from ..configs import RunConfig
from ..datasets import split_fold, split_validation
from ..datasets.loader import Index


def divide(config: RunConfig, labels: Index) -> tuple[Index, Index]:
    """The samples to train on and those to validate on: each ascending int32; labels: of all.

    Raises DatasetError.
    """
    data = config.data
    seed = config.seed if data.split_seed is None else data.split_seed
    if data.fold is None:
        return split_validation(len(labels), data.validation, seed)
    if data.fold.count > len(labels):
        raise DatasetError(
            f"data.fold: {len(labels)} samples cannot be divided into {data.fold.count} folds, "
            "each with a sample to validate on; use fewer"
        )
    own = labels if data.fold.stratified else None
    return split_fold(len(labels), data.fold.count, data.fold.index - 1, seed, own)
