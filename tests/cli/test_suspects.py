"""``dnnstack suspects`` of trained networks, and trainings on the labels that it writes."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import dnnstack
import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.reports import suspects
from dnnstack.training.records.formats.store import newest_checkpoint
from PIL import Image

from ..support.mistakes import TINY

TRAIN = "train --config tiny.yaml --device numpy -q"
TO = "--device numpy -q"
FOLDER = """
name: own
data: {dataset: {image_folder: {train: pics, size: 8}}, batch_size: 4, validation: 6}
layers: [flatten, {dense: {units: 2}}, softmax]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 40}
"""


@pytest.fixture
def here(trained, cache, tmp_path, monkeypatch):
    shutil.copytree(trained / "runs", tmp_path / "runs", symlinks=True)
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for key, value in {"CACHE": str(cache), "OFFLINE": "1"}.items():
        monkeypatch.setenv(f"DNNSTACK_{key}", value)
    monkeypatch.delenv("DNNSTACK_DATA", raising=False)
    return tmp_path


@pytest.fixture
def run(here, capsys):
    """Run a command; what it wrote on standard output, or as an error."""

    def run(line: str, status: int = 0) -> str:
        assert main(shlex.split(line)) == status
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return err if status else out

    return run


def paint(path: Path, seed: int, light: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 120, (8, 8, 3), np.uint8)
    Image.fromarray(pixels + np.uint8(light)).save(path)


def labels_of(run: str) -> dict[str, bytes]:
    found = newest_checkpoint(Path(run) / "checkpoints")
    return {name: array.tobytes() for name, array in found.arrays.items()}


def test_what_is_suspected_of_a_run(run, here):
    told = json.loads(run(f"suspects tiny {TO} --json --limit 7 --csv list.csv"))
    assert (told["dataset"], told["split"]) == ("strokes", "test")
    scores = [each["score"] for each in told["suspects"] if each["reason"] == "label"]
    assert len(scores) == 7
    assert scores == sorted(scores, reverse=True)
    folder = here / "runs" / "tiny" / "suspects-test"
    assert {path.name for path in folder.iterdir()} == {"suspects.csv", "suspects.png"}
    assert Path("list.csv").read_bytes() == (folder / "suspects.csv").read_bytes()
    # Of a network by itself, and of an average of it, the same answers.
    twice = json.loads(run(f"suspects tiny runs/tiny/checkpoints/step-13.safetensors {TO} --json"))
    assert twice["suspects"] != told["suspects"]
    with dnnstack.load("tiny", device="numpy") as model:
        found = model.suspects(split="validation", limit=3)
        result = model.evaluate(split="validation")
    assert [row[0] for row in found.found[:3]] != [row["index"] for row in told["suspects"][:3]]
    worst = [(m.index, m.answer) for m in result.worst]
    assert (found.result.worst[0].index, found.result.worst[0].answer) in worst
    assert "these were trained on; train with --folds 5" in run(
        f"suspects tiny --split train {TO}", 1
    )


def test_the_familiar_is_that_of_a_calibration(run, monkeypatch):
    monkeypatch.setattr(suspects, "_LEAD", -2.0)
    monkeypatch.setattr(suspects, "_DEVIATIONS", -np.inf)
    before, after = [], []
    for found in (before, after):
        with dnnstack.load("tiny", device="numpy") as model:
            told = model.suspects(limit=1000)
            found += [(row[0], row[4]) for row in told.found if row[5] == suspects.FAR]
        scores = np.array([score for _, score in found])
        assert np.median(scores) == pytest.approx(0.0, abs=0.05)
        assert np.median(np.abs(scores)) == pytest.approx(1 / 1.4826, rel=0.05)
        run(f"eval --run tiny {TO} --calibrate --no-plots")
    assert before != after
    with dnnstack.load("tiny", device="numpy") as model:
        familiar = model.familiarity(told.images.images)
    places = [index for index, _ in after]
    assert len(places) > 90
    assert (np.diff(familiar[places]) >= -1e-3).all()


def test_pictures_with_another_label_are_found_and_trained_on_corrected(run, here):
    Path("own.yaml").write_text(FOLDER, encoding="utf-8")
    for number in range(30):
        for place, name in enumerate(("dark", "light")):
            paint(here / "pics" / name / f"{number:02}.png", 100 * place + number, 130 * place)
    wrong = here / "pics" / "dark" / "99.png"
    paint(wrong, 500, 130)
    train = "train --config own.yaml --device numpy -q"
    run(f"{train} --folds 3")
    found = json.loads(run(f"suspects own-folds {TO} --json --limit 3 --apply labels.csv"))
    assert found["split"] == "train"
    assert found["suspects"][0] | {"score": 0} == {
        "index": found["suspects"][0]["index"],
        "path": str(wrong),
        "label": "dark",
        "answer": "light",
        "score": 0,
        "reason": "label",
        "split": "train",
    }
    assert Path("labels.csv").read_text() == (
        f"split,index,path,label\ntrain,{found['suspects'][0]['index']},{wrong},light\n"
    )
    assert (here / "runs" / "own-folds" / "suspects-train" / "suspects.png").exists()
    run(train)
    corrected = f"{train} --set data.labels=labels.csv"
    run(corrected)
    # A run begun with these labels goes on with them alone.
    longer = "--set train.epochs=41 --resume own-2"
    assert "1 relabelled: dark/99.png (now dark)" in run(f"{train} {longer}", 1)
    Path("more.csv").write_text("path,label\ndark/98.png,light\n")
    assert "more.csv: line 2, column 'path': 'dark/98.png'" in run(
        f"{train} {longer} --set data.labels=more.csv", 1
    )
    Path("more.csv").write_text("path,label\ndark/99.png,light\n")
    run(f"{train} {longer} --set data.labels=more.csv")
    assert labels_of("runs/own") != labels_of("runs/own-2")
    # As if the picture lay in the other folder all the time.
    data = json.loads(run("data --config own.yaml --set data.labels=more.csv --no-sheet --json"))
    plain = json.loads(run("data --config own.yaml --no-sheet --json"))
    before, after = (
        sum(np.array(part["class_counts"]) for part in each["splits"].values())
        for each in (plain, data)
    )
    assert (after - before).tolist() == [-1, 1]


@pytest.mark.parametrize("more", ["", "--ranks 2 --set train.accumulate=2"])
def test_numbered_samples_have_the_labels_of_a_file(more, run, here, run_in):
    line = shlex.split(f"{TRAIN} --set train.accumulate=2")
    done = run_in(here, *line, status=0)
    Path("labels.csv").write_text("index,label\n0,3\n1,3\n2,3\n")
    done = run_in(here, *line, *shlex.split(more), "--set", "data.labels=labels.csv", status=0)
    assert done.stderr == ""
    assert labels_of("runs/tiny-2") != labels_of("runs/tiny-3")
    whole = run_in(here, *line, "--set", "data.labels=labels.csv", status=0)
    assert whole.stderr == ""
    assert labels_of("runs/tiny-3") == labels_of("runs/tiny-4")
    assert "data set is not what it was trained on" in run(
        f"{TRAIN} --set train.accumulate=2 --set train.epochs=3 --resume tiny-4", 1
    )


def test_arrays_have_the_labels_of_a_file_and_targets_that_are_no_classes_none(here):
    x = np.random.default_rng(1).integers(0, 255, (40, 4, 4), np.uint8)
    config = {
        "name": "given",
        "data": {"batch_size": 8, "validation": 8, "labels": "labels.csv"},
        "layers": ["flatten", {"dense": {"units": 2}}, "softmax"],
        "optimizer": {"type": "sgd", "lr": 0.1},
        "train": {"epochs": 2},
        "run": {"device": "numpy"},
    }
    y = np.arange(40) % 2
    Path("labels.csv").write_text(
        "".join(["index,label\n", *(f"{n},{1 - n % 2}\n" for n in range(40))])
    )
    turned = dnnstack.train(config, data=(x, y))
    plain = dnnstack.train({**config, "data": {"batch_size": 8, "validation": 8}}, data=(x, 1 - y))
    assert labels_of(str(turned.run)) == labels_of(str(plain.run))
    with dnnstack.load(turned.run, device="numpy") as model:
        assert model.evaluate(x, y, split="validation").count == 8
    numbers = {**config, "layers": ["flatten", {"dense": {"units": 1}}], "loss": "mse"}
    with pytest.raises(dnnstack.DnnstackError, match=r"data\.labels: the targets are numbers"):
        dnnstack.train(numbers, data=(x, y.astype(np.float32)), kind="numbers")
