"""What users hand to a trained network, as its inputs: arrays, pictures of Pillow's, files."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .common.errors import DatasetError
from .common.text import shape_text
from .datasets import Preparation, as_picture, read_picture
from .datasets.arrays import VIEWS, Axes, stored
from .datasets.csv_file import Rows
from .training.assemble import describe_data
from .training.inference.predict import preparation
from .training.inference.rows import rows_of
from .training.inference.trained import Trained

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

Row: TypeAlias = "Mapping[str, Any]"
Picture: TypeAlias = "str | os.PathLike[str] | PilImage | NDArray[Any]"
Pictures: TypeAlias = "Picture | Sequence[Picture] | ArrayLike | Rows | Sequence[Row]"
Inputs: TypeAlias = "NDArray[np.uint8] | NDArray[np.float32]"


def as_inputs(
    pictures: Pictures, trained: Trained, *, invert: bool | None = None, raw: bool = False
) -> Inputs:
    """The inputs of the network, (N, C, H, W): pixels as uint8; numbers as float32.

    A file and a picture of Pillow's are prepared as ``dnnstack predict`` does, with ``invert`` and
    ``raw``. An array is taken as it is: it has the size of the network's pictures and pixels from 0
    to 255, its axes are those of (N, C, H, W), (N, H, W, C), (N, H, W) for grey pictures, (N, C, L)
    for sequences, (N, C H W), or of one picture, without N. A list holds files, pictures and arrays
    of one picture each, or numbers. For a network of a table in a file, a file of rows, or a list
    of mappings from the names of its columns. Raises DatasetError for what does not fit, TypeError
    for any other type.
    """
    if (columns := trained.checkpoint.provenance.columns) is not None:
        if isinstance(pictures, (str, os.PathLike, Rows)) or _are_rows(pictures):
            given = os.fspath(pictures) if isinstance(pictures, os.PathLike) else pictures
            return columns.inputs_of(rows_of(given, trained.config))
        batch = _of_array(pictures, trained, "").astype(np.float64)
        return np.asarray(batch - np.array(columns.offsets)[:, None, None], np.float32)
    single = _is_picture(pictures)
    items: Sequence[Any] = [pictures] if single else ()
    if isinstance(pictures, (list, tuple)) and any(map(_is_item, pictures)):
        items = pictures
    if not items:
        none = isinstance(pictures, (list, tuple)) and not pictures
        return _of_array(np.empty((0, *trained.input_shape)) if none else pictures, trained, "")
    how = None
    rows: list[Inputs] = []
    for number, item in enumerate(items, 1):
        name = "the picture" if single else f"picture {number}"
        if _is_picture(item):
            how = how or preparation(trained, invert, raw)
            rows.append(_prepared(item, name, trained, how))
            continue
        inputs = _of_array(item, trained, f"{name}: ")
        if len(inputs) != 1:
            raise DatasetError(
                f"{name}: is an array of {len(inputs)} pictures, but each item of a list is one "
                "picture; use numpy.concatenate"
            )
        rows.append(inputs)
    stacked: NDArray[Any] = np.concatenate(rows)
    return stacked


def _is_picture(given: object) -> bool:
    """Whether this is a file or a picture of Pillow's, which is loaded if there is one."""
    if isinstance(given, (str, os.PathLike)):
        return True
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(given, pillow.Image)


def _are_rows(given: object) -> bool:
    """Whether this is a list of mappings from the names of columns to values."""
    return isinstance(given, (list, tuple)) and bool(given) and isinstance(given[0], Mapping)


def _is_item(given: object) -> bool:
    """Whether this is one of several pictures, not a row of numbers."""
    return _is_picture(given) or isinstance(given, np.ndarray)


def _prepared(given: Any, name: str, trained: Trained, how: Preparation) -> NDArray[np.uint8]:
    """(1, C, H, W)"""
    if isinstance(given, (str, os.PathLike)):
        if not os.fspath(given):
            raise DatasetError(f"{name}: its path is empty")
        return read_picture(os.fspath(given), trained.input_shape, how).image[None]
    try:
        return as_picture(given, name, trained.input_shape, how).image[None]
    except (OSError, SyntaxError, ValueError) as error:
        # Pillow may decode a picture only now.
        raise DatasetError(f"{name}: is damaged or cannot be read ({error})") from None


