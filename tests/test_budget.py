"""Lines are a cost: the product, its tests and its benchmarks keep to a number of lines each."""

from __future__ import annotations

import ast
import os
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The product is every other folder but that of the release.
LIMITS = {"product": 99_290, "tests": 86_110, "benchmarks": 3_720}
APART = {"tests", "benchmarks", "release"}
COUNTED = {".py", ".cu", ".cuh", ".js", ".html", ".c"}
# What programs leave in a checkout: at its root, and anywhere.
LEFT_AT_ROOT = {"build", "dist", "venv", "runs", "lines"}
CACHE = "__pycache__"


def lines_by_folder(root: Path) -> Counter[str]:
    """Lines of code below each folder of ``root``; those of files beside them are of "."."""
    found: Counter[str] = Counter()
    for where, folders, names in os.walk(root):
        at = Path(where).relative_to(root)
        left = LEFT_AT_ROOT if at == Path() else set()
        folders[:] = [
            name for name in folders if name[0] != "." and name != CACHE and name not in left
        ]
        for name in names:
            if Path(name).suffix in COUNTED:
                found[at.parts[0] if at.parts else "."] += _lines(Path(where, name))
    return found


def _lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def by_part(lines: Counter[str]) -> dict[str, int]:
    """Lines of what has a limit."""
    product = sum(count for folder, count in lines.items() if folder not in APART)
    return {"product": product, "tests": lines["tests"], "benchmarks": lines["benchmarks"]}


def too_many(lines: Counter[str]) -> list[str]:
    """The parts that are above their limits."""
    return [part for part, count in by_part(lines).items() if count > LIMITS[part]]


def table(lines: Counter[str]) -> str:
    folders = [f"{folder:12}{count:8,}" for folder, count in sorted(lines.items())]
    parts = [f"{part:12}{n:8,} of {LIMITS[part]:,}" for part, n in by_part(lines).items()]
    above = ", ".join(too_many(lines)) or "none"
    return "\n".join(["lines of code:", *folders, "", *parts, f"above the limit: {above}"])


def test_each_part_keeps_to_its_lines():
    lines = lines_by_folder(ROOT)
    # It looks at this checkout, and at all of it.
    assert {"backends", "layers", "training", "tests", "benchmarks", "release"} <= set(lines)
    assert not too_many(lines), table(lines)


@pytest.fixture
def tree(tmp_path):
    files = {
        "setup.py": "one\n",
        "cli/main.py": "one\n\nthree\n",
        "cli/page/page.js": "one\ntwo",
        "cli/page/page.html": "one\n",
        "backends/cuda/add.cu": "one\n",
        "backends/cuda/add.cuh": "one\n",
        "backends/build/way.py": "one\n",
        "backends/add.c": "one\n",
        "tests/test_a.py": "one\ntwo\n",
        "benchmarks/a.py": "one\n" * 5,
        "release/a.py": "one\n" * 7,
        # None of these counts.
        "docs/a.md": "one\n",
        "cli/a.yaml": "one\n",
        "build/lib/a.py": "one\n",
        "dist/a.py": "one\n",
        "venv/a.py": "one\n",
        "runs/a.py": "one\n",
        "lines/a.py": "one\n",
        ".venv/a.py": "one\n",
        "cli/.cache/a.py": "one\n",
        "cli/__pycache__/a.py": "one\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_lines_are_counted_by_folder(tree):
    found = lines_by_folder(tree)
    assert found == {".": 1, "cli": 6, "backends": 4, "tests": 2, "benchmarks": 5, "release": 7}
    assert by_part(found) == {"product": 11, "tests": 2, "benchmarks": 5}


@pytest.mark.parametrize(
    ("folder", "part"), [("cli", "product"), ("tests", "tests"), ("benchmarks", "benchmarks")]
)
def test_a_line_above_a_limit_is_too_many(folder, part):
    product = {"cli": LIMITS["product"] - 1, ".": 1, "release": 9_999}
    most = Counter({**product, "tests": LIMITS["tests"], "benchmarks": LIMITS["benchmarks"]})
    assert too_many(most) == []
    assert table(most).endswith("\nabove the limit: none")
    more = most + Counter({folder: 1})
    assert too_many(more) == [part]
    shown = table(more).splitlines()
    assert f"{part:12}{LIMITS[part] + 1:8,} of {LIMITS[part]:,}" in shown
    assert f"{folder:12}{more[folder]:8,}" in shown
    assert shown[-1] == f"above the limit: {part}"


def long_functions(source: str, most: int) -> list[str]:
    """The functions of a module that have more lines than ``most``, decorators not counted."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno + 1 > most
    ]


def test_a_function_of_the_command_line_is_short() -> None:
    """It parses, calls and prints; the rest belongs to a floor below."""
    files = [*(ROOT / "cli").rglob("*.py")]
    found = [
        f"{path.stem}.{name}"
        for path in files
        for name in long_functions(path.read_text("utf-8"), 60)
    ]
    assert len(files) > 30
    assert found == []


def test_a_line_too_many_makes_a_function_long() -> None:
    code = "@decorated\ndef f():\n    a\n    b\nclass A:\n    async def g():\n        a\n"
    assert long_functions(code, 3) == []
    assert long_functions(code, 2) == ["f"]
    assert long_functions(code, 1) == ["f", "g"]
