"""``compress``: stages, resumed after a kill to the same bytes, and a file like a checkpoint."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.select import open_backend
from dnnstack.cli.main import main
from dnnstack.configs import parse_config
from dnnstack.datasets import data_root
from dnnstack.optimizers.pruning import magnitude_mask
from dnnstack.optimizers.sharing import cluster, shared_values
from dnnstack.training.compressed.place import name_of
from dnnstack.training.inference.evaluate import evaluate
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.trained import find_trained
from dnnstack.training.records.formats.dnnz import read_compressed
from numpy.typing import NDArray
from PIL import Image

from ..support.stored import beside
from .conftest import TINY

STAGES = beside(__file__, "compress_stages.yaml")
EVERY_KIND = """\
stages:
  - filters: {conv2d_1: 0.5}
    train: {epochs: 2, log_every: 5}
  - prune: {sensitivity: {"*.weight": 1}}
  - share: {bits: {"*.weight": 3}, start: random}
  - quantize: {}
"""
CHECKPOINT = "step-26.safetensors"
COMPRESS = ("compress", "--config", "small.yaml", "--device", "numpy")


@pytest.fixture
def folder(tmp_path, monkeypatch, cache):
    """With a trained network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    Path("tiny.yaml").write_text(TINY)
    Path("small.yaml").write_text(STAGES)
    assert main(["train", "--config", "tiny.yaml", "--device", "numpy", "-q"]) == 0
    return tmp_path