def _of_array(given: Any, trained: Trained, name: str) -> Inputs:
    """``as_inputs`` of an array, or of numbers in lists."""
    batch = _batch_of(given, trained, name)
    if trained.checkpoint.provenance.columns is not None:
        return np.asarray(batch)
    if not trained.takes_pictures:
        return _normalised(batch, trained)
    return np.ascontiguousarray(_as_bytes(batch, name))


def as_samples(given: Any, trained: Trained) -> Inputs:
    """The inputs as a data set has them, (N, C, H, W): numbers are not normalised.

    Raises as ``as_inputs`` does.
    """
    if not trained.network.floats or trained.checkpoint.provenance.columns is not None:
        return as_inputs(given, trained)
    return stored("the array", _batch_of(given, trained, ""))


def _batch_of(given: Any, trained: Trained, name: str) -> NDArray[Any]:
    """(N, C, H, W) of an array, or of numbers in lists, in its own type."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise DatasetError(f"{name}the rows of the lists have different lengths") from None
    if array.dtype.kind not in ("buif" if trained.network.floats else "uif"):
        raise TypeError(
            f"{name}expected an array of pixels, a picture of Pillow's, the path of a file, or a "
            f"list of them; got {_described(given)}"
        )
    if array.ndim == 0:
        raise DatasetError(
            f"{name}expected a picture of {shape_text(trained.input_shape)} numbers, got the "
            f"single number {array}"
        )
    said = trained.config.data.dataset.options().get("axes")
    return _as_batch(array, trained.input_shape, name, said)


def _as_batch(
    array: NDArray[Any], shape: tuple[int, int, int], name: str, said: Axes | None = None
) -> NDArray[Any]:
    """The array with the axes (N, C, H, W); ``said``: those of the arrays that were trained on."""
    for batch in (array, array[None]):
        for axes in (*([said] if said else ()), *VIEWS):
            if len(axes) == batch.ndim and (view := VIEWS[axes](batch)).shape[1:] == shape:
                return view
    if array.ndim == 2 and array.shape[1] == math.prod(shape):
        return array.reshape(-1, *shape)
    raise DatasetError(
        f"{name}the network's pictures are {shape_text(shape)}, and an array of shape "
        f"{array.shape} is not one of them or a batch of them; to have pictures of another size "
        "cropped and scaled, give PIL.Image.fromarray(picture)"
    )


def _described(given: object) -> str:
    """What was given in the place of a picture: its type, and that of what it holds."""
    kind = type(given).__name__
    if isinstance(given, (list, tuple)):
        inside = sorted({type(item).__name__ for item in given})
        return f"a {kind} of {', '.join(inside)}"
    return f"{kind} of {given.dtype}" if isinstance(given, np.ndarray) else kind


def _as_bytes(batch: NDArray[Any], name: str) -> NDArray[np.uint8]:
    if batch.dtype == np.uint8 or batch.size == 0:
        return batch.astype(np.uint8, copy=False)
    what = name or "the array: "
    low, high = batch.min(), batch.max()
    if not (low >= 0 and high <= 255):
        if not np.isfinite(batch).all():
            raise DatasetError(f"{what}has pixels that are infinite or not a number (NaN)")
        raise DatasetError(f"{what}has pixels from {low:g} to {high:g}; they must be from 0 to 255")
    pixels = batch.astype(np.uint8)
    wrong = batch[pixels != batch]
    # Numbers from 0 to 1 are the usual mistake, also where 0 and 1 alone occur.
    if batch.dtype.kind == "f" and (len(wrong) or high == 1):
        raise DatasetError(
            f"{what}has {wrong[0] if len(wrong) else high:g} as a pixel; pixels are whole numbers "
            "from 0 to 255, which the network normalises itself: for numbers from 0 to 1 give "
            "(255 * x).round().astype('uint8')"
        )
    return pixels


def _normalised(batch: NDArray[Any], trained: Trained) -> NDArray[np.float32]:
    """Numbers, as those of a table's columns or of sequences, as the network sees them."""
    info = trained.data if trained.network.floats else describe_data(trained.config)
    scale, shift = info.scale or (1.0,), info.shift or (0.0,)
    units = [np.array(v, np.float64)[:, None, None] for v in (scale, shift)]
    seen = trained.checkpoint.provenance.preprocessing
    factor, offset = (np.array(v, np.float64)[:, None, None] for v in (seen.scale, seen.shift))
    return np.asarray((batch - units[1]) / units[0] * factor + offset, np.float32)
