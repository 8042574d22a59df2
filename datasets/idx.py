"""IDX files (LeCun, Cortes, Burges: the MNIST database), strictly parsed.

Layout: two zero bytes, a type byte (8: unsigned byte), the number of dimensions, each dimension as
a big-endian 32-bit integer, then exactly their product of bytes. gzip or plain.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.files import sha256_bytes
from ..common.text import shape_text
from .gzip_file import GzipError, unpacked
from .image_set import unreadable

_UNSIGNED_BYTE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_COUNT = 4_000_000
_PIECE = 1 << 20
_KINDS = {bytes((0, 0, 8, 1)): "labels", bytes((0, 0, 8, 3)): "pictures"}
_AGAIN = "download the file again"


def read_idx(path: Path, item_shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], str]:
    """The array of an IDX file and the SHA-256 of its decompressed bytes.

    Returns (M, *item_shape) uint8, read-only. The header is checked before anything beyond it is
    decompressed, and then at most one byte more than it announces, so that a decompression bomb
    does no harm. Raises DatasetError that names the file.
    """
    try:
        with open(path, "rb") as file:
            compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if not compressed:
                return _parse(path, file, item_shape)
            return _parse(path, unpacked(file), item_shape)
    except GzipError as error:
        raise DatasetError(f"{path}: damaged gzip file ({error}); {_AGAIN}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _parse(
    path: Path, file: BinaryIO, item_shape: tuple[int, ...]
) -> tuple[NDArray[np.uint8], str]:
    dimensions = 1 + len(item_shape)
    size = 4 + 4 * dimensions
    header = file.read(size)
    magic = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if header[:4] != magic:
        raise DatasetError(f"{path}: {_other_magic(header[:4], magic)}")
    if len(header) < size:
        raise DatasetError(f"{path}: ends inside its header; {_AGAIN}")
    count, *shape = struct.unpack_from(f">{dimensions}I", header, 4)
    if tuple(shape) != item_shape:
        raise DatasetError(
            f"{path}: contains items of {shape_text(shape)}, expected {shape_text(item_shape)}"
        )
    if not 1 <= count <= _MAX_COUNT:
        raise DatasetError(f"{path}: its header announces {count} items; {_AGAIN}")
    expected = size + count * math.prod(item_shape)
    content = bytearray(header)
    # In pieces: a single read would allocate whatever size the header announces.
    while len(content) <= expected:
        piece = file.read(min(_PIECE, expected + 1 - len(content)))
        if not piece:
            break
        content += piece
    if len(content) < expected:
        raise DatasetError(
            f"{path}: is truncated: its header announces {expected} bytes, it has {len(content)}; "
            f"{_AGAIN}"
        )
    if len(content) > expected:
        raise DatasetError(
            f"{path}: has more than the {expected} bytes that its header announces; {_AGAIN}"
        )
    array = np.frombuffer(content, np.uint8, offset=size).reshape(count, *item_shape)
    array.setflags(write=False)
    return array, sha256_bytes(content)


def _other_magic(found: bytes, wanted: bytes) -> str:
    """What a file with wrong first bytes probably is."""
    if not found:
        return f"is empty; {_AGAIN}"
    if {found, wanted} == set(_KINDS):
        return (
            f"contains {_KINDS[found]}, not {_KINDS[wanted]}: it begins with {found.hex(' ')}, not "
            f"{wanted.hex(' ')}; were two files swapped? Rename them, or download them again"
        )
    page = "; it looks like a web page" if found[:1] == b"<" else ""
    return (
        f"is not an IDX file of unsigned bytes: it begins with {found.hex(' ')}, not "
        f"{wanted.hex(' ')}{page}; {_AGAIN}"
    )