@pytest.mark.usefixtures("rendered")
def test_a_network_becomes_a_small_file(folder, capsys):
    capsys.readouterr()
    assert main([*COMPRESS]) == 0
    out = capsys.readouterr().out
    assert out.startswith("stages      1-prune 2 epochs, 2-prune 2 epochs, 3-share 1 epoch\n")
    path = Path("runs/tiny-compressed/tiny.dnnz")
    size = path.stat().st_size
    found = read_compressed(path)
    plain = 4 * sum(cost.size for cost in found.costs.values())
    assert (
        f"\n{plain:,} bytes as float32, {size:,} in the file: {plain / size:.1f} times smaller\n"
        in out
    )
    assert re.search(r"^dense_1\.weight +1,440 +20\.0% +3 +\d\.\d +\d+ +\d\.\d", out, re.MULTILINE)
    assert "\npublished: Somebody 1999; 40 times smaller, 1.58% test error\n" in out
    assert re.search(r"^  published +8\.0% +6 +4\.4 +5 +3\.7 +2\.32%", out, re.MULTILINE)
    for name in ("before", "1-prune", "2-prune", "3-share", "the file"):
        assert re.search(rf"^{name} +\d+\.\d% +\d+\.\d\d%", out, re.MULTILINE), name
    for name, array in found.checkpoint.arrays.items():
        if name.endswith("weight"):
            assert np.count_nonzero(array) == round(0.2 * array.size)
            assert len(np.unique(array[array != 0])) <= 8

    # The same numbers as those of the last stage, so the same answers.
    answers = []
    for name in (path, Path("runs/tiny-compressed/3-share/checkpoints").glob("*.safetensors")):
        given = name if isinstance(name, Path) else max(name, key=lambda p: p.stat().st_mtime_ns)
        words = ["eval", "--checkpoint", str(given), "--json", "--no-plots", "--device", "numpy"]
        assert main(words) == 0
        answers.append(json.loads(capsys.readouterr().out))
    for answer in answers:
        del answer["checkpoint"]
    assert answers[0] == answers[1]
    # A network of its own, which is given to others without the folders of this machine.
    own = parse_config(found.checkpoint.provenance.config, "its config")
    assert (own.name, own.init_from, own.run.dir) == ("tiny", None, "runs")

    # A weight of the convolution is used for each of the pixels, one of the dense layer once.
    words = ["summary", "--checkpoint", str(path)]
    assert main([*words, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["parameters"] == sum(cost.size for cost in found.costs.values())
    small = shown["compressed"]
    pixels = np.prod(shown["layers"][1]["output_shape"][1:])
    for name, uses in (("conv2d_1.weight", pixels), ("dense_1.weight", 1)):
        cost = small["arrays"][name]
        assert cost["multiply_adds"] == uses * cost["size"]
        assert cost["multiply_adds_left"] == uses * cost["kept"]
    forward = shown["forward_flops_per_picture"]
    assert 0.8 * forward < 2 * small["multiply_adds"] <= forward
    assert 0 < small["load_seconds"] < 100
    assert main(words) == 0
    assert f"{small['multiply_adds_left']:,} with those that are not 0" in capsys.readouterr().out
    plain = "runs/tiny/checkpoints/" + sorted(os.listdir("runs/tiny/checkpoints"))[-1]
    assert main(["summary", "--checkpoint", plain.replace(".json", ".safetensors"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert "compressed" not in again
    assert again["layers"] == shown["layers"]
    assert main([*words, "--config", "tiny.yaml"]) == 2
    assert "--checkpoint has a config" in capsys.readouterr().err

    Image.fromarray(np.eye(28, dtype=np.uint8) * 255).save("line.png")
    words = ["predict", "--checkpoint", str(path), "--device", "numpy", "--json", "line.png"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["path"] == "line.png"

    for name in ("weights.png", "mask.png"):
        assert f"drawn       {path.with_name(name)}\n" in out
        with Image.open(path.with_name(name)) as picture:
            assert picture.width > 200

    assert main(["weights", str(path), "--save", "out.safetensors"]) == 0
    begun = ["train", "--config", "tiny.yaml", "--init-from", str(path), "--device", "numpy", "-q"]
    assert main(begun) == 0
    assert main(["train", "--config", "tiny.yaml", "--resume", str(path)]) == 1
    assert "--init-from" in capsys.readouterr().err

    assert main([*COMPRESS, "--json", "--set", "stages.2.share.start=density", "-q"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["path"] == "runs/tiny-2-compressed/tiny-2.dnnz"
    assert [stage["name"] for stage in report["stages"]] == ["1-prune", "2-prune", "3-share"]


def test_a_network_of_own_pictures(folder, capsys):
    """They are found from the folder of the config, whatever ``DNNSTACK_DATA`` names."""
    Path("data").mkdir()
    for split, label, name in product(("train", "test"), ("dark", "light"), "abcd"):
        place = Path("photos", split, label)
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), 50 if label == "dark" else 200).save(place / f"{name}.png")
    pictures = "{image_folder: {train: photos/train, test: photos/test, size: 28, mode: grey}}"
    text = TINY.replace("{strokes: {train_count: 480, test_count: 100}}", pictures)
    for old, new in ((": 64", ": 0"), ("batch_size: 32", "batch_size: 4"), (": 10}", ": 2}")):
        text = text.replace(old, new)
    Path("own.yaml").write_text(text)
    assert main(["train", "--config", "own.yaml", "--device", "numpy", "-q"]) == 0
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DNNSTACK_DATA", "data")
        assert main([*COMPRESS, "own", "--json", "-q"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["path"] == "runs/own-compressed/own.dnnz"
        words = ["eval", "--no-plots", "--device", "numpy", "--json"]
        assert main([*words, "--checkpoint", told["path"]]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["accuracy"] == told["after"]["test"]["accuracy"]
        # Elsewhere it may be anybody's file.
        shutil.copy(told["path"], "own.dnnz")
        assert main([*words, "--checkpoint", "own.dnnz"]) == 1
        assert "photos/train" in capsys.readouterr().err


def test_filters_that_are_left_out_leave_an_ordinary_network(folder, capsys):
    Path("few.yaml").write_text("stages: [{filters: {conv2d_1: 0.5}, train: {epochs: 1}}]")
    capsys.readouterr()
    words = ["compress", "--config", "few.yaml", "--device", "numpy"]
    assert main([*words, "--json"]) == 0
    small = json.loads(capsys.readouterr().out)
    shapes = {name: cost["size"] for name, cost in small["arrays"].items()}
    assert shapes == {
        "conv2d_1.weight": 2 * 25,
        "conv2d_1.bias": 2,
        "dense_1.weight": 10 * 72,
        "dense_1.bias": 10,
    }
    assert small["float32_bytes"] == 4 * (4 * 25 + 4 + 10 * 144 + 10)
    assert 2 * small["multiply_adds_left"] == small["multiply_adds"]
    left = 2 * 25 + 2 + 10 * 72 + 10
    assert small["stages"][0]["kept"] == pytest.approx(left / (4 * 25 + 4 + 10 * 144 + 10), 1e-6)
    # What the stage began with is in its checkpoint.
    assert list(Path("runs/tiny-compressed").glob("*.safetensors")) == []
    assert main(["report", "runs/tiny-compressed"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["the", "file", "782", "50.3%"] in [row[:4] for row in rows]
    assert ["the", "file", "50.3%"] in [row[:3] for row in rows]
    assert ["1-filters", "50.3%"] in [row[:2] for row in rows]
    # Nothing of the last layer, which is the network's own.
    assert main([*words, "--set", "name=again"]) == 0
    assert "last layer" not in capsys.readouterr().err
    run = "runs/tiny-compressed/1-filters"
    assert "filters: 2" in Path(run, "config.yaml").read_text()
    assert main(["eval", "--run", run, "--no-plots", "--device", "numpy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] == small["after"]["test"]["accuracy"]

    def said(filters: str) -> str:
        assert main([*words, "--set", f"stages.0.filters={filters}"]) == 1
        return capsys.readouterr().err

    assert "stages.0: filters: no layer matches 'relu_1'" in said("{relu_1: 0.5}")
    assert "'dense_1' is the last layer with weights" in said("{'*': 0.5}")
    assert "'a' has 2; a share is above 0" in said("{a: 2}")


def test_a_network_of_8_bits_needs_no_training(folder, capsys):
    capsys.readouterr()
    words = ["compress", "--config", "int8.yaml", "--device", "numpy"]
    assert main([*words, "--json", "-q"]) == 0
    small = json.loads(capsys.readouterr().out)
    assert set(small["quantization"]) == {"conv2d_1", "dense_1"}
    assert small["stages"] == []
    assert abs(small["after"]["test"]["accuracy"] - small["before"]["test"]["accuracy"]) < 0.05
    assert small["after"]["test"]["loss"] != small["before"]["test"]["loss"]
    path = "runs/tiny-compressed/tiny.dnnz"
    assert main(["eval", "--checkpoint", path, "--no-plots", "--device", "numpy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["loss"] == small["after"]["test"]["loss"]
    assert main(["summary", "--checkpoint", path]) == 0
    said = "8-bit integers in conv2d_1, dense_1; all else in float32\n"
    text = capsys.readouterr().out
    assert said in text
    # Nothing was pruned, though some are 0 by rounding.
    assert "a pruned weight" not in text
    assert re.search(r"^array +weights +not 0 +bits", text, re.MULTILINE)
    assert main(["report", path]) == 0
    assert re.search(r"^the file +100\.0%", capsys.readouterr().out, re.MULTILINE)
    assert main(["weights", path]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^dense_1\.bias +10 +F32\ndense_1\.weight +10x144 +I8$", out, re.MULTILINE)
    assert "\nI8: integers, which a scale of each filter or unit turns into float32\n" in out

    quantize = "stages.0.quantize."
    assert main([*words, "--set", f"{quantize}float32=[conv2d_1]", "--json", "-q"]) == 0
    part = json.loads(capsys.readouterr().out)
    assert set(part["quantization"]) == {"dense_1"}
    assert part["arrays"]["conv2d_1.weight"]["number_bits"] == 32

    def told(*words_: str) -> str:
        assert main([*words, *words_]) == 1
        return capsys.readouterr().err

    assert "stages.0: quantize.float32: no layer matches 'a'" in told(
        "--set", f"{quantize}float32=[a]"
    )
    assert "quantize and train; quantize is a stage by itself" in told(
        "--set", "stages.0.train.epochs=1"
    )
    Path("first.yaml").write_text("stages: [{quantize: {}}, {train: {epochs: 1}}]")
    words = ["compress", "--config", "first.yaml", "--device", "numpy"]
    assert "stage 0 has quantize, which only the last one can have" in told()


@pytest.mark.usefixtures("rendered")
def test_sensitivity(folder, capsys):
    """Each point is what an evaluation of a network with these weights gives."""
    capsys.readouterr()
    words = ["compress", "--sensitivity", "--device", "numpy"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert json.loads(Path("runs/tiny/sensitivity.json").read_text()) == found
    assert Path("runs/tiny/sensitivity.png").read_bytes().startswith(b"\x89PNG")
    before = Path("runs/tiny/sensitivity.png").read_bytes()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert re.search(r"^dense_1\.weight +1,440 +(\d+%|all) ", out, re.MULTILINE)
    assert Path("runs/tiny/sensitivity.png").read_bytes() == before

    trained = find_trained("tiny", None, Path("runs"), lambda text: None)
    backend = open_backend("numpy")
    images, index = load_part(trained, "validation", data_root(None, None))

    def checked(point: dict[str, float], weights: NDArray[np.float32]) -> None:
        arrays = {**trained.checkpoint.arrays, "dense_1.weight": weights}
        changed = replace(trained, checkpoint=replace(trained.checkpoint, arrays=arrays))
        want = evaluate(changed, backend, images, index, "validation")
        assert (point["accuracy"], point["loss"]) == (want.accuracy, want.loss)

    values = trained.checkpoint.arrays["dense_1.weight"]
    curves = found["parameters"]["dense_1.weight"]
    shares, bits = [p["share"] for p in curves["kept"]], [p["bits"] for p in curves["bits"]]
    assert (len(shares), shares, bits) == (12, sorted({*shares})[::-1], [*range(8, 0, -1)])
    kept = next(point for point in curves["kept"] if point["share"] == 0.1)
    checked(kept, values * magnitude_mask(values, 0.1))
    few = next(point for point in curves["bits"] if point["bits"] == 2)
    checked(few, shared_values(*cluster(values, 4)))
    assert curves["size"] == values.size

    whole = ["train", "--config", "tiny.yaml", "--set", "data.validation=0", "-q"]
    assert main([*whole, "--device", "numpy", "--set", "name=whole"]) == 0
    assert main([*words, "whole"]) == 1
    assert "was trained without validation samples" in capsys.readouterr().err
    assert main([*words, "--config", "small.yaml"]) == 2
    assert "--sensitivity needs no stages" in capsys.readouterr().err
    assert main(["compress"]) == 2
    assert "Missing option '--config', a file with stages" in capsys.readouterr().err


def test_a_kill_loses_nothing(folder, command, environment, run_in):
    """Killed in the middle of every training, each time resumed: the same bytes."""
    Path("small.yaml").write_text(EVERY_KIND)
    run_in(folder, *COMPRESS, "--threads", "1", status=0)
    want = Path("runs/tiny-compressed/tiny.dnnz").read_bytes()
    words = [*COMPRESS, "--threads", "1"]
    place = Path("runs/tiny-compressed-2")
    for stage in ("1-filters", "2-prune", "3-share"):
        process = subprocess.Popen(
            [*command, *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL
        )
        log, until = place / stage / "log.jsonl", time.monotonic() + 120
        while not (log.exists() and b'"train"' in log.read_bytes()):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (place / "tiny.dnnz").exists()
        words = [*COMPRESS, "--threads", "1", "--resume", str(place)]
    run_in(folder, *words, status=0)
    assert (place / "tiny.dnnz").read_bytes() == want
    # Each stage went on where it was.
    left = sorted(path.name for path in Path("runs/tiny-compressed").iterdir())
    assert sorted(path.name for path in place.iterdir()) == left


def test_a_stage_that_goes_on_warns_of_a_damaged_checkpoint(folder, capsys):
    assert main([*COMPRESS, "-q"]) == 0
    place = Path("runs/tiny-compressed")
    record = json.loads((place / "compress.json").read_text())
    (place / "compress.json").write_text(json.dumps({**record, "stages": []}))
    damaged = place / "1-prune" / "checkpoints" / CHECKPOINT
    damaged.write_bytes(b"")
    capsys.readouterr()
    assert main([*COMPRESS, "-q", "--resume", str(place)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dnnstack: warning: {damaged}: is damaged")


def test_mistakes(folder, capsys):
    capsys.readouterr()

    def said(*words: str) -> str:
        assert main([*COMPRESS, *words]) in (1, 2)
        return capsys.readouterr().err

    assert "'x' is not a key" in said("--set", "stages.0.x.y=1")
    assert "stages.0.prune.keep" in said("--set", "stages.0.prune.keep={a: 2}")
    assert "'train' is not a key; each of 'stages' has its own, the first one 'stages.0.train'" in (
        said("--set", "train.epochs=1")
    )
    shipped = "int8.yaml, lenet-300-100.yaml, lenet.yaml"
    assert f"did you mean 'lenet.yaml'? (configs in the package: {shipped})" in said(
        "--config", "lenett.yaml"
    )
    assert "stages.1: prune.keep: no parameter matches 'a'" in said(
        "--set", "stages.1.prune.keep={a: 0.2}"
    )
    assert "cannot be used together" in said("tiny", "--checkpoint", "x")
    assert "no such run" in said("nothing")
    for name in ("runs/tiny", "runs/none", "small.yaml"):
        assert f"{name}: is not the folder of a compression" in said("--resume", name)
    place = Path("runs/half")
    place.mkdir()
    (place / "compress.json").write_text('{"source": 5}')
    assert "is damaged" in said("--resume", str(place))
    assert "; in runs there are: half\n" in said("--resume", "runs/none")
    assert not list(Path("runs").glob("tiny-compressed*"))


def test_the_folder_has_the_name_of_the_run(folder):
    """Not that of its config, which other runs have too."""
    other = Path("runs/tiny-seeds/seed-2")
    for name, copy in (("tiny-2", Path("runs/tiny-2")), ("tiny-seeds-seed-2", other)):
        shutil.copytree("runs/tiny", copy)
        Path("runs/tiny-seeds/group.json").touch() if copy is other else None
        trained = find_trained(None, copy / "checkpoints" / CHECKPOINT, Path("runs"), print)
        assert name_of(trained) == name
    Path("latest").symlink_to("runs/tiny-2")
    again = find_trained(None, Path("latest/checkpoints") / CHECKPOINT, Path("runs"), print)
    assert name_of(again) == "tiny-2"
    shutil.copy(Path("runs/tiny/checkpoints") / CHECKPOINT, "alone.safetensors")
    assert name_of(find_trained(None, Path("alone.safetensors"), Path("runs"), print)) == "tiny"
