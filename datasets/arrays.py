"""Arrays as samples and targets: what their axes, their types and their values mean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.targets import Kind, check_targets
from .image_set import ImageSet

_LOG = logging.getLogger("dnnstack.datasets")

Named: TypeAlias = "tuple[str, NDArray[Any]]"
"""An array, and before it what it is called in messages."""
Axes: TypeAlias = Literal["NC", "NHW", "NCL", "NLC", "NCHW", "NHWC"]
"""Samples, channels or columns, height, width; L: the length of sequences, which is a width."""
VIEWS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "N": lambda x: x[:, None, None, None],
    "NC": lambda x: x[:, :, None, None],
    "NHW": lambda x: x[:, None],
    "NCL": lambda x: x[:, :, None],
    "NLC": lambda x: x.transpose(0, 2, 1)[:, :, None],
    "NCHW": lambda x: x,
    "NHWC": lambda x: x.transpose(0, 3, 1, 2),
}
"""Arrays of these axes as (N, C, H, W), without a copy."""
_OF_PICTURES = (1, 3, 4)
_BY_TYPE: dict[str, Kind] = {"f": "numbers", "b": "yes_no"}
# More classes than these are hardly meant.
_MOST_CLASSES = 100_000
# Up to here float32 has every integer.
_MOST_EXACT = 1 << 24


def arranged(inputs: Named, axes: Axes | None) -> NDArray[Any]:
    """The array with the axes (N, C, H, W), without a copy.

    axes: those that it has, by default a number or a row for each sample, grey pictures of bytes,
    or pictures (N, C, H, W). Raises DatasetError where that may not be meant.
    """
    where, x = inputs
    if x.dtype.kind not in "biuf":
        raise DatasetError(f"{where}: inputs are numbers of one type, but this is {x.dtype}")
    if x.size == 0:
        raise DatasetError(f"{where}: is empty: its shape is {x.shape}")
    usual = ("", "N", "NC", "NHW" if x.dtype == np.uint8 else "", "NCHW")
    found = axes or (usual[x.ndim] if x.ndim < len(usual) else "")
    last = x.ndim == 4 and x.shape[3] in _OF_PICTURES and x.shape[1] not in _OF_PICTURES
    if len(found) != x.ndim or (last and axes is None):
        raise DatasetError(
            f"{where}: has the shape {x.shape}; say which axes these are with axes: NC for rows, "
            "NHW for grey pictures, NCL or NLC for sequences, NCHW or NHWC for pictures"
        )
    return VIEWS[found](x)


def stored(where: str, x: NDArray[Any]) -> NDArray[Any]:
    """(N, C, H, W) as a network reads it: bytes, which are pixels, and float32 as they are.

    Other types become float32. Raises DatasetError for numbers that it does not hold.
    """
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind in "iu" and max(-int(x.min()), int(x.max())) > _MOST_EXACT:
        raise DatasetError(
            f"{where}: has integers beyond {_MOST_EXACT}, which float32 does not tell apart; scale "
            "them and save them as float32"
        )
    if x.dtype.kind == "f" and x.dtype.itemsize > 4:
        _LOG.info("%s: the numbers are %s, and are rounded to float32", where, x.dtype)
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(x, np.float32)
    if not (np.isfinite(found.min()) and np.isfinite(found.max())):
        first = int(np.argmin(np.isfinite(found).all((1, 2, 3))))
        raise DatasetError(
            f"{where}: sample {first} has a number that is infinite, not a number (NaN) or too "
            "large for float32; replace it, or leave the sample out"
        )
    return found


def as_targets(
    targets: Named, kind: Kind | None, names: Sequence[str] | None
) -> tuple[NDArray[Any], Kind, tuple[str, ...]]:
    """Targets as an ``ImageSet`` has them, their kind, and the names of classes or numbers.

    kind: by default that of their type: integers and texts are classes, floats are numbers, and
    truth values answer yes or no. names: by default numbers from 0, or the texts that there are,
    sorted. Raises DatasetError.
    """
    where, y = targets
    kind = kind or _BY_TYPE.get(y.dtype.kind, "class")
    if y.dtype.kind not in ("biufU" if kind == "class" else "biuf"):
        raise DatasetError(f"{where}: {y.dtype} is no type of targets of the kind '{kind}'")
    if kind != "class":
        labels = np.ascontiguousarray(y[:, None] if y.ndim == 1 else y, np.float32)
        names = tuple(names or map(str, range(labels.shape[-1])))
        check_targets(where, kind, labels, len(names))
        return labels, kind, names
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise DatasetError(
            f"{where}: has the shape {y.shape}, but a class is one number for each sample; for "
            "rows say what they are with kind: numbers, yes_no or distribution"
        )
    if y.dtype.kind == "U":
        names = tuple(names or map(str, np.unique(y)))
        places = {name: place for place, name in enumerate(names)}
        if unknown := [name for name in y.tolist() if name not in places]:
            raise DatasetError(f"{where}: {unknown[0]!r} is none of the classes")
        return np.array([places[name] for name in y.tolist()], np.int32), kind, names
    if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.floor(y))).all():
        raise DatasetError(f"{where}: has numbers that are no classes; kind: numbers takes any")
    count = max(int(y.max(initial=0)) + 1, 2)
    if names is None and count > _MOST_CLASSES:
        raise DatasetError(
            f"{where}: the largest class is {count - 1}; classes are counted from 0. If these are "
            "numbers, say so with kind: numbers"
        )
    names = tuple(names or map(str, range(count)))
    check_targets(where, kind, y, len(names))
    return y.astype(np.int32), kind, names


def image_set(
    name: str,
    inputs: Named,
    targets: Named,
    axes: Axes | None,
    kind: Kind | None,
    names: Sequence[str] | None,
) -> ImageSet:
    """The set of these inputs and targets: see ``arranged``, ``stored`` and ``as_targets``."""
    images, (labels, kind, classes) = arranged(inputs, axes), as_targets(targets, kind, names)
    if len(images) != len(labels):
        raise DatasetError(
            f"{inputs[0]}: has {len(images)} samples, but {targets[0]} has {len(labels)} targets; "
            "give one for each"
        )
    # Views, as the caller may write into his own.
    images, labels = stored(inputs[0], images).view(), labels.view()
    for array in (images, labels):
        array.setflags(write=False)
    return ImageSet(name, images, labels, classes, kind=kind)
