"""Reads arrays of NumPy's files, ``.npy`` and ``.npz``; nothing in them is run as Python."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.machine import main_memory
from ..common.printable import printable
from .image_set import unreadable

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_KINDS = "biufU"
_PIECE = 1 << 20
_END = ".npy"


def array_in(path: Path, name: str = "", whole: bool = True) -> NDArray[Any]:
    """The array of a ``.npy`` file, which is mapped, or the one of this name in an ``.npz`` file.

    Unless ``whole`` only the header is read, and the values of the result mean nothing. Raises
    DatasetError, also for what is neither numbers nor texts.
    """
    what = f"no array '{printable(name)}' of NumPy's" if name else "no .npy file of NumPy's"
    with _opened(path, what) as file:
        if not name:
            return _array(file, os.fstat(file.fileno()).st_size, whole, file)
        with zipfile.ZipFile(file) as archive, archive.open(name + _END) as member:
            return _array(member, archive.getinfo(name + _END).file_size, whole)


def names_in(path: Path) -> list[str]:
    """The names of the arrays in an ``.npz`` file. Raises DatasetError."""
    what = "no .npz file of NumPy's (two .npy files are a list: [inputs.npy, targets.npy])"
    with _opened(path, what) as file, zipfile.ZipFile(file) as archive:
        return [each[: -len(_END)] for each in archive.namelist() if each.endswith(_END)]


@contextmanager
def _opened(path: Path, what: str) -> Iterator[IO[bytes]]:
    """The file; what goes wrong with it raises DatasetError, which says ``what`` it is."""
    if not path.is_file():
        raise DatasetError(f"{path}: {'is no file' if path.exists() else 'no such file'}")
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise unreadable(path, error) from None
    # zipfile, NumPy and Python's parser, which reads headers, raise many kinds of error.
    except Exception as error:
        said = printable(error) or type(error).__name__
        raise DatasetError(f"{path}: is {what}, or is damaged ({said})") from None


def _array(
    stream: IO[bytes], size: int, whole: bool, mapped: IO[bytes] | None = None
) -> NDArray[Any]:
    """size: the bytes of the stream, from its header to its end."""
    shape, fortran, dtype = _HEADERS[npy.read_magic(stream)](stream)
    if dtype.kind not in _KINDS or not dtype.itemsize:
        raise ValueError(f"its type is {dtype}; numbers and texts are read, but no Python objects")
    needed, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if min(shape, default=0) < 0 or needed != there:
        raise ValueError(f"its header says {shape} of {dtype}, but {there} bytes follow")
    if not whole:
        return np.broadcast_to(np.zeros((), dtype), shape)
    order: Any = "F" if fortran else "C"
    if mapped is not None and needed:
        return np.memmap(mapped, dtype, "r", stream.tell(), shape, order)
    if needed > main_memory():
        raise ValueError(f"its {needed / 1e9:.1f} GB are more than the memory that there is")
    data, at = np.empty(needed, np.uint8), 0
    # To the end, where an archive's checksum is compared.
    while piece := stream.read(_PIECE):
        data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    if at < needed:
        raise ValueError(f"it ends after {at} of {needed} bytes")
    return data.view(dtype).reshape(shape, order=order)
