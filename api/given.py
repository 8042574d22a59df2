"""Arrays that a program trains on, in the place of the config's data set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import kind as type_of
from .arguments import word
from .common.errors import DatasetError
from .common.targets import Kind
from .configs import RunConfig
from .datasets import Downloads, ImageSet, Split
from .datasets.arrays import Axes, image_set
from .datasets.integer_pixels import Depth
from .datasets.own_validation import with_validation
from .training.assemble import describe_data, range_doubts

Pair: TypeAlias = "tuple[ArrayLike, ArrayLike]"


class Given:
    """The arrays (x, y) to train on, and those to validate on, as a ``Load`` reads them.

    ``settings``: the override of the config, which says what they are like.
    """

    def __init__(
        self,
        data: Pair,
        validation: Pair | None,
        kind: Kind | None,
        classes: Sequence[str] | None,
        axes: Axes | None,
    ) -> None:
        """See ``fitting.train``. Raises DatasetError, TypeError, UsageError."""
        for name, value, known in (("kind", kind, Kind), ("axes", axes, Axes)):
            if value is not None:
                word(name, value, get_args(known))
        names = None if classes is None else tuple(map(str, classes))
        found = _set("data", data, axes, kind, names)
        like: dict[str, Any] = {
            "shape": found.images.shape[1:],
            "floats": found.images.dtype != np.uint8,
            "kind": found.kind,
            "classes": found.classes,
        }
        if axes is not None:
            like["axes"] = axes
        if validation is not None:
            like["validation"] = True
            own = _set("validation", validation, axes, found.kind, found.classes)
            found = with_validation(found, own)
        self.settings = [f"data.dataset={json.dumps({'arrays': like})}"]
        self._images = found
        self._told = False

    def __call__(
        self,
        config: RunConfig,
        split: Split,
        root: Path,
        downloads: Downloads | None = None,
        bits: Depth | None = None,
    ) -> ImageSet:
        """The samples to train on, with what a person should know of them the first time."""
        told, self._told = self._told, True
        doubts = () if told else range_doubts(config, describe_data(config), self._images)
        return replace(self._images, doubts=doubts)


def given_arrays(
    data: Pair | None,
    validation: Pair | None,
    kind: Kind | None,
    classes: Sequence[str] | None,
    axes: Axes | None,
) -> Given | None:
    """None without ``data``, and then there are no other arguments either. Raises TypeError."""
    if data is not None:
        return Given(data, validation, kind, classes, axes)
    others = {"validation": validation, "kind": kind, "classes": classes, "axes": axes}
    for name in (name for name, value in others.items() if value is not None):
        raise TypeError(f"{name}: is given with arrays alone: data=(x, y)")
    return None


def as_array(name: str, value: Any) -> NDArray[Any]:
    """A NumPy array of what is one, or can be one. Raises TypeError, DatasetError."""
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise DatasetError(f"{name}: is no array of numbers: {error}") from None
    if found.dtype == object and all(isinstance(each, str) for each in found.flat):
        return found.astype(str)
    return found


def _set(
    name: str, pair: Any, axes: Axes | None, kind: Kind | None, names: Sequence[str] | None
) -> ImageSet:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{name}: expected a pair of arrays, (x, y), got {type_of(pair)}")
    x, y = (f"{name}, {part}" for part in "xy")
    inputs, targets = (x, as_array(x, pair[0])), (y, as_array(y, pair[1]))
    return image_set("arrays/train", inputs, targets, axes, kind, names)
