"""Own pictures that change between two starts: what is said, and what goes on with which."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.training.records.formats.store import newest_checkpoint
from PIL import Image

from ..support.stored import beside

Run = Callable[..., subprocess.CompletedProcess[str]]

CONFIG = beside(__file__, "same_samples_config.yaml")
TRAIN = ("train", "--config", "own.yaml", "--device", "numpy", "-q")
LONGER = (*TRAIN, "--set", "train.epochs=4", "--resume")
VALIDATE = ("eval", "--device", "numpy", "--no-plots", "--split", "validation")


def paint(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 200, (8, 8, 3), np.uint8)
    pixels[..., seed // 100 % 3] += 50
    Image.fromarray(pixels).save(path)


@pytest.fixture
def here(run_in, tmp_path):
    """Run the command in a folder with 9 pictures of each of three classes, and 3 to test on."""
    (tmp_path / "own.yaml").write_text(CONFIG)
    for place, name in enumerate("abc"):
        for number in range(12):
            folder = tmp_path / ("pics" if number < 9 else "unseen") / name
            paint(folder / f"{number:02}.png", 100 * place + number)
    return lambda *arguments: run_in(tmp_path, *arguments)


def listed(run: Path) -> dict[str, dict[str, str]]:
    """For each part the names of the run's list, with the contents."""
    table = json.loads(gzip.decompress((run / "samples.json.gz").read_bytes()))
    found: dict[str, dict[str, str]] = {"t": {}, "v": {}}
    for part, name, content in zip(table["parts"], table["names"], table["contents"], strict=True):
        found[part][name] = content
    return found


def arrays(run: Path) -> dict[str, bytes]:
    newest = newest_checkpoint(run / "checkpoints")
    return {name: array.tobytes() for name, array in newest.arrays.items()}


def test_a_run_goes_on_with_its_own_pictures(here, tmp_path):
    assert here(*TRAIN).returncode == 0
    run = tmp_path / "runs" / "own"
    parts = listed(run)
    # Two of each class.
    assert [len(part) for part in parts.values()] == [21, 6]
    assert sorted(name[0] for name in parts["v"]) == [*"aabbcc"]
    shutil.copytree(run, tmp_path / "copy")
    assert here(*LONGER).returncode == 0
    wanted = arrays(run)
    shutil.rmtree(run)
    (tmp_path / "copy").rename(run)
    for number, name in enumerate(("a/000.png", "b/zz.png")):
        paint(tmp_path / "pics" / name, 900 + number)
    refused = here(*LONGER)
    assert refused.returncode == 1
    assert "no longer what this was begun with:\n  2 added: a/000.png, b/zz.png\n" in refused.stderr
    assert refused.stderr.endswith("that are still as they were: --same-samples\n")
    assert "Traceback" not in refused.stderr
    done = here(*LONGER, "--same-samples")
    assert done.returncode == 0, done.stderr
    assert "warning: the data set has changed since runs/own/" in done.stderr
    # All are there, so that nothing is another.
    assert arrays(run) == wanted
    assert listed(run) == parts
    found = here(*VALIDATE, "--json")
    assert "warning: the data set has changed since runs/own/" in found.stderr
    assert "2 added: a/000.png, b/zz.png" in found.stderr
    assert json.loads(found.stdout)["count"] == 6


def test_what_is_gone_is_left_out(here, tmp_path):
    assert here(*TRAIN).returncode == 0
    run = tmp_path / "runs" / "own"
    parts = listed(run)
    one, two = (next(iter(parts[part])) for part in "tv")
    (tmp_path / "pics" / one).unlink()
    paint(tmp_path / "pics" / two, 555)
    refused = here(*LONGER)
    assert (refused.returncode, f"changed: {two}\n" in refused.stderr) == (1, True)
    done = here(*LONGER, "--same-samples")
    assert done.returncode == 0, done.stderr
    # 20 pictures are still five batches; without four more, there are four.
    assert newest_checkpoint(run / "checkpoints").state.step == 20
    for name in [*parts["t"]][1:5]:
        (tmp_path / "pics" / name).unlink()
    again = here(*TRAIN, "--set", "train.epochs=6", "--resume", "--same-samples")
    assert again.returncode == 0, again.stderr
    newest = newest_checkpoint(run / "checkpoints")
    assert (newest.state.step, newest.provenance.steps_per_epoch) == (24, 4)
    short = here(*TRAIN, "--set", "train.epochs=5", "--resume", "--same-samples")
    assert "ends training after 20 steps; raise train.epochs" in short.stderr
    for part in ("pics", "unseen"):
        shutil.rmtree(tmp_path / part / "a")
    lost = here(*TRAIN, "--set", "train.epochs=9", "--resume")
    assert "classes that are gone: a" in lost.stderr
    rest = here(*TRAIN, "--set", "train.epochs=9", "--resume", "--same-samples")
    assert rest.returncode == 0, rest.stderr
    assert "no sample of a is trained on" in rest.stderr


