"""What the shim can do to a call on a file, and the trace of the calls that it keeps."""

from __future__ import annotations

import errno
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPS = (
    *("open", "close", "write", "truncate", "fsync", "rename", "link", "symlink", "unlink"),
    *("rmdir", "mkdir", "flock", "read", "opendir", "stat", "say"),
)
WRITING = OPS[: OPS.index("read")]
READING = ("read", "opendir")
LOOKING = ("stat",)
ACTIONS = ("nothing", "fail", "short", "kill before", "kill after")
RECORD = struct.Struct("=IIiiqqqiIIII4x")
_SAVED = re.compile(rb"step-(\d+)\.safetensors: saved")


@dataclass(frozen=True)
class Fault:
    """The fate of calls: of that with one number, or of it and all later ones that write."""

    name: str
    action: str
    error: int = 0
    lasting: bool = False
    ops: tuple[str, ...] = WRITING

    def job(self, number: int) -> dict[str, Any]:
        return {
            "number": number,
            "action": ACTIONS.index(self.action),
            "error": self.error,
            "lasting": int(self.lasting),
            "kinds": kinds(self.ops),
        }


@dataclass(frozen=True)
class Call:
    """A call on a file. ``number`` 0 is not counted; ``op`` "say" is to standard output or error.

    ``path`` and ``other`` are absolute; the latter is a link's text or where a file is renamed to.
    ``process``: the number of the one that made the call.
    """

    number: int
    op: str
    fd: int
    flags: int
    offset: int
    size: int
    result: int
    error: int
    path: str
    other: str
    data: bytes
    process: int = 0

    @property
    def kind(self) -> str:
        """The operation; to open for reading is one of those that read."""
        writes = self.flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC)
        return "read" if self.op == "open" and not writes else self.op


def kinds(ops: tuple[str, ...]) -> int:
    """The operations as bits."""
    return sum(1 << OPS.index(op) for op in ops)


def read_trace(path: Path) -> list[Call]:
    """The calls in order; one that killed the process before it has result -1."""
    text, at, found = path.read_bytes(), 0, []
    while at < len(text):
        *given, process = RECORD.unpack_from(text, at)
        number, op, fd, flags, offset, size, result, error, *lengths = given
        at += RECORD.size
        parts = []
        for length in lengths:
            parts.append(text[at : at + length])
            at += length
        one, two = (part.decode() for part in parts[:2])
        head = number, OPS[op], fd, flags, offset, size, result, error
        found.append(Call(*head, one, two, parts[2], process))
    return found


def _failing(name: str, ops: tuple[str, ...] = WRITING, lasting: bool = False) -> Fault:
    which = {READING: "-reading", LOOKING: "-looking"}.get(ops, "")
    text = f"{name}{which}{'-from-then-on' if lasting else ''}"
    return Fault(text, "fail", getattr(errno, name), lasting, ops)


FAILURES = (
    *map(_failing, ("ENOSPC", "EIO", "EACCES", "EDQUOT", "EROFS", "EINTR")),
    _failing("ENOSPC", lasting=True),
    _failing("EROFS", lasting=True),
    _failing("EIO", READING),
    _failing("EACCES", READING),
    _failing("EINTR", READING),
    _failing("EIO", LOOKING),
    _failing("EACCES", LOOKING),
    Fault("short", "short", ops=(*WRITING, "read")),
)
KILLS = (Fault("killed-before", "kill before"), Fault("killed-after", "kill after"))
EVERY = (*WRITING, *READING, *LOOKING)


def committed(calls: list[Call]) -> int:
    """The highest step whose manifest was renamed into place; -1 if none was."""
    names = [c.other for c in calls if c.op == "rename" and c.result == 0]
    found = [re.search(r"/step-(\d+)\.json$", name) for name in names]
    return max((int(match[1]) for match in found if match), default=-1)


def reported(calls: list[Call]) -> int:
    """The step that the user was last told is saved; -1 if none."""
    said = b"".join(call.data for call in calls if call.op == "say" and call.fd == 2)
    return max(map(int, _SAVED.findall(said)), default=-1)
