"""From a folder of pictures to an evaluation: ``new``, ``train``, ``eval``."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.configs import load_config, parse_config
from dnnstack.reports.new_report import as_text, report
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.records.formats.pytorch_names import their_names
from PIL import Image
from safetensors.numpy import save_file

from ..support.picture_folders import paint

Run = Callable[..., subprocess.CompletedProcess[str]]
FEW = ("--set", "train={max_steps: 30}", "--set", "run.tune=false")
QUICK = ("--device", "numpy", "--set", "train={max_steps: 4}", "--set", "run.tune=false")


def draw(folder: Path, counts: dict[str, int], size: tuple[int, int] = (16, 16)) -> None:
    for name, count in counts.items():
        for number in range(count):
            paint(folder / name / f"{number}.png", 100 * len(name) + number, size)


@pytest.fixture
def work(tmp_path):
    draw(tmp_path / "flowers", {"aster": 10, "rose": 12, "tulip": 11})
    return tmp_path


def test_two_commands_to_an_evaluation(run_in, work):
    done = run_in(work, "new", "flowers", status=0)
    assert "pictures    33 of 3 classes, in flowers" in done.stdout
    assert "\nnext        dnnstack train --config flowers.yaml\n" in done.stdout
    done = run_in(work, "train", "--config", "flowers.yaml", *QUICK, status=0)
    done = run_in(work, "eval", "--json", "--no-plots", "--device", "numpy", status=0)
    # A fifth of 10, 12 and 11.
    assert json.loads(done.stdout)["count"] == 6


@pytest.mark.parametrize("name", ["aster/2.png", "aster/3.png", "rose/4.png"])
def test_what_cannot_be_read_is_of_the_part_that_the_training_finds_it_in(run_in, work, name):
    (work / "flowers" / name).write_bytes(b"no picture")
    done = run_in(work, "new", "flowers", "--json")
    choices = json.loads(done.stdout)["choices"]
    done = run_in(work, "data", "--config", "flowers.yaml", "--json")
    count = json.loads(done.stdout)["splits"]["train"]["count"]
    assert choices["data.batch_size"]["why"] == f"of {count} pictures to train on"


def evaluated(run_in: Run, work: Path, split: str) -> int:
    line = ("eval", "--json", "--no-plots", "--device", "numpy", "--split", split)
    return json.loads(run_in(work, *line, status=0).stdout)["count"]


@pytest.mark.parametrize("names", [("test",), ("val",), ("valid", "test")])
def test_parts_for_training_validation_and_testing(run_in, work, names):
    shutil.move(work / "flowers", work / "all" / "train")
    for name in names:
        draw(work / "all" / name, {"aster": 2, "rose": 3, "tulip": 2})
    done = run_in(work, "new", "all", "--output", "mine.yaml", status=0)
    assert ("tulip     11" + "           2" * (names[0] != "test")) in done.stdout
    fifth = "of each class in train, a fifth is held out to test on"
    assert (fifth in done.stdout) == ("test" not in names)
    run_in(work, "train", "--config", "mine.yaml", *QUICK, status=0)
    options = load_config(work / "mine.yaml").config.data.dataset.options()
    named = {name.partition("/")[2] for name in (options["validation"], options["test"]) if name}
    assert named == {*names}
    # At least one of each class is held back where there is no folder, and a fifth for the test.
    held, tested = evaluated(run_in, work, "validation"), evaluated(run_in, work, "test")
    assert (held, tested) == (3 if names == ("test",) else 7, 7 if "test" in names else 6)
    shown = json.loads(run_in(work, "new", "all", "--json", "--output", "j.yaml").stdout)
    there = {"validation": options["validation"], "test": options["test"]}
    assert {part: shown[part] for part in there} == there
    wanted = {part: [2, 3, 2] if name else None for part, name in there.items()}
    assert {part: shown[f"{part}_counts"] for part in there} == wanted


@pytest.mark.parametrize(
    ("counts", "held"),
    [
        ({"a": 2, "b": 2}, 0),
        ({"a": 3, "b": 2}, 1),
        ({"a": 3, "b": 3, "c": 3}, 3),
        ({"a": 40, "b": 20, "c": 3}, 5),
    ],
)
def test_few_pictures_are_validated_on_each_class(run_in, tmp_path, counts, held):
    draw(tmp_path / "few", counts)
    run_in(tmp_path, "new", "few", status=0)
    done = run_in(tmp_path, "data", "--config", "few.yaml", "--json", status=0)
    splits = json.loads(done.stdout)["splits"]
    assert splits["validation"]["count"] == held
    train, validation = (splits[part]["class_counts"] for part in ("train", "validation"))
    # Of three, one is tested on, and of the two that are left one is validated on.
    assert [bool(n) for n in validation] == (np.add(train, validation) > 1).tolist()
    assert min(train) == 1
    text = (tmp_path / "few.yaml").read_text()
    assert ("validate_every_epochs" in text) == bool(held)
    assert (f"# {held} pictures are held back" in text) == bool(held)


def test_pictures_that_cannot_be_read_are_skipped(run_in, work):
    (work / "flowers" / "rose" / "3.png").write_text("not a picture")
    (work / "flowers" / "rose" / "4.png").write_text("")
    draw(work / "flowers" / "aster" / "speck", {"": 1}, (3, 3))
    done = run_in(work, "new", "flowers", status=0)
    assert "unreadable  flowers/rose/3.png: is not a picture" in done.stdout
    assert "unreadable  flowers/rose/4.png: is empty, 0 bytes" in done.stdout
    assert "tiny        a side of less than 8 pixels: aster/speck/0.png; look" in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("rose ")] == [
        ["rose", "10"]
    ]
    assert done.stdout.startswith("pictures    32 of 3 classes")
    done = run_in(work, "train", "--config", "flowers.yaml", *QUICK, status=0)


@pytest.mark.parametrize(("most", "bits"), [(255, 8), (3000, 12), (65535, 16)])
def test_the_depth_of_integer_pixels_is_told(tmp_path, most, bits):
    draw(tmp_path / "set", {"a": 3, "b": 3})
    assert "depth " not in as_text(report(tmp_path / "set", tmp_path / "set.yaml"))
    pixels = np.random.default_rng(0).integers(0, 200, (16, 16)).astype(np.uint16)
    Image.fromarray(pixels).save(tmp_path / "set" / "a" / "0.png")
    pixels[3, 4] = most
    Image.fromarray(pixels).save(tmp_path / "set" / "b" / "0.png")
    found = report(tmp_path / "set", tmp_path / "set.yaml")
    told = f"depth       {bits} bits of integers, as the largest pixel is {most}\n"
    assert told in as_text(found)


@pytest.mark.parametrize("name", ["花 と 'quotes'", "-dashes", "a # comment: {b}", "ünï"])
def test_any_name_that_a_config_can_hold(run_in, tmp_path, name):
    draw(tmp_path / name / "all", {"猫": 3, "собака": 3, "a: b #c": 4})
    folder = f"./{name}/all"
    done = run_in(tmp_path, "new", folder, "--output", f"./{name}.yaml", status=0)
    assert "猫" in done.stdout
    if name.isalnum():
        assert f'train: "{name}/all"' in (tmp_path / f"{name}.yaml").read_text(encoding="utf-8")
    done = run_in(tmp_path, "train", "--config", f"./{name}.yaml", *QUICK, status=0)


def test_a_name_that_no_config_can_hold(run_in, tmp_path):
    draw(tmp_path / "two\nlines", {"a": 3, "b": 3})
    done = run_in(tmp_path, "new", "two\nlines", status=1)
    assert "'two\\nlines': the name has control characters" in done.stderr
    assert not list(tmp_path.glob("*.yaml"))


@pytest.mark.parametrize(
    ("sides", "size", "fit"),
    [
        ([(16, 16)] * 6, (16, 16), "crop"),
        ([(28, 20)] * 6, (28, 20), "crop"),
        ([(200, 300), (201, 300), (100, 152)] * 2, (64, 96), "crop"),
        ([(200, 200), (220, 200), (100, 110)] * 2, (64, 64), "crop"),
        ([(200, 80), (80, 200), (120, 120)] * 2, (64, 64), "resize"),
        ([(5, 6), (6, 5), (7, 7)] * 2, (8, 8), "crop"),
    ],
)
def test_size_and_fit_follow_the_pictures(tmp_path, sides, size, fit):
    for name in "ab":
        for number, each in enumerate(sides):
            paint(tmp_path / "set" / name / f"{number}.png", number, each)
    text = report(tmp_path / "set", tmp_path / "set.yaml").config.text
    config = parse_config(text, "set.yaml")
    options = config.data.dataset.options()
    assert (options["size"], options["fit"]) == (size, fit)
    assert build_network(config, describe_data(config, tmp_path)).parameters()


def test_colours_that_tell_nothing_are_changed(tmp_path):
    hues = np.array([(220, 40, 30), (30, 200, 60), (40, 60, 220)])
    draw = np.random.default_rng(2)
    for number in range(60):
        for folder, hue in (("told", number % 3), ("untold", draw.integers(3))):
            pixels = np.clip(hues[hue] + draw.normal(0, 30, (9, 9, 3)), 0, 255).astype(np.uint8)
            path = tmp_path / folder / "abc"[number % 3] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    for folder, changed in (("told", False), ("untold", True)):
        text = report(tmp_path / folder, tmp_path / "set.yaml").config.text
        config = parse_config(text, "set")
        assert config.data.dataset.options()["mode"] == "rgb"
        assert ("recolour" in [each.type for each in config.data.augment]) == changed, folder


@pytest.mark.parametrize(
    ("few", "many", "weights", "balance"),
    [(5, 7, None, None), (4, 6, "balanced", None), (3, 31, None, True)],
)
def test_classes_of_unequal_size(tmp_path, few, many, weights, balance):
    draw(tmp_path / "set", {"a": few, "b": many}, (8, 8))
    found = report(tmp_path / "set", tmp_path / "set.yaml")
    config = parse_config(found.config.text, "set")
    assert (config.loss.class_weights, config.data.balance) == (weights, balance)
    assert (weights or balance) is None or f"{many / few:.1f} times as many" in as_text(found)


def weights_of(config: str, path: Path) -> None:
    """A file with PyTorch's names, as a hub has it, with what it was trained on beside it."""
    loaded = load_config(config).config
    learned = build_network(loaded, describe_data(loaded)).learned()
    names = their_names([tensor.name for tensor in learned])
    save_file({names[t.name]: np.full(t.shape, 0.1, np.float32) for t in learned}, path)
    said = {"mean": [0.5, 0.4, 0.3], "std": [0.25, 0.2, 0.1], "input_size": [3, 64, 64]}
    path.with_name("config.json").write_text(json.dumps({"pretrained_cfg": said}))


