"""A command in a process group of its own, of which nothing is left when a test has failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def in_own_group(
    folder: Path, environment: Mapping[str, str], argv: Sequence[str]
) -> Iterator[subprocess.Popen[str]]:
    """dnnstack with its workers; both outputs are its ``stdout``."""
    with subprocess.Popen(
        [sys.executable, "-m", "dnnstack.cli", *argv],
        cwd=folder,
        env=environment,
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
