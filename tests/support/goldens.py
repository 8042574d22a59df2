"""Stored texts of what backends bind, compared with what they bind now."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import islice, takewhile, zip_longest
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "backends" / "golden"
WRITING = os.environ.get("DNNSTACK_GOLDENS") == "write"
COMMAND = "DNNSTACK_GOLDENS=write pytest -n0 -s tests/backends -k golden"
# Lines that a message shows, and of each how much, from where it begins to differ.
_LINES, _BEFORE, _BEHIND = 30, 60, 240


def compare(name: str, lines: Iterable[str]) -> None:
    """Fail where the lines differ from those that are stored, or store them and show where."""
    file = FOLDER / f"{name}.txt.gz"
    found = [line for text in lines for line in text.splitlines()]
    stored = gzip.decompress(file.read_bytes()).decode().splitlines() if file.exists() else []
    if found == stored:
        return
    told = "\n".join(islice(_differences(stored, found), _LINES))
    assert WRITING, f"{name} differs:\n{told}\nif this is meant: {COMMAND}"
    file.parent.mkdir(parents=True, exist_ok=True)
    # The same bytes for the same text.
    file.write_bytes(gzip.compress("\n".join(found).encode(), mtime=0))
    sys.stdout.write(f"\n{name}:\n{told}\n")


def names(folder: str) -> set[str]:
    """Of all that is stored in a folder."""
    return {file.name.removesuffix(".txt.gz") for file in (FOLDER / folder).iterdir()}


def _differences(stored: list[str], found: list[str]) -> Iterator[str]:
    for kind, a, b, c, d in SequenceMatcher(None, stored, found, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        yield f"line {a + 1}, now {c + 1}:"
        for before, now in zip_longest(stored[a:b], found[c:d]):
            pairs = zip(before or "", now or "", strict=False)
            alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            for sign, line in (("-", before), ("+", now)):
                if line is not None:
                    yield f"{sign} {_part(line, alike)}"


def _part(line: str, alike: int) -> str:
    begin = max(0, alike - _BEFORE)
    return f"{'…' * (begin > 0)}{line[begin : alike + _BEHIND]}"
