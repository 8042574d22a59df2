"""A mistake as a table has it, and what several tables need to make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from .stored import beside

Prepare = Callable[[pytest.MonkeyPatch], object]

TINY = beside(__file__, "mistakes_tiny.yaml")
USAGE = 2


@dataclass(frozen=True)
class Mistake:
    """A command line typed in a folder with ``tiny.yaml``, and what must be in the answer."""

    name: str
    line: str
    pieces: tuple[str, ...]
    status: int = 1
    prepare: Prepare | None = None


def changed(old: str, new: str) -> Prepare:
    """``tiny.yaml`` with another text in the place of one."""

    def prepare(patch: pytest.MonkeyPatch) -> None:
        assert TINY.count(old) == 1
        Path("tiny.yaml").write_text(TINY.replace(old, new), encoding="utf-8")

    return prepare


def config(content: str | bytes) -> Prepare:
    """``tiny.yaml`` with this content."""
    data = content.encode() if isinstance(content, str) else content
    return lambda patch: Path("tiny.yaml").write_bytes(data)


def stored_mistakes(name: str, prepared: Mapping[str, Prepare] | None = None) -> list[Mistake]:
    """Those of a file beside this one, parted by empty lines; ``prepared`` has what some need.

    A name, then lines by their first sign: "$" the command line, "-" and "+" what changes in
    ``tiny.yaml``, "|" all of it, ">" a piece of the answer and "." its next line, "?" the status.
    """
    mistakes, left = [], dict(prepared or {})
    for block in Path(__file__).with_name(name).read_text("utf-8").rstrip("\n").split("\n\n"):
        title, *lines = block.split("\n")
        found: dict[str, list[str]] = {sign: [] for sign in "$-+|>?"}
        for line in lines:
            sign, _, text = line.partition(" ")
            if sign == ".":
                found[">"][-1] += f"\n{text}"
            else:
                found[sign].append(text)
        old, new, whole = ("\n".join(found[sign]) for sign in "-+|")
        prepare = changed(old, new) if old else config(f"{whole}\n") if whole else None
        prepare = left.pop(title, prepare)
        (line,), status = found["$"], int(*found["?"] or [1])
        mistakes.append(Mistake(title, line, tuple(found[">"]), status, prepare))
    assert not left, f"{name}: no mistake is called so: {[*left]}"
    return mistakes


TRAIN = "train --config tiny.yaml --device numpy"
EVAL = "eval --device numpy"
PREDICT = "predict --device numpy"


def check(mistake: Mistake, status: int, out: str, err: str) -> None:
    assert status == mistake.status, err
    assert "Traceback" not in err
    # Notes may come before it; training says what it trains on.
    begins = [line.split()[0] for line in out.splitlines()]
    assert begins == [] or (
        begins == ["config", "device"][: len(begins)] and "train" in mistake.line
    )
    notes, mark, error = err.partition("dnnstack: error: ")
    assert mark
    assert "dnnstack: error: " not in error
    for line in notes.splitlines():
        assert line.startswith("dnnstack: ")
    for piece in mistake.pieces:
        assert piece in error
    usage = f"See 'dnnstack{'' if error.startswith('No such command') else ' '}"
    assert (usage in error) == (mistake.status == USAGE)
