"""Arrays of pictures in files of the cache, mapped, so that they may be larger than memory."""

from __future__ import annotations

import errno
import io
import logging
import os
import shutil
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.files import cache_dir, make_folder, naming, sync_folder, temporary_name
from ..common.machine import main_memory
from ..common.text import shape_text

_LOG = logging.getLogger("dnnstack.datasets")
# What a selection may take in memory, and what of one is copied at a time.
_IN_MEMORY, _PIECE = 1 << 28, 1 << 24

Images = NDArray[np.uint8]


def decoded_folder() -> Path:
    """Where the cache has decoded data sets."""
    return cache_dir() / "decoded"


def npy_header(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    """What stands before a C-contiguous array in an .npy file: as long for fewer rows."""
    stream = io.BytesIO()
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def new_pictures(count: int, shape: tuple[int, int, int], whose: str) -> Images:
    """(count, *shape) uint8 to be written: a temporary .npy file in the cache, mapped.

    The file is deleted with the array, unless ``keep_pictures`` gives it a name. Where the cache
    takes no files, the array is in memory. Raises DatasetError, which begins with ``whose``, if
    neither has room.
    """
    folder, header = decoded_folder(), npy_header((count, *shape))
    needed = len(header) + count * int(np.prod(shape))
    try:
        make_folder(folder)
        return _mapped(folder, header, (count, *shape), needed)
    except OSError as error:
        why = error.strerror
    if needed > main_memory():
        raise DatasetError(
            f"{whose}: {count:,} pictures of {shape_text(shape)} take {needed:,} bytes, but the "
            f"cache {folder} does not take them ({why}), and the memory has {main_memory():,} "
            "bytes; set DNNSTACK_CACHE to a folder on a larger disk, choose a smaller size, or "
            "fewer pictures"
        )
    _LOG.info("%s: %s (%s); its pictures stay in memory", whose, folder, why)
    return np.empty((count, *shape), np.uint8)


def _mapped(folder: Path, header: bytes, shape: tuple[int, ...], needed: int) -> Images:
    """Raises OSError for a disk without room, which would end the process when it writes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(errno.ENOSPC, f"its disk has {free:,} bytes free")
    path = temporary_name(folder / "images.npy")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.posix_fallocate(descriptor, 0, needed)
            file.write(header)
        images = np.memmap(path, np.uint8, "r+", len(header), shape)
    except BaseException:
        _delete(path)
        raise
    weakref.finalize(images, _delete, path)
    return images


def _delete(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def keep_pictures(images: Images, path: Path) -> bool:
    """Make the file of ``new_pictures`` durable as ``path``; images: its first rows.

    False if they are not in such a file. Raises OSError.
    """
    if not isinstance(images, np.memmap) or images.mode != "r+":
        return False
    own = str(images.filename)
    with naming(path), open(own, "r+b") as file:
        header = npy_header(images.shape)
        images.flush()
        file.write(header)
        file.truncate(len(header) + images.nbytes)
        os.fsync(file.fileno())
        os.replace(own, path)
        sync_folder(path.parent)
    return True


def picked(images: Images, rows: NDArray[np.int32], whose: str) -> Images:
    """A copy of images[rows]; a large one of a mapped array is in a file, too."""
    each = images[:1].nbytes
    if not isinstance(images, np.memmap) or len(rows) * each <= _IN_MEMORY:
        return images[rows]
    found = new_pictures(len(rows), images.shape[1:], whose)
    step = max(1, _PIECE // each)
    for begin in range(0, len(rows), step):
        found[begin : begin + step] = images[rows[begin : begin + step]]
    return found
