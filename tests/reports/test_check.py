"""Networks that are broken on purpose get their verdict; a sound one gets none but ok."""

from __future__ import annotations

import json
from dataclasses import replace

import dnnstack
import numpy as np
import pytest
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.cli.main import main
from dnnstack.common.errors import UsageError
from dnnstack.graph.ops import BiasGrad, Conv2d, Reshape
from dnnstack.training.session import Session
from PIL import Image

from ..support.opened import NAMES, opened

DATA = {"dataset": {"strokes": {"train_count": 200, "test_count": 10}}, "validation": 20}
NET = {
    "name": "small",
    "seed": 3,
    "data": {**DATA, "batch_size": 32},
    "layers": [
        {"conv2d": {"filters": 6, "kernel_size": 5, "stride": 2}},
        "relu",
        {"max_pool2d": {}},
        "flatten",
        {"dense": {"units": 24}},
        "sigmoid",
        {"dense": {"units": 10}},
        "softmax",
    ],
    "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9},
    "train": {"max_steps": 40},
}
TESTS = ["inputs", "gradients", "device", "samples", "start", "dead units", "saturation"]
TESTS += ["updates", "one batch", "input", "resume"]


def _verdicts(*overrides, config=NET, device="numpy"):
    found = dnnstack.check(config, overrides=overrides, device=device, steps=60)
    return {each.test: each for each in found.verdicts}


def _told(verdicts):
    """What is neither ok nor skipped."""
    return {test: v.verdict for test, v in verdicts.items() if v.verdict in ("look", "wrong")}


@pytest.mark.parametrize("config", [NET, "lenet.yaml"])
@pytest.mark.parametrize("device", NAMES)
def test_a_sound_network_has_nothing_to_look_at(config, device):
    opened(device)
    data = [f"data.{key}={json.dumps(value)}" for key, value in DATA.items()]
    found = _verdicts(*data, config=config, device=device)
    assert (list(found), _told(found)) == (TESTS, {})
    assert found["saturation"].verdict == ("skipped" if config == "lenet.yaml" else "ok")
    assert found["start"].figures["chance"] == pytest.approx(np.log(10))
    assert 0 < found["gradients"].figures["error"] < 1e-6
    # A GPU may round operands to the 10 bits of TF32.
    assert 0 < found["device"].figures["error"] < (1e-2 if device == "cuda" else 1e-5)
    assert found["samples"].figures == {"moved": 0}
    begun, rounding = found["start"].figures["loss"], 1e-3 if device == "cuda" else 1e-6
    assert found["one batch"].figures["first"] == pytest.approx(begun, rel=rounding)


DEAD = "layers.conv2d_1.bias_initializer={constant: {value: -50}}"
# What is wrong, and words of the text or the advice of the first of these.
BROKEN = [
    (
        [DEAD],
        {"dead units": "wrong", "one batch": "look"},
        "of 'relu_1', 100% of the units pass no",
    ),
    (
        ["layers.dense_1.kernel_initializer={normal: {std: 30}}"],
        {"saturation": "wrong"},
        "of 'sigmoid_1', 9",
    ),
    (
        ["optimizer.lr=200"],
        {"updates": "wrong", "one batch": "wrong"},
        "a smaller optimizer.lr",
    ),
    (["optimizer.lr=1e-6"], {"updates": "look", "one batch": "wrong"}, "a larger optimizer.lr"),
    (
        ["layers.dense_2.kernel_initializer={normal: {std: 9}}"],
        {"start": "wrong"},
        "; that of equal scores is 2.303",
    ),
    (["layers.dense_2.kernel_initializer={normal: {std: 2}}"], {"start": "look"}, "loss "),
    (["data.normalize={mean: 0, std: 1e-6}"], {"inputs": "wrong"}, "data.normalize"),
    (["data.normalize={mean: 0, std: 1e-2}"], {"inputs": "look"}, "data.normalize"),
]


@pytest.mark.parametrize(("overrides", "wanted", "words"), BROKEN)
def test_a_broken_network_gets_its_verdict(overrides, wanted, words):
    found = _verdicts(*overrides)
    assert _told(found) | wanted == _told(found)
    first = found[next(iter(wanted))]
    assert words in first.text + first.advice
    assert {"gradients", "device", "samples", "resume"}.isdisjoint(_told(found))


def _with_kernel(monkeypatch, kind, change):
    sound = KERNELS[kind]
    changed = replace(sound, compute=lambda op, *given: change(sound.compute(op, *given)))
    monkeypatch.setitem(KERNELS, kind, changed)
    return changed


def test_a_wrong_backward_is_found_and_named(monkeypatch):
    _with_kernel(monkeypatch, BiasGrad, lambda db: 1.01 * db)
    found = _verdicts()["gradients"]
    assert (found.verdict, ".bias'" in found.advice) == ("wrong", True)