def test_test_pictures_that_were_trained_on_are_named(here, tmp_path):
    assert here(*TRAIN).returncode == 0
    name = next(iter(listed(tmp_path / "runs" / "own")["t"]))
    evaluated = ("eval", "--device", "numpy", "--no-plots")
    assert "trained on" not in here(*evaluated).stderr
    shutil.copy(tmp_path / "pics" / name, tmp_path / "unseen" / "a" / "copy.png")
    said = here(*evaluated).stderr
    assert "warning: 1 of 10 pictures were trained on: a/copy.png" in said


@pytest.mark.parametrize("kind", ["folds", "seeds"])
def test_a_group_has_one_list(here, tmp_path, kind):
    given = (*TRAIN, f"--{kind}", "3")
    assert here(*given).returncode == 0
    group = tmp_path / "runs" / f"own-{kind}"
    runs = sorted(path.parent for path in group.glob(f"{kind[:-1]}-*/config.yaml"))
    wanted = [(listed(run), arrays(run)) for run in runs]
    if kind == "folds":
        # Of each class, each fold validates on as many.
        assert {"".join(sorted(name[0] for name in parts["v"])) for parts, _ in wanted} == {
            "aaabbbccc"
        }
        held = [name for parts, _ in wanted for name in parts["v"]]
        assert len(held) == len({*held}) == 27
    # The others are to begin when there are more pictures.
    for run in runs[1:]:
        shutil.rmtree(run)
    paint(tmp_path / "pics" / "a" / "000.png", 900)
    refused = here(*given, "--resume")
    assert refused.returncode == 1
    assert "added: a/000.png" in refused.stderr
    done = here(*given, "--resume", "--same-samples")
    assert done.returncode == 0, done.stderr
    assert [(listed(run), arrays(run)) for run in runs] == wanted


@pytest.fixture
def own(here, tmp_path):
    """Two more pictures of each class, in a folder to validate on."""
    for place, name in enumerate("abc"):
        for number in range(2):
            paint(tmp_path / "checked" / name / f"{number}.png", 100 * place + 50 + number)
    text = CONFIG.replace("test:", "validation: checked, test:").replace("  validation: 6\n", "")
    (tmp_path / "own.yaml").write_text(text)
    return here


OWN_NAMES = {f"../validation/{name}/{number}.png" for name in "abc" for number in (0, 1)}


def test_a_run_keeps_to_the_validation_folder_that_it_was_begun_with(own, tmp_path):
    assert "data        27 pictures for training, 6 for" in own(*TRAIN[:-1]).stdout
    run = tmp_path / "runs" / "own"
    parts = listed(run)
    assert (len(parts["t"]), {*parts["v"]}) == (27, OWN_NAMES)
    assert json.loads(own(*VALIDATE, "--json").stdout)["count"] == 6
    path = tmp_path / "checked" / "a" / "0.png"
    path.rename(tmp_path / "pics" / "a" / "new.png")
    # Wherever a picture is now, it is not trained on.
    done = own(*LONGER)
    assert done.returncode == 0, done.stderr
    assert listed(run) == parts
    paint(path, 777)
    refused = own(*TRAIN, "--set", "train.epochs=5", "--resume")
    assert (refused.returncode, "1 added: ../validation/a/0.png" in refused.stderr) == (1, True)
    shutil.copy(tmp_path / "pics" / "a" / "00.png", tmp_path / "checked" / "a" / "twice.png")
    told = "warning: identical pictures in validation and in training (1): checked/a/twice.png ="
    again = own(*TRAIN, "--set", "train.epochs=5", "--resume", "--same-samples")
    assert (again.returncode, told in again.stderr) == (0, True)
    # Of a file that anybody may have made, no folder outside the data folder is read.
    text = (tmp_path / "own.yaml").read_text()
    (tmp_path / "own.yaml").write_text(text.replace(": checked", f": {tmp_path / 'checked'}"))
    assert own(*TRAIN, "--set", "name=out").returncode == 0
    shutil.copy(
        newest_checkpoint(tmp_path / "runs/out/checkpoints").path, tmp_path / "x.safetensors"
    )
    done = own(*VALIDATE, "--checkpoint", "x.safetensors", "--data-dir", ".")
    assert f"names samples in '{tmp_path / 'checked'}', but is not in the folder" in done.stderr


def test_a_class_of_which_nothing_is_trained_on_is_told(here, tmp_path):
    for path in sorted((tmp_path / "pics" / "b").iterdir())[2:]:
        path.unlink()
    given = (*TRAIN, "--set", "data.validation=0.5")
    assert "is trained on" not in here(*given).stderr
    wide = (*given, "--set", "data.stratified=false", "--set")
    said = [here(*wide, f"data.split_seed={seed}").stderr for seed in range(1, 6)]
    told = "warning: no sample of b is trained on; the network cannot learn such a class"
    assert {told in text for text in said} == {True, False}
