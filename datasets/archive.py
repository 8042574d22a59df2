"""Reads members of the original .tar.gz of a data set into memory; nothing is extracted to disk."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..common.errors import DatasetError, explaining
from ..common.files import sha256_file
from .download import RemoteFile

_AGAIN = "delete it, and it will be downloaded again"


def check_archive(path: Path, original: RemoteFile) -> str:
    """The SHA-256 of the file; raises DatasetError unless it is the original's."""
    with explaining(path, "cannot be read", "", DatasetError):
        size = path.stat().st_size
        if size < original.size:
            raise DatasetError(
                f"{path}: is truncated: it has {size} of {original.size} bytes; {_AGAIN}"
            )
        found = sha256_file(path)
    if found != original.sha256:
        raise DatasetError(
            f"{path}: is not the original: its SHA-256 is {found}, not {original.sha256}; {_AGAIN}"
        )
    return found


def read_members(
    path: Path, original: RemoteFile, folder: str, names: Iterable[str]
) -> Iterator[tuple[str, bytes]]:
    """The files ``folder/<name>`` of the archive, each with its bytes, in the archive's order.

    Raises DatasetError unless the file is the original, before anything of it is unpacked.
    """
    check_archive(path, original)
    wanted = {f"{folder}/{name}": name for name in names}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = wanted.get(member.name)
            if name is not None and (content := archive.extractfile(member)) is not None:
                yield name, content.read()
