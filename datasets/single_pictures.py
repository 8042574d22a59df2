"""A copy of a data set as single pictures, which lies where its own files are looked for.

Its reader takes none of them, but an ``image_folder`` does.
"""

from __future__ import annotations

import shlex
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ..common.records import dataclass
from .picture_kinds import is_named_so

# Of the beginning of an archive, and of the files of a folder that are looked at.
_PEEK, _MOST = 1 << 20, 100
# Bytes that a decompressor may take.
_MEMORY = 1 << 28
_HALVES = ("train", "test")


@dataclass(frozen=True)
class SinglePictures:
    """``path``: an archive, or a folder; ``sample``: the path of a picture in it."""

    path: Path
    sample: str

    @property
    def is_archive(self) -> bool:
        return not self.path.is_dir()

    def __str__(self) -> str:
        return f"{self.path} has pictures of it as single files, such as {self.sample}"

    def advice(self, name: str, side: int) -> str:
        """How to have them read; ``side``: of a picture of the set called ``name``."""
        folder, first = shlex.quote(str(self.path)), ""
        if self.is_archive:
            first = f"unpack it: mkdir {name} && tar -xf {folder} -C {name}; "
            folder = name
        new = f"{first}dnnstack new {folder} writes a config that reads them"
        if PurePosixPath(self.sample).parts[0] not in _HALVES:
            return new
        halves = ", ".join(f"{half}: {folder}/{half}" for half in _HALVES)
        said = f"data.dataset={{image_folder: {{{halves}, size: {side}}}}}"
        return f"{new}; any other does with --set {shlex.quote(said)}"


def single_pictures(folder: Path, classes: Sequence[str]) -> SinglePictures | None:
    """The pictures in a folder, or in an archive in it, that lie in folders of these classes."""
    try:
        there = sorted(folder.iterdir())[:_MOST]
    except OSError:
        return None
    for path in there:
        if path.is_file() and (sample := _picture(_members(path), classes)):
            return SinglePictures(path, sample)
    sample = _picture(_beginnings(folder), classes)
    return SinglePictures(folder, sample) if sample else None


def _picture(names: Iterator[str], classes: Sequence[str]) -> str:
    """The first that is a picture of a class; "" if there is none."""
    for name in names:
        path = PurePosixPath(name)
        if is_named_so(path.name) and any(part in classes for part in path.parts[:-1]):
            return str(path)
    return ""


def _beginnings(folder: Path) -> Iterator[str]:
    """A file of each folder at most three levels below."""
    for pattern in ("*/*", "*/*/*"):
        above = None
        for number, path in enumerate(folder.glob(pattern)):
            if number == _MOST:
                break
            if path.parent != above and path.is_file():
                above = path.parent
                yield path.relative_to(folder).as_posix()


def _members(archive: Path) -> Iterator[str]:
    """The first files of a tar archive; none of anything else."""
    try:
        with open(archive, "rb") as file:
            content = _unpacked(file.read(_PEEK))
    except Exception:
        # Of damaged files, errors of many kinds; some Pythons were built without a decompressor.
        return
    place = 0
    while place + tarfile.BLOCKSIZE <= len(content):
        block = content[place : place + tarfile.BLOCKSIZE]
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError:
            return
        if member.isreg():
            yield member.name
        place += tarfile.BLOCKSIZE * (1 - (-max(member.size, 0) // tarfile.BLOCKSIZE))


def _unpacked(content: bytes) -> bytes:
    """The beginning of what the beginning of a file is packed from."""
    unpacker: Any
    if content.startswith(b"\x1f\x8b"):
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    elif content.startswith(b"\xfd7zXZ"):
        import lzma

        unpacker = lzma.LZMADecompressor(memlimit=_MEMORY)
    elif content.startswith(b"BZh"):
        import bz2

        unpacker = bz2.BZ2Decompressor()
    else:
        return content
    found: bytes = unpacker.decompress(content, _PEEK)
    return found
