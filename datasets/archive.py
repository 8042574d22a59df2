"""Reads members of a .tar.gz by exact name into memory; nothing is extracted to disk."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..common.errors import DatasetError
from ..common.files import sha256_file
from .download import RemoteFile
from .gzip_file import GzipError, unpacked
from .image_set import unreadable

_AGAIN = "delete it, and it will be downloaded again"
# For the rest of the archive: descriptions, class names, headers.
_SLACK = 4 << 20
_MOST_MEMBERS = 200
_BLOCK = tarfile.BLOCKSIZE
_PIECE = 1 << 16
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
# What these say of the next member (a longer name, times, owners) is not needed.
_EXTENSIONS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


def check_archive(path: Path, original: RemoteFile) -> str:
    """The SHA-256 of the file; raises DatasetError unless it is the original's."""
    try:
        size = path.stat().st_size
        if size < original.size:
            raise DatasetError(
                f"{path}: is truncated: it has {size} of {original.size} bytes; {_AGAIN}"
            )
        found = sha256_file(path)
    except OSError as error:
        raise unreadable(path, error) from None
    if found != original.sha256:
        raise DatasetError(
            f"{path}: is not the original: its SHA-256 is {found}, not {original.sha256}; {_AGAIN}"
        )
    return found


def read_members(
    path: Path, folder: str, sizes: Mapping[str, int], total: int
) -> Iterator[tuple[str, bytes]]:
    """The files ``folder/<name>`` of the archive, each with its bytes, in the archive's order.

    sizes: the exact length of each; total: bytes of all data in the archive; unpacking stops beyond
    it. Raises DatasetError for an archive that is damaged, lacks one of the files, or has a member
    that is not a plain file or folder inside ``folder``. Only the blocks of headers are read, not
    by ``tarfile`` what sparse files and extensions say, so that the time is linear in the length.
    """
    missing = set(sizes)
    try:
        with open(path, "rb") as file:
            content = _Limited(path, unpacked(file), total + _SLACK)
            for member in _headers(path, content):
                name = _inner_name(path, member, folder)
                if member.type not in _FILES or name not in missing:
                    content.skip(_padded(member.size))
                    continue
                if member.size != sizes[name]:
                    raise DatasetError(
                        f"{path}: its {name} has {member.size} bytes instead of "
                        f"{sizes[name]}; {_AGAIN}"
                    )
                data = content.read(member.size)
                content.skip(_padded(member.size) - member.size)
                missing.remove(name)
                yield name, data
    except (EOFError, GzipError, tarfile.TarError) as error:
        raise DatasetError(f"{path}: damaged or truncated archive ({error}); {_AGAIN}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if missing:
        raise DatasetError(f"{path}: has no {', '.join(sorted(missing))}; {_AGAIN}")


def _headers(path: Path, content: _Limited) -> Iterator[tarfile.TarInfo]:
    """The headers of the members, the content of each to be read or skipped before the next."""
    for _ in range(_MOST_MEMBERS):
        block = content.read(_BLOCK, at_end=True)
        if not block.strip(b"\0"):
            return
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if member.size < 0:
            raise tarfile.ReadError("a negative size")
        if member.type in _EXTENSIONS:
            content.skip(_padded(member.size))
        else:
            yield member
    raise DatasetError(
        f"{path}: has more than {_MOST_MEMBERS} members: this is not the original archive; {_AGAIN}"
    )


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _inner_name(path: Path, member: tarfile.TarInfo, folder: str) -> str:
    name = PurePosixPath(member.name)
    inside = name.parts[:1] == (folder,) and ".." not in name.parts
    if not inside or member.type not in (*_FILES, tarfile.DIRTYPE):
        what = "has a path outside its folder" if not inside else "is neither a file nor a folder"
        raise DatasetError(
            f"{path}: its member {member.name[:80]!a} {what}: this is not the original "
            f"archive; {_AGAIN}"
        )
    return str(PurePosixPath(*name.parts[1:]))


class _Limited:
    """A stream limited to ``most`` bytes, because a header can claim any size."""

    def __init__(self, path: Path, file: BinaryIO, most: int) -> None:
        self._path, self._file, self._left = path, file, most

    def read(self, size: int, at_end: bool = False) -> bytes:
        """Exactly ``size`` bytes, or none ``at_end``. Raises EOFError, DatasetError."""
        self._check(size)
        self._left -= size
        content = self._file.read(size)
        if len(content) < size and (content or not at_end):
            raise EOFError("it ends too early")
        return content

    def skip(self, size: int) -> None:
        """Read as much and drop it. Raises EOFError, DatasetError."""
        self._check(size)
        for start in range(0, size, _PIECE):
            self.read(min(_PIECE, size - start))

    def _check(self, size: int) -> None:
        if size > self._left:
            raise DatasetError(
                f"{self._path}: unpacks to much more data than the original; {_AGAIN}"
            )
