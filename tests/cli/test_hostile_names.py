"""Names that other people chose reach no terminal as they are, and forge no line."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from dnnstack.cli import completion
from dnnstack.cli.asked import quoted
from dnnstack.cli.main import dnnstack as main_group
from dnnstack.cli.main import main
from dnnstack.datasets import picture_files
from PIL import Image

from ..support.hostile import IN_YAML, NAME, WORD, left, rewrite, spoil
from ..support.mistakes import TINY

PREDICT = ("predict", "--device", "numpy")
EVAL = ("eval", "--device", "numpy", "--no-plots")
Words = tuple[str, ...]


@pytest.fixture
def here(here):
    """With a picture."""
    Image.new("L", (28, 28)).save("0.png")
    return here


def moved(here: Path) -> Path:
    """The config in a folder and a file with a hostile name."""
    folder = here / NAME
    folder.mkdir()
    return Path(shutil.copy(here / "tiny.yaml", folder / f"{NAME}.yaml"))


def config(text: str) -> Callable[[Path], Words]:
    """``summary`` of a config; ``@`` stands for the name."""

    def prepare(here: Path) -> Words:
        (here / "odd.yaml").write_text(text.replace("@", IN_YAML), encoding="utf-8")
        return ("summary", "--config", "odd.yaml")

    return prepare


def named_run(here: Path) -> Path:
    """The run in a folder with a hostile name, and so in its config."""
    run = here / "runs" / "tiny"
    text = (run / "config.yaml").read_text("utf-8")
    (run / "config.yaml").write_text(text.replace("name: tiny", f"name: {WORD}"), "utf-8")
    return run.rename(run.with_name(NAME))


def damaged(here: Path) -> Path:
    path = next((here / "runs" / "tiny" / "checkpoints").glob("*.safetensors"))
    spoilt = here / f"{NAME}.safetensors"
    spoilt.write_bytes(path.read_bytes()[:-8])
    return spoilt


def latest(here: Path, *words: str) -> Words:
    (here / "runs" / "latest").unlink()
    (here / "runs" / "latest").write_text(f"{NAME}\n", "utf-8")
    return words


def folder_of_pictures(here: Path, *bad: str) -> str:
    """A config of pictures in folders, some of them damaged."""
    for label in ("one", "two"):
        for number in range(4):
            path = here / "data" / "pics" / label / f"{number}{NAME}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (12, 12), 10 * number).save(path)
    for label in bad:
        (here / "data" / "pics" / label / f"x{NAME}.png").write_bytes(b"no picture")
    text = TINY.replace("{strokes: {train_count: 480, test_count: 100}}", "IMAGES")
    text = text.replace("units: 10", "units: 2").replace("batch_size: 32", "batch_size: 2")
    options = "{image_folder: {train: pics, size: 28, mode: grey, on_error: ERROR}}"
    text = text.replace("IMAGES", options).replace("validation: 64", "validation: 0")
    return text


def data(on_error: str, *bad: str) -> Callable[[Path], Words]:
    def prepare(here: Path) -> Words:
        text = folder_of_pictures(here, *bad).replace("ERROR", on_error)
        (here / "odd.yaml").write_text(text, "utf-8")
        return ("data", "--no-sheet", "--config", "odd.yaml", "--data-dir", str(here / "data"))

    return prepare


def class_folder(here: Path) -> Words:
    words = data("stop")(here)
    (here / "data" / "pics" / NAME).mkdir()
    return words


def picture(name: str, content: bytes | None = None) -> Callable[[Path], Words]:
    def prepare(here: Path) -> Words:
        shutil.copy(here / "0.png", here / name)
        if content is not None:
            (here / name).write_bytes(content)
        return (*PREDICT, name)

    return prepare


def spoilt(*words: str) -> Callable[[Path], Words]:
    def prepare(here: Path) -> Words:
        spoil(here / "runs" / "tiny")
        return words

    return prepare


def strange(**changes: object) -> Callable[[Path], Words]:
    """``eval`` of a checkpoint that lies in no run."""

    def prepare(here: Path) -> Words:
        path = next((here / "runs" / "tiny" / "checkpoints").glob("*.safetensors"))
        lone = here / path.name
        shutil.copy(path, lone)
        return (*EVAL, "--checkpoint", str(rewrite(lone, **changes)))

    return prepare


def resumed(here: Path) -> Words:
    run = named_run(here)
    words = ("train", "--config", "tiny.yaml", "--set", "train.epochs=3", "--device", "numpy")
    return (*words, "--resume", str(run))


def locked(here: Path) -> Words:
    import fcntl

    # Held by this process until the test ends.
    descriptor = os.open(here / "runs" / "tiny" / "lock", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, f"pid 7 on {WORD}\n".encode())
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return ("train", "--config", "tiny.yaml", "--resume", "--device", "numpy")


def fails_again(here: Path) -> Words:
    log = here / "runs" / "tiny" / "log.jsonl"
    ended = {"event": "end", "step": 1, "state": "failed", "error": NAME}
    log.write_text(log.read_text() + json.dumps(ended) + "\n")
    return ("runs",)


def train_there(here: Path) -> Words:
    runs = ("--runs-dir", str(here / NAME), "--device", "numpy", "--set", "train.epochs=1")
    return ("train", "--config", str(moved(here)), *runs)


PLACES: dict[str, Callable[[Path], Words]] = {
    "class names in predict": spoilt(*PREDICT, "0.png"),
    "class names in predict --top": spoilt(*PREDICT, "--top", "2", "0.png"),
    "class names in predict --csv": spoilt(*PREDICT, "--csv", "0.png"),
    "class names in predict --json": spoilt(*PREDICT, "--json", "0.png"),
    "class names in eval": spoilt(*EVAL),
    "class names in eval --json": spoilt(*EVAL, "--json"),
    "a run in runs": lambda here: (named_run(here), ("runs",))[1],
    "a run in runs --json": lambda here: (named_run(here), ("runs", "--json"))[1],
    "a run that is used": lambda here: (*EVAL, "--run", named_run(here).name),
    "a list of runs": lambda here: (named_run(here), (*EVAL, "--run", "none"))[1],
    "a run that is not there": lambda here: (*EVAL, "--run", NAME),
    "a folder without runs": lambda here: ("runs", "--runs-dir", NAME),
    "the latest run": lambda here: latest(here, *EVAL),
    "a failed run": fails_again,
    "a resumed run": resumed,
    "a lock": locked,
    "a run that is trained": train_there,
    "a checkpoint that is not there": lambda here: (*EVAL, "--checkpoint", NAME),
    "a damaged checkpoint": lambda here: (*EVAL, "--checkpoint", str(damaged(here))),
    "a data folder in a checkpoint": strange(data_folder=NAME),
    "a config in a checkpoint": strange(config=f"{IN_YAML}: 1\nname: {IN_YAML}\n"),
    "a data set in a checkpoint": strange(dataset=NAME),
    "versions in a checkpoint": strange(versions={NAME: NAME}),
    "a picture": picture(f"{NAME}.png"),
    "a picture that is not there": lambda here: (*PREDICT, NAME),
    "a pattern": lambda here: (*PREDICT, f"{NAME}*"),
    "an empty picture": picture(f"{NAME}.png", b""),
    "a damaged picture": picture(f"{NAME}.png", b"\x89PNG\r\n\x1a\n" + b"\x1b[2J" * 20),
    "a folder without pictures": lambda here: ((here / NAME).mkdir(), (*PREDICT, NAME))[1],
    "pictures to train on": data("stop"),
    "a damaged picture to train on": data("stop", "one"),
    "damaged pictures to leave out": data("skip", "one", "two"),
    "a class folder": class_folder,
    "verbose": lambda here: ("summary", "--verbose", "--config", str(moved(here))),
    "a config's path": lambda here: ("summary", "--config", str(moved(here))),
    "a config's path in explain": lambda here: (
        *("explain", "--device", "numpy", "--config", str(moved(here))),
    ),
    "a config's path in config": lambda here: ("config", "--config", str(moved(here))),
    "a config that is not there": lambda here: ("config", "--config", NAME),
    "a key": config("@: 1\ndata: {@: 2}\n"),
    "a value": config(f"{TINY}\nseed: @\nloss: @\n"),
    "a name": config(f"{TINY}\nname: @\n"),
    "a kind of layer": config(
        "data: {dataset: @}\nlayers: [@, {@: {units: 3}}, {dense: {@: 1}}]\n"
    ),
    "a key twice": config("data:\n  @: 1\n  @: 1\n"),
    "a block": config("blocks: {@: [relu]}\nlayers: [@]\ndata: {dataset: strokes}\n"),
    "a tag": config("name: !%1B%5B2J 1\n"),
    "a character that YAML forbids": config("name: \x1b[2J\n"),
    "a character in an override": lambda here: (
        *("summary", "--config", "tiny.yaml", "--set", f"{NAME}={NAME}"),
    ),
    "an override": lambda here: (
        *("summary", "--config", "tiny.yaml", "--set", f"{IN_YAML}.a={IN_YAML}"),
        *("--set", f"data.batch_size={IN_YAML}"),
    ),
    "a folder in doctor": lambda here: ("doctor", "--data-dir", NAME, "--runs-dir", NAME),
    "a cache in doctor": lambda here: (os.environ.update(DNNSTACK_CACHE=NAME), ("doctor",))[1],
    "a command": lambda here: (NAME,),
    "an option": lambda here: ("eval", f"--{NAME}"),
    "an option's value": lambda here: ("eval", "--split", NAME),
    "an argument": lambda here: ("eval", NAME),
    "a config without its option": lambda here: ("train", f"{NAME}.yaml"),
}
# What no command shows today.
SILENT = ("a failed run", "a data set in a checkpoint", "versions in a checkpoint")


@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_name_is_written_out(place, here, capfd, monkeypatch):
    # So that a case may change it.
    monkeypatch.setattr(os, "environ", os.environ.copy())
    words = PLACES[place](here)
    capfd.readouterr()
    status = main(words)
    out, err = capfd.readouterr()
    assert status in (0, 1, 2)
    assert out or err
    assert left(out) == []
    assert left(err) == []
    # The name was there to be written out.
    shown = any(sign in out + err for sign in ("\\x1b", "\\u001b", "U+001B"))
    assert shown == (place not in SILENT), (out, err)


def test_what_is_left_is_found():
    """The check itself: each sign alone is found, and ordinary text is not."""
    for sign in {*NAME} - {*"a]0;ownedJ[231mFAKE: accuracy 100%\n"}:
        assert left(f"a{sign}b"), ascii(sign)
    assert left("x\nFAKE: accuracy 100%")
    assert left("é ü 日本 🙂 \u05d0 a\nb") == []


def test_json_has_the_names_themselves(here, capfd):
    spoil(here / "runs" / "tiny")
    name = f"{NAME}.png"
    shutil.copy(here / "0.png", here / name)
    assert main((*PREDICT, "--json", "--top", "10", name)) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["path"] == name
    assert {answer["label"] for answer in found["top"]} == {f"{NAME}{k}" for k in range(10)}


@pytest.mark.parametrize("sign", [*"=+-@\t", "\uff1d"])
def test_no_cell_of_csv_is_a_formula(sign, here, capfd):
    rewrite(
        next((here / "runs" / "tiny" / "checkpoints").glob("*.safetensors")),
        classes=tuple(f"{sign}1+{k}" for k in range(10)),
    )
    name = f"{sign}1.png"
    shutil.copy(here / "0.png", here / name)
    assert main((*PREDICT, "--csv", name) if sign != "-" else (*PREDICT, "--csv", "--", name)) == 0
    (row,) = csv.DictReader(io.StringIO(capfd.readouterr().out))
    for cell in row.values():
        assert not cell.startswith(sign)
    # The path is still that of the file, and the numbers are numbers.
    assert Path(row["path"]) == Path(name)
    assert int(row["index"]) in range(10)
    assert 0.0 <= float(row["probability"]) <= 1.0
    assert (row["label"] == f"'{sign}1+{row['index']}") == (sign != "\t")


def test_libtiff_prints_nothing_of_its_own(here, capfd):
    """Its lines bypass Python; the name of the file and the reason are in ours."""
    picture_files._silence_libtiff.cache_clear()
    made = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), np.uint8)
    Image.fromarray(noise).save(made, "TIFF", compression="tiff_lzw")
    content = bytearray(made.getvalue())
    content[200:210] = b"\x7f" * 10
    path = here / "damaged.tif"
    path.write_bytes(content)
    assert main((*PREDICT, str(path))) == 1
    (line,) = (line for line in capfd.readouterr().err.splitlines() if "using runs" not in line)
    assert line.startswith(f"dnnstack: error: {path}: the picture is damaged")


def test_warnings_and_tracebacks_of_bugs(here, capfd):
    """What Python itself prints, in a process whose library warns, and then fails."""
    code = f"""
import sys, warnings
from dnnstack.cli import main, runs
from dnnstack.reports import runs_report
def bug(*arguments):
    warnings.warn({NAME!r})
    raise ValueError({NAME.replace(chr(10), "")!r})
runs_report.report_runs = bug
main.main(["runs"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "UserWarning: a\\x1b]0;owned" in done.stderr
    assert "ValueError: a\\x1b]0;owned" in done.stderr
    assert left(done.stderr) == []


@pytest.mark.parametrize(
    "word", [NAME, "it's \\n\n", os.fsdecode(b"a\xff\x9b"), "two words", "a$b"]
)
def test_a_command_to_copy_means_the_same_to_a_shell(word):
    shown = quoted(word)
    assert left(shown) == []
    done = subprocess.run(["bash", "-c", f"printf %s {shown}"], capture_output=True, timeout=60)
    assert done.stdout == os.fsencode(word)


def test_the_tab_key_offers_no_hostile_run(here):
    named_run(here)
    shutil.copytree(here / "runs" / NAME, here / "runs" / "plain")
    command = main_group.commands["eval"]
    offered = completion.runs(click.Context(command), command.params[0], "")
    assert [item.value for item in offered] == ["plain"]
