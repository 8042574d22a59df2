"""The tutorials, followed word for word: files are written, commands typed, Python run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dnnstack.configs.find import packaged_configs
from PIL import Image, ImageDraw

from ..support.plugin_files import forgetting
from ..support.ran import ran
from ..support.ranks import needs_launcher

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"
NAMES = sorted(path.stem for path in TUTORIALS.glob("*.md"))
MARKS = {"two-gpus": needs_launcher}
TYPED = ("dnnstack", "python3", "cmp", "mkdir", "cp")


def steps(name: str) -> Iterator[tuple[str, str]]:
    """Each block of a page, behind the name of the file to save it as, if the text gives one."""
    told = ""
    for part in re.split(r"\n(?=\S)", (TUTORIALS / f"{name}.md").read_text("utf-8")):
        said, _, block = part.partition("\n\n    ")
        told = f"{told} {said}" if said else told
        if block:
            file = re.search(r"[Ss]ave (?:it|this|the program) as\s+`([\w.]+)`:$", told)
            text = re.sub(r"^    ", "", block.rstrip("\n"), flags=re.MULTILINE)
            yield file[1] if file else "", f"{text}\n"
            told = ""


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in NAMES])
def test_a_tutorial_can_be_followed(name, tmp_path, monkeypatch, run_in):
    monkeypatch.chdir(tmp_path)
    picture = Image.new("L", (60, 60), 255)
    ImageDraw.Draw(picture).line((30, 10, 30, 50), fill=0, width=6)
    picture.save("5.png")
    cells = ""
    for file, text in steps(name):
        if file:
            Path(file).write_text(text, encoding="utf-8")
        elif text.startswith(TYPED):
            for line in text.splitlines():
                word, *others = shlex.split(line)
                if word == "dnnstack":
                    run_in(tmp_path, *others, status=0)
                else:
                    program = sys.executable if word == "python3" else word
                    done = ran([program, *others], cwd=tmp_path)
                    assert (done.returncode, done.stderr) == (0, ""), line
        elif name == "notebook":
            cells += text
    with forgetting():
        exec(compile(cells, f"{name}.md", "exec"), {})
    page = (TUTORIALS / f"{name}.md").read_text("utf-8")
    for file in re.findall(r"`(runs/[\w./-]+|[\w-]+\.(?:png|html|yaml|c|csv))`", page):
        assert Path(file).exists() or file in packaged_configs(), file


def test_the_blocks_of_a_page_are_found():
    found = {name: [*steps(name)] for name in NAMES}
    files = {name: [file for file, _ in blocks if file] for name, blocks in found.items()}
    assert files == {
        "first-digits": [],
        "notebook": [],
        "own-kernel": [],
        "own-pictures": ["draw.py"],
        "record": ["search.yaml"],
        "table": ["houses.py", "houses.yaml", "new.csv"],
        "two-gpus": [],
    }
    typed = {name: "".join(text for file, text in found[name] if not file) for name in NAMES}
    assert [len(re.findall(r"^dnnstack ", text, re.MULTILINE)) for text in typed.values()] == [
        *(7, 0, 6, 5, 7, 4, 4)
    ]
