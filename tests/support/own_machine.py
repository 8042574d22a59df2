"""A process as on another machine: run by ``unshare``, in namespaces that are all its own.

    own_machine.py NAME SHARED PLACE BESIDE -- COMMAND...

The process is the first of its namespace, and the machine ends with it. ``/tmp`` is empty, but for
the folder SHARED, which is at ``/tmp/PLACE``, and for the paths of BESIDE, with colons in between,
which Python needs. Only that folder connects two machines: what one writes to it, the other sees.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path

MS_BIND, MS_REC = 4096, 16384


def _mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), target)


def _bind(source: str, target: str) -> None:
    Path(target).mkdir(parents=True, exist_ok=True)
    _mount(source, target, "", MS_BIND | MS_REC)


def main() -> None:
    name, shared, place, beside, _, *command = sys.argv[1:]
    socket.sethostname(name)
    # Built elsewhere: it would hide what is to be taken from /tmp.
    above = "/mnt"
    _mount("tmpfs", above, "tmpfs")
    _bind(shared, f"{above}/{place}")
    for path in filter(None, beside.split(":")):
        _bind(path, f"{above}/{Path(path).relative_to('/tmp')}")
    _mount(above, "/tmp", "", MS_BIND | MS_REC)
    os.chdir(f"/tmp/{place}")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
