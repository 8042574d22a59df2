"""Draws faults over the package, and runs the tests that execute their lines.

    python -m tests.mutants.draw MAP --seed SEED --count 100 --results FILE.jsonl

MAP is made by ``python -m tests.mutants.covering MAP``. Each fault is one place where a file is
changed, in a copy of the installed package; see ``sites``. All places on lines that some test
executes are equally likely. What is in FILE.jsonl already is not tried again.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from .attempt import VERDICTS, Drawn, Result, attempt
from .covering import Map, package_files
from .mutant import TESTS, Copy
from .sites import Site, defined_by, sites

# These tell of what modules define, by lines that have run before any test.
_OF_DEFINITIONS = (
    "configs/test_schema_json.py::test_the_shipped_schema_is_current",
    "reports/test_goldens.py::test_it_is_what_is_stored[commands]",
    "reports/test_goldens.py::test_it_is_what_is_stored[files]",
)
# Seconds of tests, as they took when they were recorded: less than the limit, as other faults are
# tried at the same time.
_OF_TESTS = 120.0


def draw(covered: Map, seed: str, count: int, chosen: Chosen) -> list[Drawn]:
    """``count`` faults, or all there are, on executed lines of the chosen places."""
    generator = random.Random(seed)
    places = []
    for name, file in package_files():
        for site in sites(file.read_text("utf-8")) if chosen.has(name) else ():
            if chosen.has(name, site) and covered.has(name, site.lines):
                places.append((name, site))
    drawn = generator.sample(places, min(count, len(places)))
    return [
        Drawn(name, site, generator.choice(site.after), _tests(covered, name, site))
        for name, site in drawn
    ]


class Chosen:
    """Files by patterns, by default all, and of these the lines that changed since a revision."""

    def __init__(self, patterns: list[str], since: str | None) -> None:
        self._patterns = patterns or ["*"]
        self._lines: Mapping[str, set[int]] | None = None
        if since is not None:
            command = ["git", "diff", "-U0", "--no-ext-diff", since, "--", "*.py"]
            self._lines = changed(subprocess.check_output(command, cwd=TESTS.parent, text=True))

    def has(self, name: str, site: Site | None = None) -> bool:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in self._patterns):
            return False
        if self._lines is None:
            return True
        lines = self._lines.get(name, set())
        return bool(lines if site is None else lines & {*range(site.begin[0], site.end[0] + 1)})


def changed(diff: str) -> dict[str, set[int]]:
    """The lines that are new in each file."""
    lines: dict[str, set[int]] = defaultdict(set)
    name = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            name = line.removeprefix("+++ b/")
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first = int(found[1])
            lines[name].update(range(first, first + int(found[2] or 1)))
    return lines


def _tests(covered: Map, name: str, site: Site) -> tuple[str, ...]:
    """Those that take no longer than the limit together."""
    found = covered.of(name, site.lines)
    if site.once:
        found |= _by_names(covered, {*site.where[:1]}) if site.where else _of_file(covered, name)
    tests = [covered.tests[number] for number in covered.ordered(name, found)]
    if site.once or name.startswith("configs/schema/"):
        tests = [*(each for each in covered.tests if each.node in _OF_DEFINITIONS), *tests]
    left, chosen = _OF_TESTS, {}
    for test in tests:
        # Behind one that takes too long there are others.
        if test.seconds <= left and test.node not in chosen:
            left -= test.seconds
            chosen[test.node] = test
    return tuple(chosen)


def _of_file(covered: Map, name: str) -> set[int]:
    return {*itertools.chain(*covered.lines[name].values())}


def _by_names(covered: Map, names: set[str]) -> set[int]:
    """Tests of functions that mention what a module defines, or what it defines with them."""
    used, above = _mentions()
    seen: set[str] = set()
    while names - seen:
        seen |= names
        found: set[int] = set()
        for file, lines in itertools.chain(*(used[name].items() for name in names)):
            found |= covered.of(file, lines)
        if found:
            return found
        names = {*itertools.chain(*(above[name] for name in names))}
    return set()


@functools.cache
def _mentions() -> tuple[dict[str, dict[str, set[int]]], dict[str, set[str]]]:
    """By name: the lines in functions that mention it, by file; what is defined with its help."""
    used: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    above: dict[str, set[str]] = defaultdict(set)
    for file, path in package_files():
        for statement in ast.parse(path.read_text("utf-8")).body:
            defined = defined_by(statement)
            for mentioned, _ in _identifiers(statement):
                above[mentioned] |= defined
            for function in ast.walk(statement):
                if isinstance(function, ast.FunctionDef | ast.Lambda):
                    for mentioned, line in _identifiers(function):
                        for each in (mentioned, *defined):
                            used[each][file].add(line)
    return used, above


def _identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno


def attempt_all(drawn: list[Drawn], processes: int, seconds: float, into: Path) -> list[Result]:
    """Results in the order in which they come; none begins after so many seconds."""
    known = {}
    if into.exists():
        stored = map(json.loads, into.read_text("utf-8").splitlines())
        known = {each["fault"]: Result(**each) for each in stored}
    results = [known[str(each)] for each in drawn if str(each) in known]
    begin = time.monotonic()
    numbers, here, lock = itertools.count(), threading.local(), threading.Lock()

    def prepare() -> None:
        # Two cores each, so that no process of a fault starts as many threads as there are cores.
        cores = sorted(os.sched_getaffinity(0))
        with lock:
            number = next(numbers)
        os.sched_setaffinity(0, {cores[(number + i) % len(cores)] for i in range(2)})
        here.copy = Copy(Path(tempfile.mkdtemp(dir=home)))

    def one(each: Drawn) -> None:
        if time.monotonic() - begin < seconds:
            result = attempt(here.copy, each)
            with lock, into.open("a", encoding="utf-8") as file:
                results.append(result)
                file.write(json.dumps(asdict(result)) + "\n")

    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(processes, "", prepare) as pool:
        list(pool.map(one, (each for each in drawn if str(each) not in known)))
    return results


def table(results: list[Result], asked: int) -> Iterator[str]:
    for verdict in VERDICTS[1:]:
        for each in results:
            if each.verdict == verdict:
                yield f"{verdict}, {each.ran} of {each.of} tests: {each.fault}"
    counts = Counter(result.verdict for result in results)
    yield ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    yield f"noticed: {counts['noticed']} of {len(results)}; drawn: {asked}"


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.draw", description=__doc__)
    parser.add_argument("map", type=Path)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--files", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--since", metavar="REVISION", help="lines that have changed since then")
    parser.add_argument("--processes", type=int, default=max(len(os.sched_getaffinity(0)) - 1, 1))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--results", type=Path, required=True, metavar="FILE")
    parser.add_argument("--at-least", type=float, default=90, metavar="PERCENT")
    options = parser.parse_args(arguments)
    chosen = Chosen(options.files, options.since)
    try:
        covered = Map.read(options.map)
    except (OSError, ValueError) as error:
        parser.error(f"{error}; run tests: python -m tests.mutants.covering {options.map}")
    drawn = draw(covered, options.seed, options.count, chosen)
    results = attempt_all(drawn, options.processes, options.seconds, options.results)
    sys.stdout.writelines(f"{line}\n" for line in table(results, len(drawn)))
    noticed = sum(result.verdict == "noticed" for result in results)
    enough = noticed >= options.at_least / 100 * len(drawn)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
