"""Arrays as samples and targets: what their axes, their types and their values mean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.targets import Kind, check_targets
from ..common.text import nfc
from .image_set import ImageSet

_LOG = logging.getLogger("dnnstack.datasets")

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
_BY_TYPE: dict[str, Kind] = {"f": "numbers", "b": "yes_no"}
_OF_PICTURES = (1, 3, 4)
# Of labels that are numbers; more classes are hardly meant.
_MOST_CLASSES = 100_000
# Up to here float32 has every integer.
_MOST_EXACT = 1 << 24


def arranged(where: str, x: NDArray[Any], axes: Axes | None) -> NDArray[Any]:
    """The array with the axes (N, C, H, W), without a copy.

    axes: those that it has, by default found: a number or a row of columns for each sample, grey
    pictures of bytes, or pictures (N, C, H, W). Raises DatasetError.
    """
    if x.dtype.kind not in "biuf":
        raise DatasetError(f"{where}: inputs are numbers of one type, but this is {x.dtype}")
    shape, found = x.shape, str(axes or "")
    if not axes and x.ndim in (1, 2):
        found = "NC"[: x.ndim]
    elif not axes and x.ndim == 3:
        if x.dtype != np.uint8:
            raise DatasetError(
                f"{where}: has the shape {shape}; say what it is with axes: NHW for grey pictures, "
                "NCL or NLC for sequences of C numbers"
            )
        found = "NHW"
    elif not axes and x.ndim == 4:
        found = "NCHW"
        if shape[3] in _OF_PICTURES and shape[1] not in _OF_PICTURES:
            raise DatasetError(
                f"{where}: has the shape {shape}; if its channels are the last axis, say so with "
                "axes: NHWC, else with axes: NCHW"
            )
    if len(found) != x.ndim:
        wanted = f"but the axes {found} are {len(found)}" if axes else "expected 1 to 4 axes"
        raise DatasetError(f"{where}: has the shape {shape}, {wanted}")
    if 0 in shape:
        raise DatasetError(f"{where}: is empty: its shape is {shape}")
    return VIEWS[found](x)


def stored(where: str, x: NDArray[Any]) -> NDArray[Any]:
    """(N, C, H, W) as a network reads it: bytes, which are pixels, and float32 as they are.

    Other types become float32, with the same values if they are integers. Raises DatasetError for
    what float32 does not hold, with the first such sample.
    """
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind in "iu" and max(abs(int(x.min())), abs(int(x.max()))) > _MOST_EXACT:
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
    where: str, y: NDArray[Any], kind: Kind | None, names: Sequence[str] | None
) -> tuple[NDArray[Any], Kind, tuple[str, ...]]:
    """Targets as an ``ImageSet`` has them, their kind, and the names of classes or numbers.

    kind: by default that of their type: integers and texts are classes, floats are numbers, and
    truth values answer yes or no. names: by default numbers from 0, or of texts those that there
    are, sorted. Raises DatasetError.
    """
    kind = kind or _BY_TYPE.get(y.dtype.kind, "class")
    if y.dtype.kind not in ("biufU" if kind == "class" else "biuf"):
        raise DatasetError(f"{where}: targets of the kind '{kind}' are no {y.dtype}")
    if kind != "class":
        rows = y[:, None] if y.ndim == 1 else y
        labels = np.ascontiguousarray(rows, np.float32)
        names = tuple(names or map(str, range(rows.shape[-1])))
        check_targets(where, kind, labels, len(names))
        return labels, kind, names
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DatasetError(
            f"{where}: has the shape {y.shape}, but a class is one number for each sample; for "
            "rows say what they are with kind: numbers, yes_no or distribution"
        )
    if y.dtype.kind == "U":
        given = [nfc(each) for each in y.tolist()]
        names = tuple(names or sorted({*given}))
        places = {nfc(name): place for place, name in enumerate(names)}
        unknown = [name for name in given if name not in places]
        if unknown:
            raise DatasetError(f"{where}: {unknown[0]!r} is none of the classes")
        return np.array([places[name] for name in given], np.int32), kind, names
    if y.dtype.kind == "f" and not (np.isfinite(y) & (y == np.floor(y))).all():
        raise DatasetError(f"{where}: has numbers that are no classes; kind: numbers takes any")
    largest = max(int(y.max(initial=0)), 1)
    if names is None and largest >= _MOST_CLASSES:
        raise DatasetError(
            f"{where}: the largest class is {largest}; classes are counted from 0. If these are "
            "numbers, say so with kind: numbers"
        )
    names = tuple(names or map(str, range(largest + 1)))
    check_targets(where, kind, y, len(names))
    return y.astype(np.int32), kind, names


def image_set(
    name: str,
    inputs: tuple[str, NDArray[Any]],
    targets: tuple[str, NDArray[Any]],
    axes: Axes | None,
    kind: Kind | None,
    names: Sequence[str] | None,
) -> ImageSet:
    """The set of such inputs and targets, each with what it is called in messages.

    See ``arranged``, ``stored`` and ``as_targets``. Raises DatasetError.
    """
    images = arranged(*inputs, axes)
    labels, kind, classes = as_targets(*targets, kind, names)
    if len(images) != len(labels):
        raise DatasetError(
            f"{inputs[0]}: has {len(images)} samples, but {targets[0]} has {len(labels)} targets; "
            "give one for each"
        )
    # The caller may write into his own.
    images, labels = stored(inputs[0], images).view(), labels.view()
    for array in (images, labels):
        array.setflags(write=False)
    return ImageSet(name, images, labels, classes, kind=kind)
