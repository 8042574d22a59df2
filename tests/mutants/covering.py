"""Which tests execute a line: how it is found out, and the map that says so.

    python -m tests.mutants.covering FOLDER [arguments of pytest]

runs the tests that the arguments choose, by default all, and adds what they execute to the records
in FOLDER; ``FOLDER/map.json.gz`` is then made anew from all of them. Only the map is read later.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import line_recorder
from .mutant import TESTS, Copy, installed

# Where the plugin writes, a file for each process of pytest.
INTO = "LINE_RECORDS_INTO"
_MAP = "map.json.gz"
# What tests the text of the code, the packages or the tests themselves is no test of a line.
_NOT_OF_LINES = ("mutants", "release", "test_package.py", "test_extending.py")
# Tests of a line that are remembered.
_MOST = 300


@dataclass(frozen=True)
class Timed:
    """node: its id below tests/; nth: how many faster ones its function has."""

    node: str
    seconds: float
    nth: int


class Map:
    """The tests, and by file and line those that execute it, the most promising first."""

    def __init__(self, tests: list[Timed], lines: Mapping[str, Mapping[int, list[int]]]) -> None:
        self.tests = tests
        self.lines = lines

    @classmethod
    def read(cls, folder: Path) -> Map:
        """Raises ValueError for a map of other code than that which is installed."""
        with gzip.open(folder / _MAP, "rt", encoding="utf-8") as file:
            stored = json.load(file)
        now = _digests(dict(package_files()))
        old = sorted(name for name, digest in stored["files"].items() if now.get(name) != digest)
        if old:
            raise ValueError(
                f"{folder}: {len(old)} files have changed since their lines were recorded, "
                f"{old[0]} for one"
            )
        lines = {
            name: {int(line): stored["sets"][number] for line, number in numbers.items()}
            for name, numbers in stored["lines"].items()
        }
        return cls(_tests(stored["tests"]), lines)

    def has(self, name: str, lines: Iterable[int]) -> bool:
        """Whether anything executes one of these lines, be it outside of tests."""
        return not self.lines.get(name, {}).keys().isdisjoint(lines)

    def of(self, name: str, lines: Iterable[int]) -> set[int]:
        """Tests of any of these lines."""
        known = self.lines.get(name, {})
        return {*itertools.chain(*(known[line] for line in lines if line in known))}

    def ordered(self, name: str, tests: Iterable[int]) -> list[int]:
        key = _promise(name)
        return sorted(tests, key=lambda number: key(self.tests[number]))


def package_files() -> Iterator[tuple[str, Path]]:
    """The modules of the installed package, by their names in the repository."""
    for folder, path in installed().items():
        for file in sorted(path.rglob("*.py") if folder != "api" else path.glob("*.py")):
            yield f"{folder}/{file.relative_to(path).as_posix()}", file


def record(folder: Path, arguments: list[str]) -> int:
    """Run tests, and keep what they execute; pytest's exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    files = dict(package_files())
    with tempfile.TemporaryDirectory() as home:
        copy = Copy(Path(home))
        for name, file in (("sitecustomize", "line_recorder"), ("line_plugin", "line_plugin")):
            shutil.copy(TESTS / "mutants" / f"{file}.py", copy.path / f"{name}.py")
        starts = _starts(files)
        index = {name.removeprefix("api/"): at for name, at in starts.items()}
        (copy.path / line_recorder.INDEX).write_text(json.dumps(index), "utf-8")
        into = Path(tempfile.mkdtemp(dir=folder, prefix="records-"))
        (into / "outside").mkdir()
        head = {"starts": starts, "files": _digests(files)}
        (into / "index.json").write_text(json.dumps(head), "utf-8")
        places = {line_recorder.FOLDER: str(into / "outside"), INTO: str(into)}
        status = subprocess.run(
            (
                *(sys.executable, "-m", "pytest", "-q", "-p", "line_plugin"),
                *("--hypothesis-seed=0", f"--basetemp={home}/tmp"),
                *(f"--ignore={TESTS / name}" for name in _NOT_OF_LINES),
                *(arguments or [str(TESTS)]),
            ),
            env={**copy.environment(Path(home)), **places},
            check=False,
        ).returncode
    make(folder)
    return status


