"""``dnnstack look`` and ``dnnstack why``: what they write, print and refuse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from dnnstack import load
from PIL import Image

Run = Callable[..., subprocess.CompletedProcess[str]]
METHODS = ["grad-cam", "gradient", "occlusion"]
HOW = ("--device", "numpy", "--threads", "1")


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, and a picture whose name a terminal would obey; the tests begin there."""
    monkeypatch.chdir(tmp_path)
    copytree(trained / "runs", tmp_path / "runs", symlinks=True)
    pixels = np.zeros((28, 28), np.uint8)
    pixels[5:23, 12:16] = 230
    Image.fromarray(pixels).save(tmp_path / "1\x1b[2J.png")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "name"),
    [("look", "filters"), ("look tiny {}", "maps-1\x1b[2J"), ("why {}", "why-1\x1b[2J")],
)
def test_drawings_lie_in_the_folder_of_the_run(
    run_in: Run, here: Path, line: str, name: str
) -> None:
    words = [word.format("1\x1b[2J.png") for word in line.split()]
    done = run_in(here, *words, *HOW, status=0)
    path = here / "runs" / "tiny" / f"{name}.png"
    before = path.read_bytes()
    with Image.open(path) as drawing:
        assert min(drawing.size) > 60
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("drawn     ")
    told = json.loads(run_in(here, *words, *HOW, "--json", status=0).stdout)
    assert told["output"] == f"runs/tiny/{name}.png"
    assert path.read_bytes() == before


def test_why_says_what_it_explains(run_in: Run, here: Path) -> None:
    model = load(here / "runs" / "tiny", device="numpy")
    picture = str(here / "1\x1b[2J.png")
    shares = model.predict_proba(picture)[0]
    answer = int(shares.argmax())
    other = str((answer + 1) % 10)
    done = run_in(here, "why", picture, "--class", other, "--all", *HOW, "--json", status=0)
    told = json.loads(done.stdout)
    assert (told["answer"], told["class"], told["methods"]) == (str(answer), other, METHODS)
    assert told["picture"] == picture
    assert told["probability"] == pytest.approx(shares[answer], rel=1e-5)
    assert told["class_probability"] == pytest.approx(shares[(answer + 1) % 10], rel=1e-5)
    with Image.open(told["output"]) as drawing:
        assert drawing.height > 3 * 224
    for method in (METHODS[0], METHODS[2]):
        run_in(here, "why", picture, "--method", method, "-o", f"{method}.svg", *HOW, status=0)
    assert (here / "grad-cam.svg").read_bytes() != (here / "occlusion.svg").read_bytes()
    said = run_in(here, "why", picture, "-o", "one.png", *HOW, status=0).stdout
    assert f"'{answer}' with {shares[answer]:.1%}\n" in said
    assert "; for" not in said
    default = json.loads(run_in(here, "why", picture, *HOW, "--json", status=0).stdout)
    assert default["methods"] == ["grad-cam"]
    assert default["class"] == str(answer)
    refused = run_in(here, "why", picture, "--class", "33", *HOW, status=2).stderr
    assert (
        "--class: expected 0, 1, 2, 3, 4, 5, 6, 7, 8 or 9 (got '33'; did you mean '3'?)" in refused
    )
    refused = run_in(here, "look", "-o", "a.jpg", *HOW, status=2).stderr
    assert "a.jpg: the picture is a PNG, SVG or PDF; choose a name that ends in" in refused


def test_what_excites_units(run_in: Run, here: Path) -> None:
    words = ("look", "tiny", "--units", "conv2d_1", "--unit", "2", "--unit", "0")
    told = json.loads(run_in(here, *words, *HOW, "--json", status=0).stdout)
    assert told["layer"] == "conv2d_1"
    assert [each["unit"] for each in told["units"]] == [2, 0]
    first = told["units"][0]["pictures"]
    assert len(first) == 9
    assert [*first[0]] == ["index", "output", "field"]
    assert [each["output"] for each in first] == sorted((e["output"] for e in first), reverse=True)
    assert Path(told["output"]).name == "units-conv2d_1.png"
    every = json.loads(run_in(here, *words[:4], *HOW, "--json", status=0).stdout)
    assert [each["unit"] for each in every["units"]] == [0, 1, 2, 3]
    for wrong, said in {
        ("--units", "conv2d_2"): "--units: expected conv2d_1, ",
        ("--units", "conv2d_1", "--unit", "4"): "--unit 4: layer 'conv2d_1' has 4, counted from 0",
        ("--unit", "4"): "--units takes no PICTURE, and --unit needs --units",
    }.items():
        assert said in run_in(here, "look", "tiny", *wrong, *HOW, status=2).stderr


def test_pictures_that_are_made(run_in: Run, here: Path) -> None:
    for words, name in (
        (["1\x1b[2J.png", "--fool", "4"], "fool-1\x1b[2J.png"),
        (["--class-picture", "4", "--seed", "3"], "class-4.png"),
    ):
        told = json.loads(run_in(here, "why", *words, *HOW, "--json", status=0).stdout)
        assert Path(told["output"]).samefile(here / "runs" / "tiny" / name)
        assert told["class"] == "4"
        assert told["class_probability"] > 0.1
        assert told["picture"] == (words[0] if len(words) == 3 else None)
        said = run_in(here, "why", *words, *HOW, status=0).stdout
        assert f"taken for '4' with {told['class_probability']:.1%}\n" in said
    picture = "1\x1b[2J.png"
    for wrong, said in {
        (): "give a PICTURE, or --class-picture",
        (picture, "--fool", "x"): "--fool: expected 0, 1, 2",
        ("--class-picture", "x"): "--class-picture: expected 0, 1, 2",
        (picture, "--fool", "3", "--class", "3"): "take no --class, --method or --all",
        ("--class-picture", "3", "--all"): "take no --class, --method or --all",
    }.items():
        assert said in run_in(here, "why", *wrong, *HOW, status=2).stderr


def test_numbers_of_a_table_have_no_reasons_and_no_labels(run_in: Run, tmp_path: Path) -> None:
    short = ("--set", "train.epochs=1", *HOW)
    run_in(tmp_path, "train", "--config", "linear-regression.yaml", *short, status=0)
    done = run_in(tmp_path, "why", "--class-picture", "y", *HOW, status=2)
    assert "step-1.safetensors: was not trained on pictures of classes" in done.stderr
    done = run_in(tmp_path, "suspects", "--apply", "labels.csv", *HOW, status=2)
    assert "--apply: there are no labels of classes to correct" in done.stderr
    assert not (tmp_path / "labels.csv").exists()
