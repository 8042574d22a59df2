"""What people do wrong: exit status, no traceback, and what, where and what to do next in the text.

They are made in this process; a bug's exception would reach pytest.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dnnstack.cli import console
from dnnstack.cli.main import dnnstack, main
from dnnstack.common.locks import lock
from dnnstack.lab.operations import OPERATIONS
from dnnstack.lab.skeleton import skeleton
from dnnstack.racing import Race
from PIL import Image

from ..support.mistakes import EVAL, PREDICT, TINY, TRAIN, Mistake, check
from ..support.mistakes_in_configs import CONFIGS
from ..support.mistakes_with_files import FILES
from ..support.mistakes_with_places import PLACES
from ..support.mistakes_with_tables import ROWS

MISTAKES = [*CONFIGS, *FILES, *PLACES, *ROWS]


def test_there_are_forty_of_them() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake(
    mistake: Mistake,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if mistake.prepare is not None:
        mistake.prepare(monkeypatch)
    runs = sorted(here.glob("runs/*"))
    status = main(shlex.split(mistake.line))
    out, err = capsys.readouterr()
    check(mistake, status, out, err)
    # What config and device there would be is of no use any more; this one shows in compiling.
    if mistake.line.split()[0] == "train" and not mistake.name.startswith("batch norm over one"):
        assert out == ""
    assert sorted(here.glob("runs/*")) == runs


def test_a_run_in_use(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lock("runs/tiny/lock"):
        assert main(shlex.split(f"{TRAIN} --resume")) == 1
    error = capsys.readouterr().err
    assert f"dnnstack: error: runs/tiny: is in use: pid {os.getpid()} on " in error
    assert "wait for it to end, or stop it" in error


def test_validation_of_a_run_that_held_back_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = "--set data.validation=0 --set train={max_steps:\\ 1}"
    assert main(shlex.split(f"{TRAIN} {few}")) == 0
    capsys.readouterr()
    assert main(shlex.split(f"{EVAL} --split validation")) == 1
    error = capsys.readouterr().err
    assert "without validation samples" in error
    assert "--split test" in error


def test_a_bad_picture_does_not_keep_a_good_one_from_its_answer(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Image.new("L", (60, 60), 255)
    page.paste(0, (25, 10, 32, 50))
    page.save("1.png")
    assert main(shlex.split(f"{PREDICT} --json tiny.yaml 1.png 2.png")) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err.count("dnnstack: error: ") == 2


def test_a_disk_that_is_full_in_the_middle(
    here: Path, command: list[str], environment: dict[str, str]
) -> None:
    """No file may grow beyond 10 kB: the first checkpoint fails, as on a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    done = subprocess.run(
        [*command, *shlex.split(f"{TRAIN} --runs-dir full")],
        env=environment,
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "full/tiny/checkpoints: cannot save a checkpoint: File too large" in done.stderr
    assert "free some space or choose another folder with run.dir, then resume" in done.stderr
    assert list(Path("full/tiny/checkpoints").glob("step-*")) == []


ONE = "--set train.epochs=1 --device numpy"
FULL = {
    "bench": ["bench --config tiny.yaml --device numpy --batch-sizes 4"],
    "check": ["check --config tiny.yaml --device numpy --steps 2"],
    "compare": ["compare tiny tiny --device numpy"],
    "compress": ["compress --config stages.yaml --device numpy"],
    "config": ["config --config tiny.yaml"],
    "data": ["data --config tiny.yaml"],
    "doctor": ["doctor"],
    "eval": [f"{EVAL} --json", EVAL],
    "export": ["export tiny --output net.py --device numpy"],
    "explain": ["explain --config tiny.yaml --device numpy"],
    "graph": ["graph --config tiny.yaml"],
    "help": ["help", "help --search momentum"],
    "import": ["import net.onnx"],
    "lab": ["lab run relu.py --config tiny.yaml --device numpy", "lab new relu"],
    "look": ["look tiny --device numpy -o filters.png"],
    "lr-find": ["lr-find --config tiny.yaml --device numpy --steps 3 -o rates.png"],
    "new": ["new pictures --output made.yaml"],
    "predict": [f"{PREDICT} digit.png"],
    "race": ["race --verify race.json"],
    "report": ["report tiny-compressed", "report tiny --json"],
    "runs": ["runs"],
    "serve": ["serve --port 0 --device numpy"],
    "step": ["step --config tiny.yaml --device numpy"],
    "summary": ["summary --config tiny.yaml"],
    "suspects": ["suspects tiny --device numpy"],
    "sweep": [f"sweep --config search.yaml {ONE}"],
    "train": [
        f"train --config tiny.yaml {ONE}",
        f"train --config tiny.yaml {ONE} --folds 2",
        f"train --config tiny.yaml {ONE} --json",
    ],
    "weights": ["weights runs/tiny"],
    "why": ["why digit.png --device numpy -o why.png"],
}


@pytest.mark.parametrize("line", [line for lines in FULL.values() for line in lines])
def test_output_to_a_disk_that_is_full(
    line: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages = '{stages: [{prune: {keep: {"*.weight": 0.5}}, train: {max_steps: 2}}]}'
    Path("stages.yaml").write_text(stages, encoding="utf-8")
    search = "search: {trials: 1, keys: {optimizer.lr: [0.1]}}\n"
    Path("search.yaml").write_text(TINY + search, encoding="utf-8")
    shutil.copy(Path(__file__).parents[1] / "imports" / "onnx" / "resnet.onnx", "net.onnx")
    Path("relu.py").write_text(skeleton(OPERATIONS["relu"], "python"), encoding="utf-8")
    Image.new("L", (28, 28)).save("digit.png")
    race = Race("x", 0.5, "", ("a", "b"), (0.5, 0.6), (1.0, 2.0), 0.55, 0.25, {}, {})
    Path("race.json").write_text(json.dumps(race.to_json()), encoding="utf-8")
    for number in range(4):
        folder = Path("pictures") / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), 60 * number).save(folder / f"{number}.png")
    if line.startswith("report"):
        assert main(shlex.split(FULL["compress"][0])) == 0
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        status = main(shlex.split(line))
    assert (status, console.lost) == (1, [])
    said = capsys.readouterr().err
    assert "error: standard output: cannot be written: No space left on device" in said
    assert "Traceback" not in said


def test_every_command_is_tried_with_a_disk_that_is_full() -> None:
    assert FULL.keys() == dnnstack.commands.keys()


@pytest.mark.parametrize(
    "line",
    [
        FULL[name][0]
        for name, command in dnnstack.commands.items()
        if any(each.name == "plugin" for each in command.params)
    ],
)
def test_every_command_reads_the_plugins_that_it_is_given(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text("raise ValueError('it ran')\n", encoding="utf-8")
    for name in ("stages.yaml", "search.yaml"):
        shutil.copy("tiny.yaml", name)
    line += {"weights": " --config tiny.yaml", "serve": " nowhere"}.get(line.split()[0], "")
    assert main(shlex.split(f"{line} --plugin own.py")) == 1
    assert "own.py:1: the plugin cannot be loaded: ValueError: it ran" in capsys.readouterr().err
