"""A command in a process group of its own, of which nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def in_own_group(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Both outputs are its ``stdout``; whatever it has started goes with it."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
