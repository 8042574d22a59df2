"""The shim's work done in Python, for a machine without a compiler.

It sees what goes through the functions of ``os``, and files made by ``os.fdopen``; not what Python
and other libraries open by themselves.
"""

from __future__ import annotations

import fcntl
import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calls import ACTIONS, OPS, RECORD, Call  # beside the driver, which is a script

Real = Callable[..., Any]
_NAMES = {
    **{name: name for name in ("open", "close", "write", "fsync", "symlink", "unlink", "rmdir")},
    "pwrite": "write",
    "ftruncate": "truncate",
    "mkdir": "mkdir",
    "remove": "unlink",
    "rename": "rename",
    "replace": "rename",
    "listdir": "opendir",
    "scandir": "opendir",
}
_UNSTOPPED = ("close", "unlink", "rmdir", "flock", "read", "opendir")


class Layer:
    """Stands between ``os`` and everything that calls it, from ``arm`` on."""

    def __init__(self, job: dict[str, Any], trace: int) -> None:
        self._root = job["root"]
        self._fault = job["fault"]
        self._with_data = job["data"]
        self._trace = trace
        self._count = 0
        self._lock = threading.RLock()
        self._paths: dict[int, str] = {}
        self._real: dict[str, Real] = {name: getattr(os, name) for name in (*_NAMES, "lseek")}

    def arm(self) -> None:
        for name in _NAMES:
            setattr(os, name, self._watched(name))
        flock = fcntl.flock

        def watched_flock(file: int, how: int) -> None:
            self._call("flock", file, 0, (lambda: flock(file, how)), self._paths.get(file))

        fcntl.flock = watched_flock
        os.fdopen = self._fdopen  # type: ignore[assignment]

    def _watched(self, name: str) -> Real:
        op, real = _NAMES[name], self._real[name]

        def call(*args: Any, **kwargs: Any) -> Any:
            first = args[0] if args else "."
            if isinstance(first, int):
                path, fd = self._paths.get(first), first
            else:
                # The first argument of a link is only a text.
                place = args[1] if op == "symlink" else first
                path, fd = self._inside(place), -1
            if path is None:
                return real(*args, **kwargs)
            other = ""
            if op in ("rename", "symlink"):
                other = self._absolute(args[1]) if op == "rename" else os.fspath(first)
            flags = args[1] if op == "open" else 0
            size = args[1] if op == "truncate" else 0
            half = data = None
            if op == "write":
                data = memoryview(args[1]).cast("B")
                size, some = len(data), data[: max(1, len(data) // 2)]
                half = lambda: real(first, some, *args[2:])  # noqa: E731
            if op == "close":
                self._paths.pop(first)
            result = self._call(
                op, fd, flags, lambda: real(*args, **kwargs), path, other, size, data, half
            )
            if op == "open":
                self._paths[result] = path
            return result

        return call

    def _call(
        self,
        op: str,
        fd: int,
        flags: int,
        real: Real,
        path: str | None,
        other: str = "",
        size: int = 0,
        data: memoryview | None = None,
        half: Real | None = None,
    ) -> Any:
        if path is None:
            return real()
        call = Call(0, op, fd, flags, -1, size, 0, 0, path, other, b"")
        with self._lock:
            number, action = self._fate(call.kind)
            if action == "kill before":
                self._note(call, number, -1, 1 << 20)
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                if action == "fail":
                    if op == "close":
                        real()
                    error = self._fault["error"]
                    raise OSError(error, os.strerror(error), None if fd >= 0 else path)
                result = half() if action == "short" and half is not None else real()
            except OSError as error:
                self._note(call, number, -1, error.errno or 0)
                raise
            told = result if isinstance(result, int) else 0
            self._note(call, number, told, 0, bytes(data[:told]) if data is not None else b"")
            if action == "kill after":
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    def _fate(self, kind: str) -> tuple[int, str]:
        fault = self._fault
        if not fault["kinds"] >> OPS.index(kind) & 1:
            return 0, ACTIONS[0]
        self._count += 1
        late = self._count > fault["number"]
        hit = fault["number"] > 0 and self._count >= fault["number"]
        if not hit or (late and (not fault["lasting"] or kind in _UNSTOPPED)):
            return self._count, ACTIONS[0]
        return self._count, ACTIONS[fault["action"]]

    def _note(self, call: Call, number: int, result: int, error: int, data: bytes = b"") -> None:
        texts = [call.path.encode(), call.other.encode(), data if self._with_data else b""]
        offset = self._real["lseek"](call.fd, 0, 1) - result if call.op == "write" else -1
        fd = result if call.op == "open" else call.fd
        given = (number, OPS.index(call.op), fd, call.flags, offset, call.size, result, error)
        head = RECORD.pack(*given, *map(len, texts), os.getpid())
        self._real["write"](self._trace, head + b"".join(texts))

    def _absolute(self, path: Any) -> str:
        return str(Path.cwd() / os.fsdecode(os.fspath(path)))

    def _inside(self, path: Any) -> str | None:
        whole = self._absolute(path)
        return whole if whole == self._root or whole.startswith(f"{self._root}/") else None

    def _fdopen(self, fd: int, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode == "wb" and fd in self._paths:
            return io.BufferedWriter(_Raw(fd))
        return open(fd, mode, *args, **kwargs)


class _Raw(io.RawIOBase):
    """A file to write to through the functions of ``os``."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int:
        return os.write(self._fd, data)

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                os.close(self._fd)
