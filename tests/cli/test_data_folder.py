"""A run keeps the folder of its data: evaluating it and going on with it need not be told."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from ..support.stored import beside

Run = Callable[..., subprocess.CompletedProcess[str]]

CONFIG = beside(__file__, "data_folder_config.yaml")


@pytest.fixture
def folder(tmp_path):
    """A config, and pictures of two classes in data/set."""
    (tmp_path / "two.yaml").write_text(CONFIG)
    drawn = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
    for number, pixels in enumerate(drawn):
        near = tmp_path / "data" / "set" / "ab"[number % 2]
        near.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(near / f"{number}.png")
    return tmp_path


TRAIN = ("train", "--config", "two.yaml", "--device", "numpy")
EVAL = ("eval", "--device", "numpy", "--split", "train", "--no-plots")


def test_a_moved_folder_of_pictures_is_named_as_the_config_has_it(
    run_in, folder, environment, monkeypatch
):
    """The data folder, in which they never were, comes last."""
    (folder / "data" / "set").rename(folder / "set")
    assert run_in(folder, *TRAIN).returncode == 0
    (folder / "set").rename(folder / "moved")
    monkeypatch.setitem(environment, "DNNSTACK_DATA", "shelf")
    done = run_in(folder, *TRAIN, status=1)
    expected = "two.yaml:3:35: data.dataset.image_folder.train: there is no folder 'set'. If the "
    assert done.stderr.startswith(f"dnnstack: error: {expected}samples were moved, write where")
    assert "from the data folder, which is shelf\n" in done.stderr
    done = run_in(folder, *EVAL)
    assert "image_folder.train: there is no folder 'set'. If the samples" in done.stderr
    done = run_in(folder, *TRAIN, "--set", "data.dataset.image_folder.train=/none")
    assert "train: there is no folder '/none'; if the samples were moved, write" in done.stderr


def test_the_environment_comes_first(run_in, folder, environment, monkeypatch):
    monkeypatch.setitem(environment, "DNNSTACK_DATA", "nowhere")
    done = run_in(folder, *TRAIN, "--data-dir", "data", status=0)
    # Without the option the evaluation would not find it.
    assert "next        dnnstack eval --data-dir data\n" in done.stdout
    done = run_in(folder, *EVAL, status=1)
    assert "from the data folder, which is nowhere\n" in done.stderr


def test_pictures_beside_the_config_are_found_from_anywhere(
    run_in, folder, environment, monkeypatch
):
    """Also where the environment names the folder of other data sets, and by what comes later."""
    monkeypatch.setitem(environment, "DNNSTACK_DATA", "nowhere")
    (folder / "two.yaml").rename(folder / "data" / "two.yaml")
    train = ("train", "--config", "../data/two.yaml", "--device", "numpy")
    (folder / "work").mkdir()
    run_in(folder / "work", *train, status=0)
    for line in (EVAL, (*train, "--set", "train.epochs=2", "--resume")):
        run_in(folder / "work", *line, status=0)
    run_in(folder, *EVAL, "--runs-dir", "work/runs", status=0)
    run_in(folder / "work", "data", "--config", "../data/two.yaml", "--no-sheet", status=0)
    # Pictures that were moved with everything else.
    (folder / "data").rename(folder / "moved")
    run_in(folder / "work", *EVAL, "--data-dir", "../moved", status=0)


def test_a_run_trained_on_other_pictures_keeps_to_them(run_in, folder):
    shutil.copytree(folder / "data" / "set", folder / "set")
    # Whichever of them a training reads.
    for path in (folder / "set").glob("a/*.png"):
        path.write_text("not a picture")
    for line in (
        (*TRAIN, "--data-dir", "data"),
        EVAL,
        (*TRAIN, "--set", "train.epochs=2", "--resume"),
    ):
        run_in(folder, *line, status=0)
    assert "not a picture" in run_in(folder, *TRAIN).stderr
