"""One drawn fault, put into a copy of the package, and what its tests say."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

from .covering import package_files
from .mutant import LIMIT, Copy
from .sites import Site

# pytest takes a second or two to start and to collect, so that most faults are noticed sooner by a
# few tests than by all.
_BATCHES = (25, 100, 1000)
VERDICTS = ("noticed", "survived", "timeout", "import error")


@dataclass(frozen=True)
class Drawn:
    """``after`` at ``site`` of ``file``; tests: those that execute it, the most promising first."""

    file: str
    site: Site
    after: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.site.before, self.after))
        place = f"{self.file}:{self.site.begin[0]}:{self.site.begin[1]}"
        return f"{place} {self.site.kind}: {before} -> {after}"


@dataclass(frozen=True)
class Result:
    """verdict: one of VERDICTS; by: the test; ran: of how many tests."""

    fault: str
    verdict: str
    by: str
    ran: int
    of: int
    seconds: float


def attempt(copy: Copy, drawn: Drawn) -> Result:
    """Put the fault into the copy, and run its tests, at most for the limit of time."""
    begin = time.monotonic()
    ran = 0

    def result(verdict: str, by: str = "") -> Result:
        seconds = round(time.monotonic() - begin, 1)
        return Result(str(drawn), verdict, by, ran, len(drawn.tests), seconds)

    sound = dict(package_files())[drawn.file].read_text("utf-8")
    left = list(drawn.tests)
    with copy.changed(drawn.file, lambda text: drawn.site.applied(text, drawn.after)):
        if not _imports(copy, drawn.file):
            with copy.changed(drawn.file, lambda _: sound):
                if _imports(copy, drawn.file):
                    return result("import error")
        for size in _BATCHES:
            batch, left = left[:size], left[size:]
            while batch:
                status, said = copy.output(sorted(batch), begin + LIMIT - time.monotonic())
                if status is None:
                    return result("timeout")
                if status in (0, 5):
                    break
                if status == 4:
                    batch = _there(said, batch)
                    continue
                failed = _named(said, batch)
                if not failed:
                    return result("import error")
                with copy.changed(drawn.file, lambda _: sound):
                    if copy.output(failed[:1])[0] == 0:
                        return result("noticed", failed[0])
                # It fails without the fault, too.
                batch = [node for node in batch if node not in failed]
            ran += len(batch)
    return result("survived")


def _imports(copy: Copy, file: str) -> bool:
    module = file.removeprefix("api/").removesuffix(".py").removesuffix("/__init__")
    code = f"import dnnstack.{module.replace('/', '.')}, dnnstack.cli.main"
    environment = copy.environment(copy.path.parent)
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode == 0


def _named(said: str, batch: list[str]) -> list[str]:
    """The tests, or functions of tests, of the batch that pytest says have failed."""
    lines = [f"{line} - " for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    ends = (" - ", "[")
    return [n for n in batch if any(f"/{n}{end}" in line for line in lines for end in ends)]


def _there(said: str, batch: list[str]) -> list[str]:
    """The batch without what pytest does not find.

    It names the function alone where the fault has changed what stands in brackets: then all of
    them are run.
    """
    lines = [line for line in said.splitlines() if line.startswith("ERROR: ")]
    functions = {node: node.partition("[")[0] for node in batch}
    lost = {
        node
        for node, function in functions.items()
        if any(line.endswith((f"/{node}", f"/{function}")) for line in lines)
    }
    whole = {functions[node] for node in lost if functions[node] != node}
    return sorted({*batch} - lost | whole) if lost else []
