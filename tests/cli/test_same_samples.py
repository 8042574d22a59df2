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
from dnnstack.training.records.formats.checkpoint import read_checkpoint
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


def test_a_checkpoint_elsewhere_knows_that_the_data_have_changed(here, tmp_path):
    assert here(*TRAIN).returncode == 0
    newest = newest_checkpoint(tmp_path / "runs" / "own" / "checkpoints").path
    shutil.copy(newest, tmp_path / "moved.safetensors")
    given = ("--checkpoint", "moved.safetensors", "--data-dir", ".")
    assert "warning" not in here(*VALIDATE, *given).stderr
    assert here(*LONGER, "moved.safetensors").returncode == 0
    paint(tmp_path / "pics" / "a" / "zz.png", 900)
    for arguments in ((*VALIDATE, *given), (*LONGER, "moved.safetensors")):
        refused = here(*arguments)
        assert refused.returncode == 1
        assert "samples.json.gz, which names its samples, is not in the" in refused.stderr
    assert here(*VALIDATE[:-1], "test", *given).returncode == 0


def test_classes_are_matched_by_name(here, tmp_path):
    assert here(*TRAIN, "--set", "train.epochs=30").returncode == 0
    evaluated = ("eval", "--device", "numpy", "--no-plots", "--json")
    before = json.loads(here(*evaluated).stdout)

    def rename(old: str, new: str) -> None:
        for part in ("pics", "unseen"):
            (tmp_path / part / old).rename(tmp_path / part / new)

    rename("c", "A")
    told = here(*evaluated)
    assert "has other classes than runs/own/checkpoints" in told.stderr
    assert "it does not know A; here is no c; 3 samples of unknown classes are left" in told.stderr
    after = json.loads(told.stdout)
    for now, then in zip(after["per_class"][:2], before["per_class"][:2], strict=True):
        assert (now["label"], now["count"], now["correct"]) == (
            *(then["label"], then["count"], then["correct"]),
        )
    assert after["per_class"][2]["count"] == 0
    rename("a", "B")
    rename("b", "C")
    none = here(*evaluated)
    assert none.returncode == 1
    assert "if they were renamed, give them their names again" in none.stderr


def test_two_forms_of_one_name_are_the_same_class(here, tmp_path):
    composed, decomposed = "\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}"

    def rename(old: str, new: str) -> None:
        for part in ("pics", "unseen"):
            (tmp_path / part / old).rename(tmp_path / part / new)

    rename("b", composed)
    assert here(*TRAIN).returncode == 0
    wanted = here(*VALIDATE, "--json").stdout
    # In this form it comes before the class c.
    rename(composed, decomposed)
    found = here(*VALIDATE, "--json")
    assert (found.returncode, found.stdout) == (0, wanted)
    done = here(*LONGER)
    assert done.returncode == 0, done.stderr


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


def test_the_runs_of_a_group_have_one_validation_folder(own, tmp_path):
    given = (*TRAIN, "--seeds", "2")
    assert own(*given).returncode == 0
    runs = [tmp_path / "runs" / "own-seeds" / f"seed-{seed}" for seed in (1, 2)]
    wanted = [(listed(run), arrays(run)) for run in runs]
    assert [{*parts["v"]} for parts, _ in wanted] == [OWN_NAMES] * 2
    done = own("eval", "--ensemble", str(runs[0].parent), *VALIDATE[1:4], "--weights", "validation")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(runs[1])
    paint(tmp_path / "checked" / "b" / "new.png", 900)
    refused = own(*given, "--resume")
    assert (refused.returncode, "1 added: ../validation/b/new.png" in refused.stderr) == (1, True)
    done = own(*given, "--resume", "--same-samples")
    assert done.returncode == 0, done.stderr
    assert [(listed(run), arrays(run)) for run in runs] == wanted


def test_a_class_of_which_nothing_is_trained_on_is_told(here, tmp_path):
    for path in sorted((tmp_path / "pics" / "b").iterdir())[2:]:
        path.unlink()
    given = (*TRAIN, "--set", "data.validation=0.5")
    assert "is trained on" not in here(*given).stderr
    wide = (*given, "--set", "data.stratified=false", "--set")
    said = [here(*wide, f"data.split_seed={seed}").stderr for seed in range(1, 6)]
    told = "warning: no sample of b is trained on; the network cannot learn such a class"
    assert {told in text for text in said} == {True, False}


def test_a_run_of_before_keeps_its_split(here, tmp_path):
    """Version 0.1.0 had neither a list nor shares of classes."""
    assert here(*TRAIN, "--set", "data.stratified=false").returncode == 0
    run = tmp_path / "runs" / "own"
    drawn = listed(run)
    before = json.loads(here(*VALIDATE, "--json").stdout)
    path = newest_checkpoint(run / "checkpoints").path
    _as_of_before(path)
    (run / "samples.json.gz").unlink()
    assert json.loads(here(*VALIDATE, "--json").stdout) == before
    done = here(*LONGER)
    assert done.returncode == 0, done.stderr
    assert listed(run) == drawn
    assert "stratified" not in (run / "config.yaml").read_text()
    # A new run has shares.
    assert here(*TRAIN).returncode == 0
    assert sorted(name[0] for name in listed(tmp_path / "runs" / "own-2")["v"]) == [*"aabbcc"]
    begun = here(*TRAIN, "--init-from", str(path), "--set", "name=next")
    assert begun.returncode == 0, begun.stderr
    assert {*listed(tmp_path / "runs" / "next")["v"]} == {*drawn["v"]}


def _as_of_before(path: Path) -> None:
    """Write the checkpoint as version 0.1.0 would have."""
    from dataclasses import replace

    from dnnstack.training.records.formats.checkpoint import encode, manifest_text

    found = read_checkpoint(path)
    config = found.provenance.config.replace("stratified: false, ", "")
    config = config.replace("  stratified: false\n", "")
    assert "stratified" not in config
    origin = replace(found.provenance, config=config, samples="", overrides=())
    pieces = encode(found.arrays, found.state, origin)
    path.write_bytes(b"".join(pieces))
    path.with_suffix(".json").write_bytes(manifest_text(found.state.step, path, pieces))
