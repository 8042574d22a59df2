"""Where text leaves the program, found in the source: a new place must make names printable.

What is printed passes through ``cli/console.py``, and messages through ``DnnstackError``. There
each line is made printable, so that what remains is to keep foreign line breaks apart from ours: a
text of several lines is made of a list of lines, never of one string with line breaks in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dnnstack.common.errors as errors
import pytest

from .support.stored import cases

ROOT = Path(__file__).parents[1]
FOLDERS = (
    *("api", "backends", "cli", "common", "configs", "datasets"),
    *("graph", "layers", "many", "optimizers", "passes", "plugins", "reports", "training"),
)
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]

# Calls that write to the terminal, with the number of them in each file.
PRINTS = cases(__file__, "prints")
# Texts with line breaks that are written into files or hashed, and help, which is all ours.
OWN_LINES = cases(__file__, "own_lines")


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text("utf-8")))


def prints(node: ast.AST) -> bool:
    """Whether a call writes to a standard stream."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    first = ast.unparse(node.args[0]) if node.args else ""
    return (
        called in ("print", "click.echo", "click.secho", "echo", "secho", "input")
        or (called.endswith(".write") and ("std" in called or "tqdm" in called or "_bar" in called))
        or (called == "os.write" and first in ("1", "2"))
        or called.startswith(("click.prompt", "click.confirm", "click.echo_via", "pprint"))
        or called in ("traceback.print_exc", "traceback.print_exception", "faulthandler.enable")
    )


def joins_lines(node: ast.AST) -> bool:
    r"""Whether a text gets line breaks: an f-string or sum with ``\n``, or ``"\n".join``."""
    if isinstance(node, ast.JoinedStr):
        parts = [part for part in node.values if isinstance(part, ast.Constant)]
        return len(parts) < len(node.values) and any("\n" in str(part.value) for part in parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        sides = (node.left, node.right)
        return any(isinstance(s, ast.Constant) and "\n" in str(s.value) for s in sides)
    called = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(called, ast.Attribute)
        and called.attr in ("join", "format")
        and isinstance(called.value, ast.Constant)
        and "\n" in str(called.value.value)
    )


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_only_these_places_write_to_the_terminal():
    found = {name_of(path): sum(map(prints, nodes(path))) for path in SOURCES}
    assert {name: count for name, count in found.items() if count} == PRINTS


def test_only_these_files_make_texts_of_several_lines():
    found = {name_of(path) for path in SOURCES if any(map(joins_lines, nodes(path)))}
    assert found == OWN_LINES.keys()


@pytest.mark.parametrize(("code", "found"), cases(__file__, "a_new_place_is_found"))
def test_a_new_place_is_found(code, found):
    tree = list(ast.walk(ast.parse(code)))
    assert (any(map(prints, tree)), any(map(joins_lines, tree))) == (*found,)


def test_every_error_is_printed_by_the_same_method():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    own = [kind for kind in kinds if issubclass(kind, errors.DnnstackError)]
    assert len(own) > 10
    for kind in own:
        assert kind.__str__ is errors.DnnstackError.__str__