def make(folder: Path) -> None:
    """The map of all records whose files are still the same."""
    files = dict(package_files())
    starts, digests = _starts(files), _digests(files)
    size = starts[""]
    rows: dict[str, tuple[float, Any]] = {}
    executed = np.zeros(size, bool)
    for into in sorted(folder.glob("records-*"), key=lambda path: path.stat().st_mtime):
        head = json.loads((into / "index.json").read_text("utf-8"))
        same = [name for name in digests if head["files"].get(name) == digests[name]]
        old, new = (
            np.concatenate([np.arange(s[n], s[n] + _count(files[n])) for n in same])
            for s in (head["starts"], starts)
        )
        for marks in (into / "outside").iterdir():
            executed[new] |= np.frombuffer(marks.read_bytes(), np.uint8)[old] > 0
        for path in into.glob("*.jsonl"):
            for line in path.read_text("utf-8").splitlines():
                entry = json.loads(line)
                bits = np.frombuffer(zlib.decompress(base64.b85decode(entry["lines"])), np.uint8)
                theirs = np.zeros(head["starts"][""], bool)
                theirs[: bits.size * 8] = np.unpackbits(bits, bitorder="little")[: theirs.size]
                ours = np.zeros(size, bool)
                ours[new] = theirs[old]
                executed |= ours
                node = entry["test"].removeprefix("tests/")
                rows[node] = entry["seconds"], np.packbits(ours)
    tests = _tests([[node, seconds] for node, (seconds, _) in rows.items()])
    matrix = np.stack([bits for _, bits in rows.values()])
    sets: dict[tuple[int, ...], int] = {}
    lines: dict[str, dict[int, int]] = defaultdict(dict)
    for name in files:
        begin, end = starts[name] // 8, (starts[name] + _count(files[name])) // 8 + 1
        promise = _promise(name)
        order = np.array(sorted(range(len(tests)), key=lambda n: promise(tests[n])))
        ran = np.unpackbits(matrix[order, begin:end], axis=1)
        for number in range(1, _count(files[name])):
            at = starts[name] + number
            if executed[at]:
                found = tuple(order[ran[:, at - 8 * begin].nonzero()[0][:_MOST]].tolist())
                lines[name][number] = sets.setdefault(found, len(sets))
    stored = {
        "files": {name: digests[name] for name in lines},
        "tests": [[test.node, round(test.seconds, 3)] for test in tests],
        "lines": lines,
        "sets": list(sets),
    }
    with gzip.open(folder / _MAP, "wt", encoding="utf-8") as file:
        json.dump(stored, file, separators=(",", ":"))


def _tests(timed: list[Any]) -> list[Timed]:
    functions: Counter[str] = Counter()
    nth = {}
    for node, _ in sorted(timed, key=lambda each: each[1]):
        function = node.partition("[")[0]
        nth[node] = functions[function]
        functions[function] += 1
    return [Timed(node, seconds, nth[node]) for node, seconds in timed]


def _promise(name: str) -> Any:
    """A key for tests: those beside the file first, then one of each function, fast ones first."""
    folders, stem = name.split("/")[:-1], Path(name).stem

    @functools.cache
    def near(path: str) -> int:
        theirs = zip(folders, path.split("/"), strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], theirs)
        return len(list(same)) + (stem in Path(path).stem)

    def key(test: Timed) -> tuple[int, float]:
        shared = near(test.node.partition("::")[0])
        return (0 if shared >= len(folders) else test.nth), test.seconds / (1 + 3 * shared)

    return key


def _count(file: Path) -> int:
    """Marks of a file, one of which is none of a line."""
    return file.read_bytes().count(b"\n") + 2


def _starts(files: Mapping[str, Path]) -> dict[str, int]:
    """Each file's first mark, and the number of all under the empty name."""
    ends = list(itertools.accumulate(map(_count, files.values()), initial=0))
    return {**dict(zip(files, ends, strict=False)), "": ends[-1]}


def _digests(files: Mapping[str, Path]) -> dict[str, str]:
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for name, file in files.items()
    }


if __name__ == "__main__":
    sys.exit(record(Path(sys.argv[1]).resolve(), sys.argv[2:]))
