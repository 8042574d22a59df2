"""Picture files with 16 bits a channel, which Pillow does not write in colours."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Colour types of PNG and photometric numbers of TIFF by the number of channels.
_PNG = {1: 0, 2: 4, 3: 2, 4: 6}


def png_16(pixels: NDArray[np.integer], extra: bytes = b"") -> bytes:
    """pixels: (H, W, channels); extra: chunks before the data."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, _PNG[channels], 0, 0, 0)
    end = chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + end


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def tiff_16(pixels: NDArray[np.integer], form: str = "<") -> bytes:
    """pixels: (H, W, 3 or 4), in one strip; form: ``<``, ``>``, or ``d``, deflated: by libtiff."""
    order, deflate = form.replace("d", "<"), form == "d"
    height, width, channels = pixels.shape
    data = pixels.astype(f"{order}u2").tobytes()
    data = zlib.compress(data) if deflate else data
    short, long = 3, 4
    entries = [
        (256, short, (width,)),
        (257, short, (height,)),
        (258, short, (16,) * channels),
        (259, short, (8 if deflate else 1,)),
        (262, short, (2,)),
        (273, long, (0,)),
        (277, short, (channels,)),
        (278, short, (height,)),
        (279, long, (len(data),)),
    ]
    entries += [(338, short, (2,))] if channels == 4 else []
    end = 8 + 2 + 12 * len(entries) + 4
    directory, beyond = struct.pack(f"{order}H", len(entries)), b""
    for tag, kind, values in entries:
        values = (end + 2 * channels,) if tag == 273 else values
        packed = struct.pack(f"{order}{len(values)}{'H' if kind == short else 'I'}", *values)
        if len(packed) > 4:
            beyond += packed
            packed = struct.pack(f"{order}I", end)
        directory += struct.pack(f"{order}HHI", tag, kind, len(values)) + packed.ljust(4, b"\0")
    magic = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return magic + directory + bytes(4) + beyond + data


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
