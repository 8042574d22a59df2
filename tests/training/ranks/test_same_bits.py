"""Ranks share out the parts of a batch; how many ranks there are changes no bit."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from ...support.ranks import MUON, NET, SGD, bits, events, needs_launcher, trained, trained_alone
from ...support.stored import beside

pytestmark = needs_launcher
RULES = {"sgd": SGD, "muon": MUON}
PLATEAU = "{reduce_on_plateau: {patience: 1, threshold: 0.99, factor: 0.5}, max_steps"
DEEP = "\n" + beside(__file__, "same_bits_deep.yaml")


@pytest.fixture(scope="module", params=RULES)
def runs(request, tmp_path_factory):
    """A folder with a training by 1, 2 and 4 ranks, in runs of these names."""
    folder = tmp_path_factory.mktemp(request.param)
    pooled, dropped = "  - max_pool2d\n", "  - dropout: {rate: 0.3}\n"
    text = NET.replace(pooled, f"{pooled}  - group_norm: {{groups: 2}}\n  - layer_norm\n")
    text = text.replace(dropped, f"{dropped}  - stochastic_depth: {{rate: 0.2}}\n")
    text = text.replace("{max_steps", PLATEAU).replace("validation: 48", "validation: 120")
    (folder / "net.yaml").write_text(text + RULES[request.param])
    trained_alone(folder, "--config", "net.yaml", "--set", "name=by-1")
    for ranks in (2, 4):
        done = trained(folder, ranks, "--config", "net.yaml", "--set", f"name=by-{ranks}")
        assert done.returncode == 0, done.stderr
    return folder / "runs"


def test_checkpoints_are_equal_to_the_bit(runs):
    for step in (5, 10, 14):
        assert len({bits(runs / f"by-{ranks}", step) for ranks in (1, 2, 4)}) == 1


def test_the_records_are_equal(runs):
    tables = {(runs / f"by-{ranks}" / "metrics.csv").read_text() for ranks in (1, 2, 4)}
    assert len(tables) == 1
    table = tables.pop()
    assert "validation" in table
    # The rate has fallen at the second validation.
    assert len({row.split(",")[5] for row in table.splitlines()[1:]}) == 2
    assert [events(runs / f"by-{n}", "start")[0].get("ranks") for n in (1, 2, 4)] == [None, 2, 4]


def test_a_resume_on_fewer_ranks_keeps_the_bits(runs):
    """By four ranks to step 5, by two to step 10, by one to the end."""
    run = runs / "fewer"
    shutil.copytree(runs / "by-4", run)
    resume = ("--config", "net.yaml", "--resume")
    sources = {step: str(run / "checkpoints" / f"step-{step}.safetensors") for step in (5, 10)}
    done = trained(runs.parent, 2, *resume, sources[5])
    assert done.returncode == 0, done.stderr
    for said in (done.stderr, trained_alone(runs.parent, *resume, sources[10])):
        assert "not equal to the last bit" not in said
    assert bits(run, 14) == bits(runs / "by-1", 14)
    assert (run / "metrics.csv").read_text() == (runs / "by-1" / "metrics.csv").read_text()
    assert [line.get("ranks") for line in events(run, "resume")] == [2, None]


def test_ranks_decide_the_parts_where_the_config_does_not(tmp_path):
    """Two ranks make two parts, which the run keeps on one rank; by the user's own launcher too."""
    text = NET.replace(", accumulate: 4", "") + SGD
    (tmp_path / "net.yaml").write_text(text)
    run = tmp_path / "runs"
    for name, more in (("whole", ()), ("halves", ("--set", "train.max_steps=7"))):
        given = ("--config", "net.yaml", "--set", f"name={name}", *more)
        done = trained(tmp_path, 2, *given, own_launcher=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\nranks       2 on this machine\n" in done.stdout
    common = ("--config", "net.yaml", "--set")
    trained_alone(tmp_path, *common, "name=halves", "--resume")
    trained_alone(tmp_path, *common, "name=parts", "--set", "train.accumulate=2")
    assert "accumulate: 2" in (run / "whole" / "config.yaml").read_text()
    assert len({bits(run / name, 14, False) for name in ("whole", "halves", "parts")}) == 1


def test_ranks_go_on_with_the_depth_of_integer_pixels(tmp_path):
    """That of the checkpoint, whatever the pictures are by then."""

    def paint(most: int, folder: str = "pics", first: int = 0) -> None:
        for number in range(first, first + 20):
            pixels = np.random.default_rng(number).integers(0, most + 1, (6, 6))
            path = tmp_path / folder / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint16)).save(path)

    (tmp_path / "net.yaml").write_text(DEEP)
    paint(1000)
    paint(1000, "tests")
    common = ("--config", "net.yaml")
    trained_alone(tmp_path, *common, "--set", "name=one", "--set", "train.epochs=1")
    shutil.copytree(tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    paint(60_000, first=20)
    goes_on = (*common, "--same-samples", "--resume")
    trained_alone(tmp_path, *goes_on, "runs/one")
    done = trained(tmp_path, 2, *goes_on, "runs/two")
    assert done.returncode == 0, done.stderr
    assert "10 bits are taken" in done.stderr
    assert bits(tmp_path / "runs" / "two", 10) == bits(tmp_path / "runs" / "one", 10)
