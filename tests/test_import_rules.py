"""Import rules that need the syntax tree; the others are contracts of import-linter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.rows import rows
from .support.stored import cases

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = sorted(path.parent.name for path in ROOT.glob("*/py.typed"))
LAZY = {
    "PIL",
    "cuda",
    "cudnn",
    "cupy",
    "cupy_backends",
    "matplotlib",
    "mpi4py",
    "onnx",
    "optuna",
    "pydantic",
    "starlette",
    "tensorboardX",
    "trackio",
    "uvicorn",
    "wandb",
}
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [] if node.level else [str(node.module)]


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))


def _at_import_time(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is loaded: outside functions and ``if TYPE_CHECKING``."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If):
            if not ast.unparse(node.test).endswith("TYPE_CHECKING"):
                yield from _at_import_time(node.body)
            yield from _at_import_time(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "handlers", "finalbody"):
                yield from _at_import_time(getattr(node, field, []))


def _violations(source: str, path: str) -> list[str]:
    tree = ast.parse(source, path)
    found = [
        f"{path}:{node.lineno}: write a relative import instead of {name}"
        for node in _imports(tree)
        for name in _imported(node)
        if name.partition(".")[0] in {"dnnstack", *FOLDERS}
    ]
    for node in _at_import_time(tree.body):
        for name in _imported(node):
            top = name.partition(".")[0]
            own = (top == "pydantic" and path.startswith("configs/")) or (
                top in {"cuda", "cudnn", "cupy", "cupy_backends"}
                and path.startswith("backends/cuda/")
            )
            if top in LAZY and not own:
                found.append(
                    f"{path}:{node.lineno}: import {name} inside the function that needs it"
                )
    return found


@rows("path", SOURCES)
def test_imports_of_ours_are_relative_and_heavy_ones_lazy(path):
    assert _violations((ROOT / path).read_text(encoding="utf-8"), path) == []


@pytest.mark.parametrize("source", cases(__file__, "the_rules_find_a_violation"))
def test_the_rules_find_a_violation(source):
    assert len(_violations(source, "training/x.py")) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from ..datasets import mnist",
        "def f():\n    import matplotlib.pyplot",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from PIL import Image",
    ],
)
def test_the_rules_let_good_imports_pass(source):
    assert _violations(source, "training/x.py") == []


def _of_training(source: str) -> set[str]:
    """What a file of training/records/formats imports of training outside of its folder."""
    nodes = (node for node in _imports(ast.parse(source)) if isinstance(node, ast.ImportFrom))
    return {str(node.module) for node in nodes if node.level in (2, 3)}


def test_a_format_needs_nothing_of_training_but_how_pixels_are_scaled() -> None:
    files = [path for path in SOURCES if path.startswith("training/records/formats/")]
    sources = [(ROOT / path).read_text(encoding="utf-8") for path in files]
    assert set().union(*map(_of_training, sources)) == {"preprocessing"}
    assert _of_training("from ..runs import Run\nfrom ...plan import Plan") == {"runs", "plan"}


def test_common_stays_a_small_leaf():
    files = {path.name for path in (ROOT / "common").glob("*.py")}
    assert files - {"__init__.py"} <= {
        *("cells.py", "errors.py", "files.py", "limits.py", "locks.py"),
        *("machine.py", "machine_load.py"),
        *("native.py", "options.py", "printable.py", "random.py", "records.py", "text.py"),
        *("surroundings.py", "targets.py", "typed_json.py"),
    }
