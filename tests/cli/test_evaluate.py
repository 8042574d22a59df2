"""``dnnstack eval`` on a finished run: text, JSON, splits."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dnnstack.cli.evaluate import _plots_dir
from PIL import Image

from ..support.stored import cases

Run = Callable[..., subprocess.CompletedProcess[str]]
STEPS = 26
RUN = "tiny"
CHECKPOINT = f"runs/{RUN}/checkpoints/step-{STEPS}.safetensors"
KEYS = cases(__file__, "keys")


def _json(run_in: Run, folder: Path, *arguments: str) -> dict[str, Any]:
    done = run_in(folder, "eval", "--json", *arguments, status=0)
    assert done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("device", ["numpy", "cpu"])
@pytest.mark.parametrize(("split", "count"), [("test", 100), ("validation", 64), ("train", 416)])
def test_json_counts_every_picture_once(run_in, trained, split, count, device):
    found = _json(run_in, trained, "--split", split, "--device", device, "--run", "tiny")
    assert list(found) == KEYS
    assert found["checkpoint"].startswith("runs/tiny/checkpoints/step-")
    assert (found["dataset"], found["split"], found["count"]) == ("strokes", split, count)
    matrix = found["confusion_matrix"]
    assert [len(row) for row in matrix] == [10] * 10
    assert sum(map(sum, matrix)) == count
    assert sum(matrix[i][i] for i in range(10)) == found["correct"]
    assert found["accuracy"] == found["correct"] / count
    assert 0 < found["loss"] < 10
    for index, entry in enumerate(found["per_class"]):
        assert (entry["label"], entry["count"]) == (str(index), sum(matrix[index]))
    ranks = found["top_k"]
    assert list(found["top_k_intervals"]) == list(ranks) == ["1", "2", "3", "5"]
    assert found["accuracy"] == ranks["1"] < ranks["5"]
    worst = found["worst"]
    assert len(worst) == min(count - found["correct"], 40)
    assert all(each["label"] != each["answer"] and each["source"] == "" for each in worst)
    shares = [each["true_probability"] for each in worst]
    assert shares == sorted(shares)


def test_views_by_option(run_in, trained):
    plain = _json(run_in, trained, "--device", "numpy")
    mirrored = _json(run_in, trained, "--device", "numpy", "--tta", "mirror")
    assert (plain["tta"], mirrored["tta"]) == ("none", "mirror")
    assert plain["count"] == mirrored["count"] == 100
    assert plain["loss"] != mirrored["loss"]


def test_validation_is_what_training_said(run_in, trained):
    log = (trained / "runs" / "tiny" / "log.jsonl").read_text("utf-8").splitlines()
    events = [event for line in log if (event := json.loads(line))["event"] == "validation"]
    best = max(events, key=lambda event: (event["accuracy"], -event["loss"]))
    found = _json(run_in, trained, "--split", "validation", "--device", "numpy")
    assert found["correct"] == best["correct"]
    assert found["loss"] == pytest.approx(best["loss"], rel=1e-6)


def test_the_run_that_is_taken_is_named_on_stderr(run_in, trained):
    done = run_in(trained, "eval", "--device", "numpy", status=0)
    assert "using runs/tiny, the latest run: step-" in done.stderr
    assert "taking" not in done.stdout


def test_a_checkpoint_needs_nothing_else(run_in, trained, tmp_path):
    (tmp_path / "alone.safetensors").write_bytes((trained / CHECKPOINT).read_bytes())
    arguments = ("--checkpoint", "alone.safetensors", "--device", "numpy")
    alone = _json(run_in, tmp_path, *arguments)
    assert alone["checkpoint"] == "alone.safetensors"
    there = _json(run_in, trained, "--checkpoint", CHECKPOINT, "--device", "numpy")
    assert {**alone, "checkpoint": ""} == {**there, "checkpoint": ""}


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.png")}


@pytest.fixture
def own(trained, tmp_path):
    """A copy of the finished run, to be written to."""
    shutil.copytree(trained / "runs", tmp_path / "runs", symlinks=True)
    for path in (tmp_path / "runs").glob("*/*.png"):
        path.unlink()
    for path in (tmp_path / "runs" / RUN).glob("eval-*"):
        shutil.rmtree(path)
    return tmp_path


def test_plots_go_into_the_run_folder(run_in, own):
    done = run_in(own, "eval", "--device", "numpy", "--split", "validation", "--json", status=0)
    folder = f"runs/{RUN}/eval-validation"
    assert _files(own) == {f"{folder}/confusion.png", f"{folder}/errors.png"}
    # Beside JSON the paths are on stderr.
    json.loads(done.stdout)
    assert f"drawn: {folder}/confusion.png" in done.stderr
    for name in _files(own):
        with Image.open(own / name) as picture:
            picture.load()
            assert picture.width > 500


def test_plots_can_go_elsewhere_or_be_left_out(run_in, own):
    done = run_in(own, "eval", "--device", "numpy", "--no-plots")
    assert "drawn" not in done.stdout + done.stderr
    assert _files(own) == set()
    run_in(own, "eval", "--device", "numpy", "--plots-dir", "here/there")
    assert _files(own) == {"here/there/confusion.png", "here/there/errors.png"}


@pytest.mark.parametrize(
    ("dataset", "name"), [("strokes", "eval-test"), ("mnist", "eval-mnist-test")]
)
def test_another_data_set_has_a_folder_of_its_own(own, dataset, name):
    path = own / CHECKPOINT
    checkpoint = SimpleNamespace(provenance=SimpleNamespace(dataset="strokes"))
    trained: Any = SimpleNamespace(path=path, checkpoint=checkpoint)
    result: Any = SimpleNamespace(dataset=dataset, part="test")
    assert _plots_dir(trained, result) == own / "runs" / RUN / name


def test_a_checkpoint_of_no_run_draws_where_it_is_told(run_in, own):
    (own / "alone.safetensors").write_bytes((own / CHECKPOINT).read_bytes())
    shutil.rmtree(own / "runs")
    done = run_in(own, "eval", "--checkpoint", "alone.safetensors", "--device", "numpy", status=0)
    assert "is not in the folder of a run, so no plots are drawn" in done.stderr
    assert _files(own) == set()


def test_plots_that_fail_are_said_and_do_not_fail_the_evaluation(run_in, own):
    (own / "runs" / RUN / "eval-test").touch()
    done = run_in(own, "eval", "--device", "numpy", status=0)
    assert "accuracy  " in done.stdout
    assert "the plots were not drawn: " in done.stderr


def test_plots_are_not_drawn_through_a_link(run_in, own):
    """Whoever has made the folder of a run does not choose where files are written or deleted."""
    (own / "elsewhere").mkdir()
    (own / "elsewhere" / "errors.png").write_bytes(b"precious")
    (own / "runs" / RUN / "eval-test").symlink_to(own / "elsewhere")
    done = run_in(own, "eval", "--device", "numpy", status=1)
    assert "accuracy  " in done.stdout
    assert f"error: runs/{RUN}/eval-test: is a symbolic link; replace it" in done.stderr
    assert [path.read_bytes() for path in (own / "elsewhere").iterdir()] == [b"precious"]
    # One that the user names may be a link.
    done = run_in(
        own, "eval", "--device", "numpy", "--plots-dir", f"runs/{RUN}/eval-test", status=0
    )
    assert (own / "elsewhere" / "confusion.png").exists()
