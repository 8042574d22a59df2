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
from .configs.schema.run import DataConfig
from .datasets import ImageSet, Split
from .datasets.arrays import Axes, image_set
from .datasets.label_file import relabelled
from .datasets.own_validation import with_validation
from .training.assemble import Load, describe_data, range_doubts

Pair: TypeAlias = "tuple[ArrayLike, ArrayLike]"


def given_arrays(
    data: Pair | None = None,
    validation: Pair | None = None,
    kind: Kind | None = None,
    classes: Sequence[str] | None = None,
    axes: Axes | None = None,
) -> tuple[list[str], Load | None]:
    """The override of a config that says what arrays are like, and what loads them; see ``train``.

    Nothing without ``data``. Raises DatasetError, TypeError, UsageError.
    """
    others = {"validation": validation, "kind": kind, "classes": classes, "axes": axes}
    if data is None:
        for name in (name for name, value in others.items() if value is not None):
            raise TypeError(f"{name}: is given with arrays alone: data=(x, y)")
        return [], None
    for name, value, known in (("kind", kind, Kind), ("axes", axes, Axes)):
        if value is not None:
            word(name, value, get_args(known))
    names = None if classes is None else tuple(map(str, classes))
    images = _set("data", data, axes, kind, names)
    like = {
        "shape": images.images.shape[1:],
        "floats": images.images.dtype != np.uint8,
        "kind": images.kind,
        "classes": images.classes,
        "axes": axes,
        "validation": validation is not None,
    }
    settings = [f"data.dataset={json.dumps({'arrays': like})}"]
    if validation is not None:
        # In the place of what the config holds back.
        settings.append(f"data.validation={DataConfig.model_fields['validation'].default}")
        own = _set("validation", validation, axes, images.kind, images.classes)
        images = with_validation(images, own)

    def load(config: RunConfig, split: Split, root: Path, *wanted: Any) -> ImageSet:
        found = relabelled(images, config.data.labels, split, root)
        return replace(found, doubts=range_doubts(config, describe_data(config), images))

    return settings, load


def as_array(name: str, value: Any) -> NDArray[Any]:
    """A NumPy array of what can be one. Raises DatasetError."""
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise DatasetError(f"{name}: is no array of numbers: {error}") from None
    texts = found.dtype == object and all(isinstance(each, str) for each in found.flat)
    return found.astype(str) if texts else found


def _set(
    name: str, pair: Any, axes: Axes | None, kind: Kind | None, names: Sequence[str] | None
) -> ImageSet:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise TypeError(f"{name}: expected a pair of arrays, (x, y), got {type_of(pair)}")
    inputs, targets = (
        (f"{name}, {part}", as_array(f"{name}, {part}", pair["xy".index(part)])) for part in "xy"
    )
    return image_set("arrays/train", inputs, targets, axes, kind, names)
