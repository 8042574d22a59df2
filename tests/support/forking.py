"""Commands that are run as children of one process, which has imported everything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = Path(__file__).parent / "commands.py"


class Commands:
    """The process of ``commands.py``, which forks for each command; ``close`` ends it."""

    def __init__(self, environment: Mapping[str, str], texts: Path) -> None:
        self._out, self._err = texts / "out.txt", texts / "err.txt"
        self._server = subprocess.Popen(
            [sys.executable, "-W", "error", str(SERVER)],
            cwd=texts,
            # As the command sets it before it imports NumPy.
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        folder: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        encoding: str = "utf-8",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this folder, with the words after ``dnnstack``.

        ``encoding``: that of its outputs.
        """
        files = {"cwd": str(folder), "out": str(self._out), "err": str(self._err)}
        job = {"argv": arguments, "env": dict(environment), **files}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        out, err = (path.read_text(encoding) for path in (self._out, self._err))
        return subprocess.CompletedProcess(arguments, status, out, err)

    def close(self) -> None:
        self._server.communicate()
