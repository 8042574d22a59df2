"""Files of the cache folder that hold what a compiler or a library made: found by what it is for.

A file's content lies behind a hash of the key and the content, so that what is torn, damaged, or
under another's name is none. A folder does not grow for ever: the first file that a process writes
to it makes room, at the cost of the files that were not read for the longest time.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from ....common.files import atomic_write, cache_dir, make_folder, read_regular, remove_abandoned

# Bytes of a file; codes of our kernels have up to 300,000, plans of cuDNN up to 60,000.
_LONGEST = 1 << 26
_DIGEST = hashlib.sha256().digest_size
# Bytes of a folder. A packaged network has half a megabyte of kernels and of plans on one card.
_ROOM = 256 << 20
# A file that is read is marked as read, unless it was in the last seconds: a start reads dozens.
_RECENT = 24 * 3600


def key_of(*known: object) -> bytes:
    """A key by all that a content depends on."""
    return hashlib.sha256(repr(known).encode()).digest()


def is_kept(folder: str, key: bytes) -> bool:
    """Whether there is a file, which may be damaged."""
    return _path(folder, key).exists()


def read(folder: str, key: bytes) -> bytes | None:
    """The content; None if there is none, or it is damaged."""
    path = _path(folder, key)
    with suppress(OSError):
        found = read_regular(path, _LONGEST)
        mark, content = found[:_DIGEST], found[_DIGEST:]
        if mark == hashlib.sha256(key + content).digest():
            _mark_as_read(path)
            return content
    return None


def _mark_as_read(path: Path) -> None:
    with suppress(OSError):  # the cache of another user, say
        if time.time() - path.stat().st_mtime > _RECENT:
            os.utime(path)


def write(folder: str, key: bytes, content: bytes) -> None:
    """Store a content; a cache that cannot be written is not an error."""
    path = _path(folder, key)
    with suppress(OSError):
        make_folder(path.parent)
        _tidy(path.parent)
        # What a loss of power leaves of it is found out by its hash.
        parts = [hashlib.sha256(key + content).digest(), content]
        atomic_write(path, parts, durable=False)


def forget(folder: str, key: bytes) -> None:
    """Delete a file that is of no use, if it can be."""
    with suppress(OSError):
        _path(folder, key).unlink()


@cache
def _tidy(folder: Path) -> None:
    """Delete what killed processes left, and what there is no room for; once."""
    remove_abandoned(folder)
    ages = []
    for path in folder.glob("*.bin"):
        with suppress(OSError):  # another process tidies up too
            known = path.stat()
            ages.append((known.st_mtime, known.st_size, path))
    room = _ROOM
    for _, size, path in sorted(ages, reverse=True):
        room -= size
        if room < 0:
            with suppress(OSError):
                path.unlink()


def _path(folder: str, key: bytes) -> Path:
    return cache_dir() / folder / f"{key.hex()[:32]}.bin"
