"""``--ensemble`` of eval and predict."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest
from PIL import Image

Run = Callable[..., subprocess.CompletedProcess[str]]
FILES = [f"runs/tiny/checkpoints/step-{step}.safetensors" for step in (13, 26)]


def test_several_names_in_three_ways(run_in, trained):
    ways = (["--ensemble", *FILES], ["--ensemble", ",".join(FILES)])
    ways += (["--ensemble", FILES[0], "--ensemble", FILES[1]],)
    found = [run_in(trained, "eval", "--device", "numpy", "--json", *way) for way in ways]
    assert [done.stderr for done in found] == [""] * 3
    assert len({done.stdout for done in found}) == 1
    members = json.loads(found[0].stdout)["ensemble"]["members"]
    assert [each["checkpoint"] for each in members] == FILES
    text = run_in(trained, "eval", "--device", "numpy", *ways[0], "--weights", "3,1").stdout
    assert "tiny, step-13   0.750 " in text
    assert "combined  the average of the probabilities; with the weights above\n" in text
    assert text.count("gain  ") == 1


def test_pictures(run_in, trained, tmp_path):
    Image.new("L", (28, 28), 40).save(tmp_path / "dark.png")
    chosen = ["--ensemble", ",".join(FILES), "--combine", "votes", "--device", "numpy"]
    done = run_in(
        trained, "predict", "--json", *chosen, "--top", "10", str(tmp_path / "dark.png"), status=0
    )
    shares = [each["probability"] for each in json.loads(done.stdout)["top"]]
    assert sum(shares) == pytest.approx(1)
    assert set(shares) <= {0.0, 0.5, 1.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny"], "Got unexpected extra argument (tiny); name a run with --run"),
        (["--weights", "1"], "--weights needs --ensemble"),
        (["--ensemble", "a,b", "--run", "c"], "--ensemble and --run cannot be used together"),
        (["--ensemble", "a,b", "--weights", "x"], "or for eval 'validation' (got 'x')"),
        (["--ensemble", "a,b", "--combine", "votes", "--weights", "validation"], "give numbers"),
        (["--ensemble", "tiny"], "--ensemble: expected at least two networks, but only runs/tiny/"),
        (["--ensemble", "tiny"], "named; names are separated by commas: --ensemble tiny,NAME\n"),
    ],
)
def test_wrong_usage(run_in, trained, arguments, message):
    done = run_in(trained, "eval", *arguments, status=2)
    assert message in done.stderr


def test_a_file_that_is_missing_is_called_a_file(run_in, trained):
    done = run_in(
        trained, "eval", "--device", "numpy", "--ensemble", f"{FILES[0]},no.safetensors", status=1
    )
    assert "no.safetensors: no such file; a run's checkpoints are in" in done.stderr


def test_a_group_that_was_meant_is_named(run_in, trained, tmp_path):
    shutil.copytree(trained / "runs", tmp_path / "runs", symlinks=True)
    (tmp_path / "runs" / "tiny-seeds").mkdir()
    (tmp_path / "runs" / "tiny-seeds" / "group.json").write_text("{}", "utf-8")
    for option in ("--ensemble", "--run"):
        done = run_in(tmp_path, "eval", option, "tiny-seed")
        assert (
            "tiny-seed: no such run; did you mean 'tiny-seeds'? Runs in runs: tiny; groups of "
            "runs: tiny-seeds"
        ) in done.stderr
    done = run_in(tmp_path, "runs", "--group", "tiny-seed")
    assert "no such group of runs; did you mean 'tiny-seeds'? Groups of runs in" in done.stderr
