"""The first example of docs/extending.md, followed word for word in a copy without its layer."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .support.pages import blocks

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
GENERATED = ("configs/schema.json", "docs/config.md")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "path"),
    [
        ("A layer", "layers/prelu.py"),
        ("A loss", "layers/losses/focal.py"),
        ("An optimizer", "optimizers/adagrad.py"),
    ],
)
def test_examples_are_the_shipped_files(title, path):
    assert f"`{path}`" in section(title)
    assert blocks(section(title))[0] == (ROOT / path).read_text(encoding="utf-8")


def test_a_piece_of_code_is_that_of_its_file():
    shipped = (ROOT / "optimizers/schedules/decay.py").read_text(encoding="utf-8")
    assert blocks(section("A schedule"))[0] in shipped


@pytest.fixture
def copy(tmp_path):
    """The folders of the project, importable as ``dnnstack`` from ``path`` beside them."""
    checkout = tmp_path / "checkout"
    folders = [path.parent.name for path in ROOT.glob("*/py.typed")]
    for folder in (*folders, "docs", "release", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, checkout / folder, ignore=ignored)
    for file in ("pyproject.toml", "setup.cfg"):
        shutil.copy(ROOT / file, checkout)
    package = tmp_path / "path" / "dnnstack"
    package.mkdir(parents=True)
    for path in (*(checkout / "api").iterdir(), *(checkout / folder for folder in folders)):
        (package / path.name).symlink_to(path)
    return checkout


def test_the_first_example_word_for_word(copy):
    # A pytest in it must not take itself for a worker of the one that runs this test.
    outer = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}

    def run(line: str) -> str:
        words = shlex.split(line)
        program = {"python": [], "pytest": ["-m", "pytest"], "dnnstack": ["-m", "dnnstack.cli"]}
        done = subprocess.run(
            [sys.executable, *program[words[0]], *words[1:]],
            cwd=copy,
            env={**outer, "PYTHONPATH": str(copy.parent / "path")},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    layer = copy / "layers" / "prelu.py"
    layer.unlink()
    generate = "python release/generated.py ."
    run(generate)
    for path in GENERATED:
        assert "prelu" not in (copy / path).read_text(encoding="utf-8")
    file, commands = blocks(section("A layer"))[:2]
    lines = commands.splitlines()
    assert lines[0] == generate
    layer.write_text(file, encoding="utf-8")
    printed = [run(line) for line in lines]
    for path in GENERATED:
        assert (copy / path).read_text("utf-8") == (ROOT / path).read_text("utf-8"), path
    assert re.search(r"\b[1-9][0-9]* passed", printed[1])
    assert "step 20/20" in printed[2]
