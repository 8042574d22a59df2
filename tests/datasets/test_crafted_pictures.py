"""Picture files whose headers keep a decoder busy: the work is linear in their length."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable

import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import picture_files

from ..support.work import work


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(content, zlib.crc32(kind)))
    )


def png(middle: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"\0\0\0\0\0" * 4))
    return b"\x89PNG\r\n\x1a\n" + head + middle + data + chunk(b"IEND")


def gif(middle: bytes) -> bytes:
    return b"GIF89a\4\0\4\0\x80\0\0" + bytes(6) + middle


CRAFTED: dict[str, Callable[[int], bytes]] = {
    "a comment of PPM": lambda n: b"P5\n#" + b"x" * n + b"\n4 4 255\n" + bytes(16),
    "comments of PPM": lambda n: b"P5\n" + b"#\n" * (n // 2) + b"4 4 255\n" + bytes(16),
    "spaces of PPM": lambda n: b"P5" + b" " * n + b"4 4 255\n" + bytes(16),
    "spaces of plain PPM": lambda n: b"P2\n4 4 255\n" + b" " * n + b"1 " * 16,
    "texts of PNG": lambda n: png(chunk(b"tEXt", b"a\0b") * (n // 15)),
    "bombs of PNG": lambda n: png(chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(n))) * 9),
    "empty chunks of PNG": lambda n: png(chunk(b"IDAT") * (n // 12)),
    "unknown chunks of PNG": lambda n: png(chunk(b"abCd") * (n // 12)),
    "markers of JPEG": lambda n: b"\xff\xd8" + b"\xff\xe1\x00\x02" * (n // 4) + b"\xff\xd9",
    "comments of JPEG": lambda n: b"\xff\xd8" + b"\xff\xfe\x00\x02" * (n // 4) + b"\xff\xd9",
    "padding of JPEG": lambda n: b"\xff\xd8" + b"\xff" * n,
    "comments of GIF": lambda n: gif(b"!\xfe\1x\0" * (n // 5)),
    "blocks of GIF": lambda n: gif(b"!\xfe" + b"\1x" * (n // 2) + b"\0"),
    "noise of GIF": lambda n: gif(b"x" * n),
    "entries of TIFF": lambda n: (
        b"II*\0\x08\0\0\0"
        + struct.pack("<H", min(n // 12, 65535))
        + struct.pack("<HHII", 256, 4, 1, 4) * (n // 12)
        + bytes(4)
    ),
    "chunks of WEBP": lambda n: (
        b"RIFF"
        + struct.pack("<I", n)
        + b"WEBPVP8X"
        + struct.pack("<I", 10)
        + b"\x10\0\0\0\3\0\0\3\0\0"
        + b"abcd\0\0\0\0" * (n // 8)
    ),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_twice_the_length_is_twice_the_work(case, tmp_path):
    path = tmp_path / "x"

    def read() -> None:
        with contextlib.suppress(DatasetError):
            picture_files.open_picture(path, [])

    calls = []
    # The first reading imports the decoders.
    for length in (100, 20_000, 40_000):
        path.write_bytes(CRAFTED[case](length))
        calls.append(work(read))
    assert calls[2] <= 2.2 * calls[1] + 500
    assert calls[2] <= 20 * 40_000


def test_comments_in_a_plain_ppm_are_counted(tmp_path):
    """Pillow removes them one by one from a block in memory."""
    path = tmp_path / "x.ppm"
    path.write_bytes(b"P2\n# made by hand\n2 2 255\n" + b"# a row\n1 2\n" * 2)
    assert picture_files.open_picture(path, []).size == (2, 2)
    path.write_bytes(b"P2\n2 2 255\n" + b"#\n" * 100_000 + b"1 2 3 4\n")

    def refused() -> None:
        with pytest.raises(DatasetError, match=r"x\.ppm: has 100000 comments, more than 1000"):
            picture_files.open_picture(path, [])

    assert work(refused) < 1000
