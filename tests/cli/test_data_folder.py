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


def test_an_evaluation_finds_the_data_of_its_run(run_in, folder):
    done = run_in(folder, *TRAIN, "--data-dir", "data", status=0)
    assert "next        dnnstack eval\n" in done.stdout
    done = run_in(folder, *EVAL, status=0)
    (folder / "elsewhere").mkdir()
    done = run_in(folder / "elsewhere", *EVAL, "--runs-dir", "../runs", status=0)


def test_so_does_a_resume(run_in, folder):
    assert run_in(folder, *TRAIN, "--data-dir", "data").returncode == 0
    done = run_in(folder, *TRAIN, "--set", "train.epochs=2", "--resume", status=0)
    # What the config says now comes before what was.
    done = run_in(folder, *TRAIN, "--set", "data.root=gone", "--resume", status=1)
    assert "--set data.root=gone" not in done.stderr
    assert "two.yaml:3:35: data.dataset.image_folder.train: there is no folder 'set'" in done.stderr
    assert f"from the data folder, which is {folder / 'gone'}. summary" in done.stderr


def test_a_folder_that_is_gone_does_not_count(run_in, folder):
    assert run_in(folder, *TRAIN, "--data-dir", "data").returncode == 0
    (folder / "data").rename(folder / "moved")
    done = run_in(folder, *EVAL, status=1)
    assert str(folder / "data") not in done.stderr
    assert "set: cannot be read, as there is no such folder" in done.stderr
    assert run_in(folder, *EVAL, "--data-dir", "moved").returncode == 0


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
    assert done.stderr.startswith(f"dnnstack: error: {expected}pictures were moved, write where")
    assert "from the data folder, which is shelf. summary and explain need no" in done.stderr
    done = run_in(folder, *EVAL)
    gone = f"error: {folder / 'set'}: cannot be read, as there is no such folder and no shelf/set "
    assert gone in done.stderr
    done = run_in(folder, *TRAIN, "--set", "data.dataset.image_folder.train=/none")
    assert "train: there is no folder '/none'; if the pictures were moved, write" in done.stderr


@pytest.mark.parametrize("hidden", [False, True])
def test_an_empty_class_comes_before_advice_about_the_network(run_in, folder, hidden):
    pictures = folder / "data" / "set"
    for path in (pictures / "b").iterdir():
        path.unlink()
    (pictures / "c").mkdir()
    (pictures / "a" / "0.png").rename(pictures / "c" / "0.png")
    if hidden:
        (pictures / "b" / ".DS_Store").write_bytes(b"")
    done = run_in(folder, *TRAIN, "--data-dir", "data", "--set", "layers.1.units=3", status=1)
    assert "data/set/b: no picture in this folder" in done.stderr
    assert "units" not in done.stderr


def test_a_renamed_folder_of_pictures_is_named_with_a_way_out(run_in, folder):
    assert run_in(folder, *TRAIN, "--data-dir", "data").returncode == 0
    renamed = folder / "data" / "renamed"
    (folder / "data" / "set").rename(renamed)
    done = run_in(folder, *EVAL, status=1)
    assert "data/set: cannot be read, as there is no such folder; the network was" in done.stderr
    assert "give it its name again, or make a link of that name to it" in done.stderr
    assert "the config" not in done.stderr
    (folder / "data" / "set").symlink_to(renamed)
    assert run_in(folder, *EVAL).returncode == 0


def test_the_environment_comes_first(run_in, folder, environment, monkeypatch):
    monkeypatch.setitem(environment, "DNNSTACK_DATA", "nowhere")
    done = run_in(folder, *TRAIN, "--data-dir", "data", status=0)
    # Without the option the evaluation would not find it.
    assert "next        dnnstack eval --data-dir data\n" in done.stdout
    done = run_in(folder, *EVAL, status=1)
    assert "nowhere/set: cannot be read" in done.stderr


def test_a_file_from_elsewhere_names_no_folder(run_in, folder):
    """Anybody may have written it: its folders are shown, not used."""
    assert run_in(folder, *TRAIN, "--data-dir", "data").returncode == 0
    (saved,) = folder.glob("runs/two/checkpoints/*.safetensors")
    saved.rename(folder / "gift.safetensors")
    line = (*EVAL, "--checkpoint", "gift.safetensors")
    done = run_in(folder, *line, status=1)
    assert f"the data folder that it names, '{folder / 'data'}', is not used" in done.stderr
    assert "give it with --data-dir" in done.stderr
    assert run_in(folder, *line, "--data-dir", "data").returncode == 0
    done = run_in(
        folder, *TRAIN, "--set", "train.epochs=2", "--resume", "gift.safetensors", status=1
    )
    assert "is not used" in done.stderr


def test_nor_pictures_outside_the_data_folder(run_in, folder):
    outside = f"data.dataset.image_folder.train={folder / 'data' / 'set'}"
    assert run_in(folder, *TRAIN, "--set", outside).returncode == 0
    (saved,) = folder.glob("runs/two/checkpoints/*.safetensors")
    assert run_in(folder, *EVAL).returncode == 0
    saved.rename(folder / "gift.safetensors")
    done = run_in(folder, *EVAL, "--checkpoint", "gift.safetensors", status=1)
    assert f"names pictures in '{folder / 'data' / 'set'}'" in done.stderr


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
    next((folder / "set").glob("a/*.png")).write_text("not a picture")
    for line in (
        (*TRAIN, "--data-dir", "data"),
        EVAL,
        (*TRAIN, "--set", "train.epochs=2", "--resume"),
    ):
        run_in(folder, *line, status=0)
    assert "not a picture" in run_in(folder, *TRAIN).stderr
