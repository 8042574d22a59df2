"""Plugins leave nothing behind, neither in the process nor in the user's folders."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from dnnstack.cli.main import main

from ..support.plugin_files import CONFIG, TRAP, _forgotten, everything, forgetting
from ..support.resuming import _one_step_a_chunk, backend
from ..support.training_fixtures import _own_cache, cuda, onednn, reference
from ..support.unrendered import _unrendered

__all__ = [
    "_forgotten",
    "_one_step_a_chunk",
    "_own_cache",
    "_unrendered",
    "backend",
    "cuda",
    "everything",
    "onednn",
    "reference",
]


@dataclass(frozen=True)
class Done:
    """A command that was run in this process, as in one of its own."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a config that names a plugin, which leaves ``ran`` behind if it runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DNNSTACK_OFFLINE", "1")
    made = tmp_path / "work"
    made.mkdir()
    (made / "mine.yaml").write_text(CONFIG, encoding="utf-8")
    (made / "trap.py").write_text(TRAP, encoding="utf-8")
    return made


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in a folder; ``answer``: what is typed if it asks on these terminals."""

    def here(
        folder: Path,
        *arguments: str,
        answer: str | None = None,
        typed: str = "",
        terminals: Sequence[str] = ("stdin", "stderr"),
    ) -> Done:
        monkeypatch.chdir(folder)
        # On a terminal no line of a message is broken.
        monkeypatch.setenv("COLUMNS", "9999")
        keys = io.StringIO(typed if answer is None else f"{answer}\n")
        monkeypatch.setattr("sys.stdin", keys)
        if answer is not None:
            monkeypatch.setattr(keys, "isatty", lambda: "stdin" in terminals)
            monkeypatch.setattr("sys.stderr.isatty", lambda: "stderr" in terminals)
            monkeypatch.setenv("NO_COLOR", "1")
        capsys.readouterr()
        with forgetting():
            status = main(arguments)
        seen = capsys.readouterr()
        os.chdir(folder.anchor)
        return Done(status, seen.out, seen.err)

    return here
