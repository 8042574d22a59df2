"""The plugins that this user has allowed to run, remembered by folder, name and SHA-256.

A file that was changed, or lies elsewhere, is another one: equal bytes do other things in a folder
with other files. The record is in the user's own state folder, and is not used if others could have
written it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ..common.files import atomic_write, make_folder, read_regular
from .loading import Code

_RECORD = "trusted-plugins"
_LONGEST = 1 << 20
_MOST = 1000
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def state_dir() -> Path:
    """``$XDG_STATE_HOME/dnnstack``, else ``~/.local/state/dnnstack``; it is not created."""
    general = os.environ.get("XDG_STATE_HOME")
    # The XDG specification says to ignore relative paths.
    if general and os.path.isabs(general):
        return Path(general) / "dnnstack"
    return Path(os.path.expanduser("~")) / ".local" / "state" / "dnnstack"


def is_trusted(code: Code) -> bool:
    """Whether the user has allowed this file before; not if the record cannot be read."""
    try:
        return _line(code) in _lines()
    except OSError:
        return False


def remember(code: Code) -> None:
    """Note that the user allows this file from now on. Raises OSError.

    A record that cannot be read is not replaced: what it allows would be forgotten.
    """
    folder = state_dir()
    if not os.path.isdir(folder):
        make_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    lines = [line for line in _lines() if not line.endswith(f" {_path(code)}")]
    text = "\n".join([*lines, _line(code)][-_MOST:]) + "\n"
    atomic_write(folder / _RECORD, text.encode())


def _lines() -> list[str]:
    """The record; nothing if there is none, or one that others could have written.

    Raises OSError.
    """
    folder = state_dir()
    try:
        for path in (folder, folder / _RECORD):
            found = path.lstat()
            if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
                return []
        return read_regular(folder / _RECORD, _LONGEST).decode("ascii").splitlines()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return []


def _line(code: Code) -> str:
    return f"{code.sha256} {_path(code)}"


def _path(code: Code) -> str:
    """The path in ASCII, so that no name of a file can be two lines."""
    return ascii(os.fspath(code.path))
