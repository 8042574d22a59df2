"""The two parts into which a training divides its training set."""

from __future__ import annotations

from ..configs import RunConfig
from ..datasets import split_validation
from ..datasets.loader import Index


def divide(config: RunConfig, count: int) -> tuple[Index, Index]:
    """The samples to train on and those to validate on, of ``count``: each ascending int32.

    Raises DatasetError.
    """
    return split_validation(count, config.data.validation, config.seed)
