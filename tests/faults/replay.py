"""The folders that a power loss can leave, from the trace of the calls that were made before it.

Two models of what is on the disk after a loss at some call:

strict: POSIX promises no more. What a file contains is there if the file was synced after it was
written, an entry of a folder if the folder was synced after it was made; anything else may be there
or not, each for itself, and a write in part, or as zeros.

journalling: as most file systems do it. Entries of folders get to the disk in the order in which
they were made, at least up to what the last sync needed; data of files that were not synced may be
lost, zeros or cut short.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .calls import Call

Model = Literal["strict", "journalling"]
Part = Literal["nothing", "half", "zeros", "all"]
Files = dict[str, "bytes | str | None"]
Parts = Callable[["Inode", int], Part]
Entries = Callable[["Inode", str], "Inode | None"]
_PARTS: tuple[Part, ...] = ("nothing", "half", "zeros", "all")
_DRAWN = 4


@dataclass(eq=False)
class Inode:
    """A file, a folder or a link; ``synced`` are the indices of its fsyncs.

    Of a file ``changes`` has (index, offset, data), data None for a truncation; of a folder
    ``entries`` has by name (index, inode), inode None for a deletion.
    """

    kind: Literal["file", "folder", "link"]
    text: str = ""
    changes: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    entries: dict[str, list[tuple[int, Inode | None]]] = field(default_factory=dict)
    synced: list[int] = field(default_factory=list)

    def durable(self, at: int) -> int:
        return max((index for index in self.synced if index <= at), default=-1)


OpenFiles = dict[tuple[int, int], Inode]
"""By process and descriptor."""


@dataclass(frozen=True)
class State:
    """A folder after a loss behind the call with this index: path -> content, None for a folder."""

    at: int
    files: Files

    def digest(self) -> str:
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            data = content.encode() if isinstance(content, str) else content
            mark = {bytes: "file", str: "link"}.get(type(content), "folder")
            digest.update(f"{mark} {name} {len(data or b'')}\n".encode() + (data or b""))
        return digest.hexdigest()

    def write(self, root: Path) -> None:
        for name, content in sorted(self.files.items()):
            path = root / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            elif isinstance(content, str):
                path.symlink_to(content)
            else:
                path.write_bytes(content)


class Disk:
    """What the calls of one or more traces did to a folder, whose start is on the disk."""

    def __init__(self, start: Path) -> None:
        self._root = Inode("folder")
        self._now: dict[Path, Inode] = {Path(): self._root}
        self._inodes = [self._root]
        self._metadata: list[tuple[int, Inode, str]] = []
        self._forced: list[tuple[int, int]] = []
        self.calls: list[Call] = []
        for path in sorted(start.rglob("*")):
            name = path.relative_to(start)
            if path.is_symlink():
                made = Inode("link", os.readlink(path))
            elif path.is_dir():
                made = Inode("folder")
            else:
                made = Inode("file", changes=[(-1, 0, path.read_bytes())])
            self._inodes.append(made)
            self._now[name] = made
            self._now[name.parent].entries[name.name] = [(-1, made)]

    def run(self, root: Path, calls: list[Call]) -> None:
        """Take the calls of a process, and of those forked from it, on the files below ``root``."""
        open_files: OpenFiles = {}
        for call in calls:
            index = len(self.calls)
            self.calls.append(call)
            if call.result >= 0 and call.op != "say":
                self._take(index, call, root, open_files)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name after all calls."""
        return Path(name) in self._now

    def _take(self, index: int, call: Call, root: Path, open_files: OpenFiles) -> None:
        name = Path(call.path).relative_to(root) if call.path else Path()
        own = call.process, call.fd
        # What was open at the fork is so in both.
        found = open_files.get(own) or open_files.get((self.calls[0].process, call.fd))
        if call.op == "open":
            if name not in self._now:
                self._link(index, name, Inode("file"))
            elif call.flags & os.O_TRUNC:
                self._now[name].changes.append((index, 0, None))
            open_files[own] = self._now[name]
        elif call.op == "close":
            open_files.pop(own, None)
        elif call.op == "write" and found is not None:
            found.changes.append((index, call.offset, call.data))
        elif call.op == "truncate":
            assert found is not None
            found.changes.append((index, call.size, None))
        elif call.op == "fsync":
            assert found is not None
            found.synced.append(index)
            needs = [
                at for at, folder, entry in self._metadata if self._concerns(found, folder, entry)
            ]
            self._forced.append((index, max(needs, default=-1)))
        elif call.op == "mkdir":
            self._link(index, name, Inode("folder"))
        elif call.op == "symlink":
            self._link(index, name, Inode("link", call.other))
        elif call.op in ("unlink", "rmdir"):
            self._link(index, name, None)
        elif call.op == "rename":
            moved = self._now[name]
            self._link(index, Path(call.other).relative_to(root), moved)
            self._link(index, name, None)

    def _link(self, index: int, name: Path, inode: Inode | None) -> None:
        folder = self._now[name.parent]
        folder.entries.setdefault(name.name, []).append((index, inode))
        self._metadata.append((index, folder, name.name))
        if inode is None:
            del self._now[name]
        else:
            self._now[name] = inode
            self._inodes.append(inode)

    @staticmethod
    def _concerns(inode: Inode, folder: Inode, entry: str) -> bool:
        return folder is inode or any(made is inode for _, made in folder.entries[entry])

    def states(self, model: Model, seed: int, most: int | None = None) -> Iterator[State]:
        """The states after a loss behind each call, or ``most`` of them; equal ones are given once.

        Those that are left out, evenly, are not made.
        """
        counted = self._strict_count if model == "strict" else self._journalled_count
        quiet = ("read", "opendir", "stat", "flock", "close")
        behind = [at for at, call in enumerate(self.calls) if call.op not in quiet]
        every = [(at, number) for at in behind for number in range(counted(at))]
        make = self._strict if model == "strict" else self._journalled
        seen: set[tuple[int, str]] = set()
        for at, number in every[:: max(1, -(-len(every) // most)) if most else 1]:
            state = State(at, make(at, number, random.Random(f"{seed} {at} {number}")))
            told = sum(call.op == "say" for call in self.calls[: at + 1])
            mark = (told, state.digest())
            if mark not in seen:
                seen.add(mark)
                yield state

    def _open(self, at: int) -> list[tuple[Inode, int | str]]:
        """What may be on the disk or not: changes of files, entries of folders."""
        changes = [
            (inode, change[0])
            for inode in dict.fromkeys(self._inodes)
            for change in inode.changes
            if inode.durable(at) < change[0] <= at
        ]
        entries = [
            (folder, name)
            for folder in dict.fromkeys(self._inodes)
            for name, history in folder.entries.items()
            if any(folder.durable(at) < index <= at for index, _ in history)
        ]
        return [*changes, *entries]

    def _strict_count(self, at: int) -> int:
        count = len(self._open(at))
        return 2 + (2 * count + _DRAWN if count > 1 else 0)

    def _strict(self, at: int, number: int, drawn: random.Random) -> Files:
        """Nothing, all, each alone, all but each, then drawn ones."""
        things = self._open(at)
        count = len(things)

        def picked(i: int) -> bool:
            if number < 2:
                return number == 1
            if number < 2 + count:
                return i == number - 2
            if number < 2 + 2 * count:
                return i != number - 2 - count
            return drawn.random() < 0.5

        kept = {thing: picked(i) for i, thing in enumerate(things)}

        def part(inode: Inode, index: int) -> Part:
            if inode.durable(at) >= index:
                return "all"
            return drawn.choice(_PARTS[1:]) if kept[inode, index] else "nothing"

        def entry(folder: Inode, name: str) -> Inode | None:
            history = [each for each in folder.entries[name] if each[0] <= at]
            synced = [each for each in history if each[0] <= folder.durable(at)]
            # What was there before anything happened was there for good.
            synced = synced or [each for each in history if each[0] < 0]
            later = history[len(synced) :]
            if later and kept[folder, name]:
                return drawn.choice([later[-1], *later])[1]
            return synced[-1][1] if synced else None

        return self._files(at, part, entry)

    def _ends(self, at: int) -> list[int]:
        """Up to which calls the entries of folders may have got to the disk."""
        forced = max((needs for index, needs in self._forced if index <= at), default=-1)
        return [forced, *(index for index, _, _ in self._metadata if forced < index <= at)]

    def _journalled_count(self, at: int) -> int:
        return len(self._ends(at)) * (len(_PARTS) + 1)

    def _journalled(self, at: int, number: int, drawn: random.Random) -> Files:
        place, what = divmod(number, len(_PARTS) + 1)
        end = self._ends(at)[place]

        def part(inode: Inode, index: int) -> Part:
            if inode.durable(at) >= index:
                return "all"
            return _PARTS[what] if what < len(_PARTS) else drawn.choice(_PARTS)

        def entry(folder: Inode, name: str) -> Inode | None:
            history = [each for each in folder.entries[name] if each[0] <= end]
            return history[-1][1] if history else None

        return self._files(at, part, entry)

    def _files(self, at: int, part: Parts, entry: Entries) -> Files:
        found: Files = {}

        def walk(folder: Inode, prefix: str) -> None:
            for name in folder.entries:
                inode = entry(folder, name)
                if inode is None:
                    continue
                if inode.kind == "folder":
                    found[prefix + name] = None
                    walk(inode, f"{prefix}{name}/")
                elif inode.kind == "link":
                    found[prefix + name] = inode.text
                else:
                    found[prefix + name] = _content(inode, at, part)

        walk(self._root, "")
        return found


def _content(inode: Inode, at: int, part: Parts) -> bytes:
    content = bytearray()
    for index, offset, data in inode.changes:
        if index > at:
            break
        kept: Part = "all" if index < 0 else part(inode, index)
        if kept == "nothing":
            continue
        if data is None:
            del content[offset:]
            content.extend(bytes(offset - len(content)))
            continue
        if kept == "half":
            data = data[: len(data) // 2]
        if kept == "zeros":
            data = bytes(len(data))
        content.extend(bytes(max(offset - len(content), 0)))
        content[offset : offset + len(data)] = data
    return bytes(content)
