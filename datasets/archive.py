"""Reads members of a .tar.gz by exact name into memory; nothing is extracted to disk."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from ..common.errors import DatasetError
from ..common.files import sha256_file
from .download import RemoteFile
from .image_set import unreadable

_AGAIN = "delete it, and it will be downloaded again"
# For the rest of the archive: descriptions, class names, headers.
_SLACK = 4 << 20


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
    that is not a plain file or folder inside ``folder``.
    """
    missing = set(sizes)
    try:
        with gzip.open(path) as unpacked:
            limited = cast(BinaryIO, _Limited(path, cast(BinaryIO, unpacked), total + _SLACK))
            with tarfile.open(fileobj=limited, mode="r|") as archive:
                for member in archive:
                    name = _inner_name(path, member, folder)
                    if not member.isreg() or name not in missing:
                        continue
                    if member.size != sizes[name]:
                        raise DatasetError(
                            f"{path}: its {name} has {member.size} bytes instead of "
                            f"{sizes[name]}; {_AGAIN}"
                        )
                    content = cast(BinaryIO, archive.extractfile(member)).read()
                    missing.remove(name)
                    yield name, content
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise DatasetError(f"{path}: damaged or truncated archive ({error}); {_AGAIN}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if missing:
        raise DatasetError(f"{path}: has no {', '.join(sorted(missing))}; {_AGAIN}")


def _inner_name(path: Path, member: tarfile.TarInfo, folder: str) -> str:
    name = PurePosixPath(member.name)
    inside = name.parts[:1] == (folder,) and ".." not in name.parts
    if not inside or not (member.isreg() or member.isdir()):
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

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise DatasetError(
                f"{self._path}: unpacks to much more data than the original; {_AGAIN}"
            )
        return content
