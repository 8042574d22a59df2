"""What commands print, one after the other in a folder, against stored transcripts.

A line that begins with "$ " is a command; what it prints follows, "! " before lines of standard
error, and "? " before a status other than 0. With ``DNNSTACK_STORE=1`` the answers are stored anew,
after a deliberate change; the difference that git shows is to be read. Numbers that another machine
may compute otherwise stand as "#"; other tests are about them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ..support.described import differences
from ..support.mistakes import TINY
from ..support.stored import beside

Run = Callable[..., subprocess.CompletedProcess[str]]
TWO = beside(__file__, "data_folder_config.yaml")
STORED = Path(__file__).with_name("transcripts")
# Decimals and versions; sums of files; times; what was recognised; the machine's instructions.
COMPUTED = re.compile(
    r"-?\d+(\.\d+)+(e[-+]?\d+)?%?|[0-9a-f]{64}|\b\d+:\d\d(?= |$)"
    r"|\b\d+(?= ((?:picture|row)s/s|[mu]?s|right|wrong)\b)|\S+( s| min \d+ s)?(?= left$)"
    r"|(?<=both right )\d+|(?<=both wrong )\d+|(?<=only the first )\d+|(?<=only the second )\d+"
    r"|(?<=, )blas .*(?=, threads)|(?<=error: )/\S*(?=/configs/)"
)
# A row of a table of such counts, a line of a picture, or the commonest mistakes.
ROWS = re.compile(r"[▀▄█ .]*$|(\S+ )?([\d.#]+ ?|to )+$| *\d+ x | \S+ \S+ # \S+\.png")


def shape(value: Any) -> Any:
    """Of JSON the keys and texts; a list by its length and its first element."""
    if isinstance(value, dict):
        return {
            k: [*each] if k == "versions" and each else shape(each) for k, each in value.items()
        }
    if isinstance(value, list):
        return [len(value), shape(value[0])] if value else []
    return value if isinstance(value, str | bool | None) else type(value).__name__


def shown(text: str) -> Iterator[str]:
    for line in text.splitlines():
        line = re.sub(r"[▀▄█▏▎▍▌▋▊▉]+", "", line)
        told = COMPUTED.sub("#", re.sub(r" +", " ", line))
        if not ROWS.match(line) and not ROWS.match(told):
            yield told.rstrip()


def parsed(text: str) -> Iterator[str]:
    """JSON, be it one value or one a line."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        value, at = decoder.raw_decode(text, len(text) - len(text[at:].lstrip()))
        yield COMPUTED.sub("#", json.dumps(shape(value), ensure_ascii=False))


def told(folder: Path, line: str, run_in: Run, cache: Path) -> Iterator[str]:
    yield f"$ {line}"
    if not line.startswith("dnnstack "):
        subprocess.run(line, shell=True, check=True, cwd=folder)
        return
    done = run_in(folder, *shlex.split(line.replace("$PWD", str(folder)))[1:])
    out, err = (
        text.replace(str(folder), "HERE").replace(str(cache), "CACHE")
        for text in (done.stdout, done.stderr)
    )
    yield from parsed(out) if "--json" in line else shown(out)
    yield from (f"! {each}" for each in shown(err))
    if done.returncode:
        yield f"? {done.returncode}"


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """With ``tiny.yaml`` and its run, digits, and colours of two kinds."""
    shutil.copytree(trained / "runs", tmp_path / "runs", symlinks=True)
    (tmp_path / "tiny.yaml").write_text(TINY, "utf-8")
    (tmp_path / "two.yaml").write_text(TWO, "utf-8")
    page = Image.new("L", (60, 60), 255)
    page.paste(0, (25, 10, 32, 50))
    page.save(tmp_path / "1.png")
    Image.new("L", (28, 28), 255).save(tmp_path / "blank.png")
    colours = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
    for number, pixels in enumerate(colours):
        near = tmp_path / "set" / "ab"[number % 2]
        near.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(near / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize("name", sorted(path.stem for path in STORED.glob("*.txt")))
def test_commands_print_what_they_printed(
    name: str, folder: Path, run_in: Run, cache: Path
) -> None:
    file = STORED / f"{name}.txt"
    stored = file.read_text("utf-8")
    commands = [line[2:] for line in stored.splitlines() if line.startswith("$ ")]
    found = "".join(f"{each}\n" for line in commands for each in told(folder, line, run_in, cache))
    if os.environ.get("DNNSTACK_STORE") == "1":
        file.write_text(found, "utf-8")
    assert differences(found, file.read_text("utf-8")) == []
