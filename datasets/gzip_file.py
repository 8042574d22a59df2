"""gzip files (RFC 1952), decompressed as they are read, in time linear in their length.

Headers are read by zlib: Python's own reader takes a step for every byte of a name in a header, and
some thirty for a member that holds nothing, so that a file of some megabytes keeps it busy for
minutes.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PIECE = 1 << 14
_BUFFER = 1 << 16
# Members of a file; the usual tools write one.
_MOST_MEMBERS = 100
_GZIP = 16 + zlib.MAX_WBITS


class GzipError(Exception):
    """The file is damaged, truncated, or none that gzip writes."""


def unpacked(file: BinaryIO) -> BinaryIO:
    """The content of a gzip file; reading raises GzipError."""
    return cast(BinaryIO, io.BufferedReader(_Members(file), _BUFFER))


class _Members(io.RawIOBase):
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._input = b""
        self._count = 0
        self._member: zlib._Decompress | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        while member := self._member or self._next():
            try:
                content = member.decompress(self._input, len(view))
            except zlib.error as error:
                raise GzipError(str(error)) from None
            self._input = member.unconsumed_tail
            if member.eof:
                self._member, self._input = None, member.unused_data
            if content:
                view[: len(content)] = content
                return len(content)
            if self._member and not self._input and not self._more():
                raise GzipError("it ends before the end of its compressed data")
        return 0

    def _next(self) -> zlib._Decompress | None:
        """The member that follows, if there is one; zeros between members are padding."""
        padding = b"\0" if self._count else b""
        while not (rest := self._input.lstrip(padding)):
            if not self._more():
                return None
        self._input = rest
        self._count += 1
        if self._count > _MOST_MEMBERS:
            raise GzipError(f"it has more than {_MOST_MEMBERS} members")
        self._member = zlib.decompressobj(_GZIP)
        return self._member

    def _more(self) -> bool:
        self._input = self._file.read(_PIECE)
        return bool(self._input)