def test_a_config_for_weights_of_a_file(run_in, work):
    (work / "w").mkdir()
    weights_of("resnet18.yaml", work / "w" / "model.safetensors")
    line = ("new", "flowers", "--init-from", "w/model.safetensors", "--output", "w/mine.yaml")
    done = run_in(work, *line, status=0)
    assert "  its weights, but for those of the last layer, which begins anew\n" in done.stdout
    config = load_config(work / "w" / "mine.yaml").config
    options = config.data.dataset.options()
    assert (options["size"], options["mode"], config.data.batch_size) == ((64, 64), "rgb", 2)
    assert (config.data.normalize.mean, config.data.normalize.std) == (
        (0.5, 0.4, 0.3),
        (0.25, 0.2, 0.1),
    )
    new, old = config.optimizer.groups
    assert (new.parameters, new.lr_factor, new.freeze_until_epoch) == (("fc.*",), 1, None)
    assert (old.parameters, old.lr_factor, old.freeze_until_epoch) == (("*",), 0.1, 2)
    assert config.train.epochs == 40
    train = ("train", "--config", "w/mine.yaml", "--device", "cpu", "--set", "run.tune=false")
    other = ("--set", "data.normalize={mean: 0.5}", "--set", "optimizer.groups=null")
    done = run_in(work, *train, "--set", "train={max_steps: 1}", *other, status=0)
    assert "100 of 102 arrays" in done.stdout
    own = "with its own, {mean: [0.5, 0.4, 0.3], std: [0.25, 0.2, 0.1]}, the weights suit better"
    assert f"on pixels of another scale than data.normalize gives; {own}" in done.stderr


def test_a_config_for_weights_of_a_run(run_in, work):
    run_in(work, "new", "flowers", status=0)
    run_in(work, "train", "--config", "flowers.yaml", *QUICK, status=0)
    draw(work / "trees", {"oak": 6, "pine": 6, "willow": 6})
    run_in(work, "new", "trees", "--init-from", "flowers", status=0)
    done = run_in(work, "train", "--config", "trees.yaml", *QUICK[:2], *FEW, status=0)
    assert "new         dense_1.weight (3, 64): init_from.skip\n" in done.stdout
    assert "new         dense_1.bias (3,): init_from.skip\nrun " in done.stdout
    assert done.stderr == ""
    run_in(work, "new", "flowers", "--init-from", "flowers", "--output", "again.yaml", status=0)
    assert load_config(work / "again.yaml").config.init_from.skip is None


def test_weights_of_an_unknown_network(run_in, work):
    save_file({"conv1.weight": np.ones((64, 3, 7, 7), np.float32)}, work / "x.safetensors")
    done = run_in(work, "new", "flowers", "--init-from", "x.safetensors", status=1)
    assert "x.safetensors: has the weights of no network of pictures that is known" in done.stderr
    assert not (work / "flowers.yaml").exists()