def test_a_wrong_call_of_the_device_is_found_and_named(monkeypatch):
    changed = _with_kernel(monkeypatch, Conv2d, lambda y: 1.001 * y)
    monkeypatch.setitem(KERNELS, Conv2d, changed)
    found = _verdicts(device="cpu")["device"]
    assert (found.verdict, "Conv2d(conv2d_1) is wrong on onednn" in found.advice) == ("wrong", True)
    assert found.figures["error"] == pytest.approx(1e-3, rel=0.1)


def test_a_layer_that_mixes_samples_is_found(monkeypatch):
    _with_kernel(monkeypatch, Reshape, lambda y: np.roll(y, 1, 0))
    assert _verdicts()["samples"].verdict == "wrong"


def test_a_state_that_is_not_restored_is_found_and_named(monkeypatch):
    sound = Session.put

    def put(self, snapshot):
        kept = {n: 0 * a if n.startswith("momentum/") else a for n, a in snapshot.arrays.items()}
        sound(self, replace(snapshot, arrays=kept))

    monkeypatch.setattr(Session, "put", put)
    found = _verdicts()["resume"]
    assert (found.verdict, found.figures["differ"] > 8) == ("wrong", True)
    assert found.text.endswith("'conv2d_1.weight' is the first that differs")


def test_what_does_not_apply_is_skipped():
    batch_norm = [*NET["layers"][:1], "batch_norm", *NET["layers"][1:]]
    found = _verdicts(config={**NET, "layers": batch_norm})
    assert (found["samples"].verdict, _told(found)) == ("skipped", {})
    found = _verdicts(config="perceptron-nand.yaml")
    skipped = {test for test, v in found.items() if v.verdict == "skipped"}
    assert skipped == {"gradients", "start", "dead units", "saturation", "updates"}


def test_the_command_tells_draws_and_ends_with_1_if_something_is_wrong(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(json.dumps(NET), encoding="utf-8")
    line = ["check", "--config", "small.yaml", "--device", "numpy", "--steps", "99"]
    assert main(line) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "A check of small.yaml on numpy"
    assert "to 0." in next(row for row in told if row.startswith("one batch"))
    assert [row[:11].strip() for row in told[1:-1]] == TESTS
    assert told[-1] == "drawn     small-check.png"
    with Image.open("small-check.png") as picture:
        assert np.asarray(picture).std() > 20
    assert (
        main(
            [*line, "--set", DEAD, "--set", "optimizer.lr=1e38", "--json", "--picture", "seen.png"]
        )
        == 1
    )
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert told["verdicts"][8]["figures"]["last"] is None
    assert told["backend"] == "numpy"
    assert {"test", "verdict", "figures", "text", "advice"} == told["verdicts"][0].keys()
    assert main([*line, "--picture", "seen.gif"]) == 2
    assert main(["check"]) == 2
    assert "name a config, or a run, and not both" in capsys.readouterr().err
    dnnstack.train("small.yaml", device="numpy")
    assert main(["check", "small", "--device", "numpy"]) == 0
    told = capsys.readouterr().out
    assert "drawn     runs/small/check.png" in told
    before = float(told.partition("start       ok       loss ")[2].partition(" ")[0])
    assert before < 1.5
    with pytest.raises(UsageError, match="not both"):
        dnnstack.check("small.yaml", run="small")
    assert dnnstack.check(run="small", device="numpy", steps=5).config.endswith("config.yaml")


def test_what_the_network_sees_is_the_first_batch_augmented():
    given = {"augment": ["random_flip"], "normalize": {"mean": 0.3, "std": 0.2}}
    plain = dnnstack.check(NET, device="numpy", steps=1).seen
    found = dnnstack.check({**NET, "data": {**NET["data"], **given}}, device="numpy", steps=1).seen
    assert [name for name, _ in found] == [name for name, _ in plain]
    assert sum(len(pixels) for _, pixels in plain) == 16
    same = [
        (a == b).all() or (a == b[..., ::-1]).all()
        for (_, one), (_, other) in zip(plain, found, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    assert all(same)
    flipped = [(a != b).any() for (_, a), (_, b) in zip(plain, found, strict=True)]
    assert any(flipped)


def test_mixed_pictures_are_shown_by_their_larger_share():
    found = dnnstack.check(
        {**NET, "data": {**NET["data"], "augment": ["mixup"]}}, device="numpy", steps=1
    )
    assert {each.test: each.verdict for each in found.verdicts}["samples"] == "skipped"
    assert sum(len(pixels) for _, pixels in found.seen) == 16
    assert len(found.seen) > 1
