"""A training set with validation samples of its own: one set, so that one index names a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..common.errors import DatasetError
from .decoded import Arrays, decoded, kept_in
from .image_set import ImageSet
from .mapped import new_pictures

# No name below the folder of the training pictures begins so.
_BESIDE = "../validation/"


def with_validation(train: ImageSet, own: ImageSet) -> ImageSet:
    """The samples of ``train``, and behind them those of ``own``, which ``held`` marks.

    Raises DatasetError if there are none to validate on.
    """
    if not len(own):
        raise DatasetError(f"{own.name}: there are no samples to validate on")
    if own.classes != train.classes or own.images.shape[1:] != train.images.shape[1:]:
        raise DatasetError(f"{own.name}: has other classes or another shape than {train.name}")
    labels = np.concatenate([train.labels, own.labels])

    files = kept_in(train.images), kept_in(own.images)

    def build() -> Arrays:
        if not all(files):
            return np.concatenate([train.images, own.images]), labels
        images = new_pictures(len(labels), train.images.shape[1:], train.name)
        images[: len(train)], images[len(train) :] = train.images, own.images
        return images, labels

    # Mapped from the cache if its parts are, so that many processes hold it in memory once.
    name = f"{train.name.replace('/', '-')}-and-validation"
    images, _ = decoded(name, " ".join(files), build) if all(files) else build()
    for array in (images, labels):
        array.setflags(write=False)
    names = (*train.names, *(f"{_BESIDE}{each}" for each in own.names))
    return replace(
        train,
        images=images,
        labels=labels,
        sources=train.sources + own.sources,
        names=names,
        contents=train.contents + own.contents,
        key=f"{train.key} {own.key}" if train.key and own.key else "",
        held=np.arange(len(labels)) >= len(train),
    )
