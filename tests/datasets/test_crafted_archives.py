"""Archives whose headers keep a reader busy: the work is linear in their length, and bounded."""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import tarfile
from functools import partial
from pathlib import Path

import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets.archive import read_members
from dnnstack.datasets.download import RemoteFile, _sha256
from dnnstack.datasets.gzip_file import GzipError, unpacked
from dnnstack.datasets.idx import read_idx

from ..support.work import work

FOLDER = "set"
SIZES = {"a.bin": 3000, "b.bin": 10}
CONTENTS = {name: bytes(range(256)) * (size // 256 + 1) for name, size in SIZES.items()}
MEGABYTE = 1 << 20


def header(flags: int, extra: bytes, content: bytes = b"") -> bytes:
    """A gzip member whose header has these fields."""
    plain = gzip.compress(content, mtime=0)
    return plain[:3] + bytes([flags]) + plain[4:10] + extra + plain[10:]


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", size: int | None = None
) -> bytes:
    """A member of a tar file, padded; ``size`` is what its header says."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


WANTED = b"".join(
    entry(f"{FOLDER}/{name}", content=CONTENTS[name][: SIZES[name]]) for name in SIZES
)
END = bytes(1024)


def members(path: Path, total: int = 4000) -> dict[str, bytes]:
    return dict(read_members(path, FOLDER, SIZES, total))


def test_a_plain_archive_and_one_with_extensions(tmp_path):
    path = tmp_path / "set.tar.gz"
    wanted = {name: CONTENTS[name][:size] for name, size in SIZES.items()}
    pax = entry("./PaxHeaders/x", tarfile.XHDTYPE, b"18 mtime=1234.5\n" * 9)
    long = entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"set/" + b"x" * 300)
    for content in (
        WANTED + END,
        WANTED,
        entry(FOLDER, tarfile.DIRTYPE) + pax + WANTED + END + bytes(9000),
        pax + entry(f"{FOLDER}/other", content=b"x" * 700) + long + WANTED + END,
    ):
        path.write_bytes(gzip.compress(content))
        assert members(path) == wanted
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        with tarfile.open(path, "w:gz", format=kind) as archive:
            for name, content in wanted.items():
                info = tarfile.TarInfo(f"{FOLDER}/{name}")
                # A time with decimals needs an extension in one of the formats.
                info.size, info.mtime = len(content), 1.5 if kind == tarfile.PAX_FORMAT else 1
                archive.addfile(info, io.BytesIO(content))
        assert members(path) == wanted


CRAFTED: dict[str, bytes] = {
    "many empty members": entry(f"{FOLDER}/x") * 20_000,
    "many folders": entry(f"{FOLDER}/x", tarfile.DIRTYPE) * 20_000,
    "a chain of long names": entry("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"x\0") * 5_000,
    "a chain of extensions": entry("p", tarfile.XHDTYPE, b"9 a=bcde\n") * 5_000,
    "an extension of many records": entry("p", tarfile.XHDTYPE, b"6 a=b\n" * 200_000),
    "an extension without an end": entry("p", tarfile.XHDTYPE, b"1" * 2 * MEGABYTE),
    "sparse maps in an extension": entry(
        "p", tarfile.XHDTYPE, b"22 GNU.sparse.offset=1\n24 GNU.sparse.numbytes=1\n" * 20_000
    ),
    "a long link": entry("././@LongLink", tarfile.GNUTYPE_LONGLINK, b"x" * 3 * MEGABYTE),
    "a sparse file": entry(f"{FOLDER}/a.bin", tarfile.GNUTYPE_SPARSE, b"x" * 512) * 2_000,
    "a negative size": entry(f"{FOLDER}/x", size=-512) + WANTED,
    "a negative size of an extension": entry("p", tarfile.XHDTYPE, size=-(1 << 40)) + WANTED,
    "a huge size": entry(f"{FOLDER}/x", size=1 << 60),
    "a huge extension": entry("p", tarfile.XHDTYPE, size=1 << 60),
    "headers of noise": bytes(range(1, 256)) * 4_000,
}


@pytest.mark.parametrize("case", CRAFTED)
def test_crafted_members_of_an_archive(case, tmp_path):
    path = tmp_path / "set.tar.gz"
    path.write_bytes(gzip.compress(CRAFTED[case]))

    def refused() -> None:
        with pytest.raises(DatasetError, match=r"set\.tar\.gz: "):
            members(path)

    # Two hundred headers take some hundred calls each.
    assert work(refused) < 40_000


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

    def archive() -> None:
        with pytest.raises(DatasetError):
            members(path)

    file = RemoteFile("x.gz", len(BUSY[case]), "0" * 64, len(PACKED))
    for task in (idx, archive, lambda: _sha256(path, file)):
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
