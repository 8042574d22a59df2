"""Packed files whose headers keep a reader busy: the work is linear in their length."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
from functools import partial

import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets.download import RemoteFile, _sha256
from dnnstack.datasets.gzip_file import GzipError, unpacked
from dnnstack.datasets.idx import read_idx

from ..support.work import work

MEGABYTE = 1 << 20


def header(flags: int, extra: bytes, content: bytes = b"") -> bytes:
    """A gzip member whose header has these fields."""
    plain = gzip.compress(content, mtime=0)
    return plain[:3] + bytes([flags]) + plain[4:10] + extra + plain[10:]


PACKED = struct.pack(">4B2I", 0, 0, 8, 2, 1, 4) + b"\1\2\3\4"
BUSY: dict[str, bytes] = {
    "a name of megabytes": header(8, b"x" * 3 * MEGABYTE + b"\0", PACKED),
    "a comment of megabytes": header(16, b"x" * 3 * MEGABYTE + b"\0", PACKED),
    "a name without an end": header(8, b"")[:10] + b"x" * 3 * MEGABYTE,
    "many members": gzip.compress(b"") * 100_000 + gzip.compress(PACKED),
    "many members of a byte": b"".join(gzip.compress(bytes([b])) for b in PACKED)
    + (gzip.compress(b"x") * 20_000),
    "megabytes of padding": gzip.compress(PACKED) + bytes(3 * MEGABYTE),
    "blocks that hold nothing": gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 500_000,
}


@pytest.mark.parametrize("case", BUSY)
def test_crafted_headers_of_gzip(case, tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(BUSY[case])
    most = 5_000 + 10 * len(BUSY[case]) // (1 << 14)

    def idx() -> None:
        with contextlib.suppress(DatasetError):
            read_idx(path, (4,))

    file = RemoteFile("x.gz", len(BUSY[case]), "0" * 64, len(PACKED))
    for task in (idx, lambda: _sha256(path, file)):
        assert work(task) < most


def test_members_and_padding_are_read_as_gzip_reads_them():
    parts = [b"one", b"", b"two" * 100_000, b"three"]
    packed = [gzip.compress(part) for part in parts]
    for content in (b"".join(packed), b"\0\0".join(packed) + bytes(70_000), b""):
        assert unpacked(io.BytesIO(content)).read() == gzip.decompress(content)
        pieces = unpacked(io.BytesIO(content))
        assert b"".join(iter(partial(pieces.read, 7), b"")) == gzip.decompress(content)
    whole = packed[2]
    for damaged in (whole[:-1], whole[:9], whole[:-8] + bytes(8), whole + b"more", b"x" * 20):
        with pytest.raises(GzipError):
            unpacked(io.BytesIO(damaged)).read()
