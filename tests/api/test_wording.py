"""Messages in a program name arguments, where those of the commands name options."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import dnnstack
import pytest
from dnnstack.common.errors import Warned
from dnnstack.wording import as_arguments, log_notice

from ..support.stored import stored
from ..support.training_fixtures import TINY

ROOT = Path(__file__).parents[2]
# What only commands have, and options of other programs.
_LEFT = {"--ranks", "--async", "--gpus", "--save-input", "--measure", "--no-graph", "--verbose"}
_LEFT |= {"--force-reinstall", "--output", "--overwrite", "--ensemble", "--folds", "--group"}


@pytest.mark.parametrize("name", dnnstack.__all__)
def test_a_public_name_is_that_of_a_class_or_function(name: str) -> None:
    assert getattr(dnnstack, name).__name__ == name


@pytest.mark.parametrize(("text", "wanted"), stored(__file__, "wording.txt"))
def test_options_become_arguments(text, wanted):
    assert as_arguments(text) == wanted
    assert as_arguments(wanted) == wanted


def test_no_message_names_an_option_that_a_program_does_not_have() -> None:
    """Of all texts outside the commands."""
    named = 0
    folders = ("many", "training", "configs", "datasets", "backends", "plugins", "common", "layers")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    # An option of NVRTC's, which no message has, one of Docker's, and one of commands alone.
    others = {"--device-as-default-execution-space", "--shm-size", "--together"}
    for path in paths:
        for text in _texts(ast.parse(path.read_text("utf-8"))):
            found = (
                set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", as_arguments(text))) - _LEFT - others
            )
            assert not found, (path, text)
            named += as_arguments(text) != text
    assert named > 20


def test_the_functions_say_it_so(run, tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY, encoding="utf-8")
    for call, wanted in (
        (lambda: dnnstack.load(runs_dir=tmp_path), r"dnnstack\.train\("),
        (lambda: dnnstack.load(run / "checkpoints", runs_dir=tmp_path), r"dnnstack\.train\("),
        (lambda: dnnstack.train(config, resume=True, runs_dir=tmp_path), r"without resume=\.\.\."),
        (lambda: dnnstack.load_config(config, ["optimizer.lr=x"]), r'overrides=\{"optimizer.lr"'),
    ):
        with pytest.raises(dnnstack.DnnstackError, match=wanted) as caught:
            call()
        assert "--" not in str(caught.value)


def _texts(tree: ast.Module) -> Iterator[str]:
    """The texts of a module, but for docstrings; what is put into them is a path."""
    passed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
            parts = (p.value if isinstance(p, ast.Constant) else "a/b" for p in node.values)
            yield "".join(map(str, parts))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in passed
        ):
            yield node.value


def test_a_warning_is_logged_as_one(caplog):
    with caplog.at_level(logging.INFO, "dnnstack"):
        log_notice("using a, as --run says")
        log_notice(Warned("b is damaged: 100%; name another with --run c/d"))
    assert caplog.record_tuples == [
        ("dnnstack", logging.INFO, "using a, as run=... says"),
        ("dnnstack", logging.WARNING, 'b is damaged: 100%; name another with run="c/d"'),
    ]
