"""A deliberate fault, and a copy of the package to try it in."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..support.own_group import in_own_group

TESTS = Path(__file__).resolve().parents[1]
# Seconds; most need two to five on a quiet machine.
LIMIT = 300
_SECONDS = re.compile(r"in [0-9.]+s")


@dataclass(frozen=True)
class Mutant:
    """``old``, which occurs ``times`` times in the package's ``file``, is replaced by ``new``.

    tests: node ids below tests/, at least one of which must then fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    times: int = 1

    def applied(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError if the entry does not fit it."""
        found = text.count(self.old)
        if found != self.times:
            raise ValueError(
                f"{self.name}: {self.old!r} occurs {found} times in {self.file}, not {self.times}; "
                "bring the entry up to date with the code"
            )
        return text.replace(self.old, self.new)


def installed() -> dict[str, Path]:
    """The folders of the package that is under test, by name."""
    names = sorted(path.parent.name for path in TESTS.parent.glob("*/py.typed"))
    found = {}
    for name in names:
        spec = importlib.util.find_spec("dnnstack" if name == "api" else f"dnnstack.{name}")
        assert spec is not None
        assert spec.origin is not None
        found[name] = Path(spec.origin).parent
    return found


class Copy:
    """A copy of the package in ``<home>/path/dnnstack``, in which one file at a time is changed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._runs = 0
        # What comes first on PYTHONPATH.
        self.path = home / "path"
        # The folders of the others are installed in that of api.
        shutil.copytree(installed()["api"], self.path / "dnnstack")

    def output_with(self, mutant: Mutant) -> tuple[int | None, str]:
        """Exit status (None at the time limit) and output of the mutant's tests, with its fault."""
        with self.changed(mutant.file, mutant.applied):
            return self.output(mutant.tests)

    @contextmanager
    def changed(self, name: str, change: Callable[[str], str]) -> Iterator[None]:
        """The file of that name has the changed text until the end."""
        file = self.path / "dnnstack" / name.removeprefix("api/")
        sound = file.read_bytes()
        # The same size within the same second would make Python take the old code.
        shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)
        file.write_text(change(sound.decode()), encoding="utf-8")
        try:
            yield
        finally:
            file.write_bytes(sound)
            shutil.rmtree(file.parent / "__pycache__", ignore_errors=True)

    def environment(self, own: Path) -> dict[str, str]:
        """That of a process which takes the copy, and keeps what it remembers in ``own``."""
        # A pytest in it must not take itself for a worker of the one that runs this test.
        outer = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTEST_", "DNNSTACK_")) or key == "DNNSTACK_DATA"
        }
        return {
            **outer,
            "PYTHONPATH": str(self.path),
            "DNNSTACK_CACHE": str(own / "cache"),
            # More kernels than usual: one of few may not have what a fault is about.
            "DNNSTACK_TENSOR_CONVS": "8",
            # Examples that a fault has made fail are none for the sound code.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(own / "hypothesis"),
        }

    def output(self, tests: Sequence[str], limit: float = LIMIT) -> tuple[int | None, str]:
        """The same of any tests, in the copy as it is."""
        self._runs += 1
        own = self._home / f"run-{self._runs}"
        own.mkdir()
        options = ("-q", "-x", "-rfE", "--tb=line", "--show-capture=no", "--hypothesis-seed=0")
        command = (
            *(sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider"),
            f"--basetemp={own / 'tmp'}",
            *(str(TESTS / node) for node in tests),
        )
        with in_own_group(command, own, self.environment(own)) as process:
            try:
                said = process.communicate(timeout=limit)[0]
                status: int | None = process.returncode
            except subprocess.TimeoutExpired:
                status, said = None, f"no end after {limit:.0f} s"
        shutil.rmtree(own, ignore_errors=True)
        return status, said


def ran(output: str) -> bool:
    """Whether at least one test was not skipped."""
    last = output.strip().rpartition("\n")[2]
    return bool(_SECONDS.search(last)) and (" passed" in last or " failed" in last)
