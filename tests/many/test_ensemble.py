"""Ensembles: what they answer, the weights of their members, and what they gain."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dnnstack
import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError, DatasetError, DnnstackError, UsageError, Warned
from dnnstack.configs import RunConfig
from dnnstack.many.answers import answers
from dnnstack.many.ensemble import Mixture, best_weights, check_members, check_preparation, combined
from dnnstack.many.group import create_group
from dnnstack.many.members import find_members
from dnnstack.reports.ensemble_text import text_of
from dnnstack.training.records.group import Group
from dnnstack.training.trainer import train

Tiny = Callable[..., RunConfig]
# Three networks, three samples, three classes.
MEMBERS = [
    np.array([[0.6, 0.3, 0.1], [0.2, 0.4, 0.4], [0.9, 0.1, 0.0]]),
    np.array([[0.3, 0.5, 0.2], [0.5, 0.3, 0.2], [0.2, 0.7, 0.1]]),
    np.array([[0.0, 0.6, 0.4], [0.2, 0.1, 0.7], [0.1, 0.2, 0.7]]),
]

DEEP = SimpleNamespace(provenance=SimpleNamespace(pixel_bits=16, columns=None))


def test_averages_of_probabilities_and_of_logits():
    scores, found = combined(MEMBERS, "probabilities", (0.5, 0.25, 0.25))
    np.testing.assert_allclose(found[0], [0.375, 0.425, 0.2])
    np.testing.assert_array_equal(scores, found)
    logits = [np.random.default_rng(seed).normal(0, 3, (5, 4)) for seed in range(3)]
    shares = [np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in logits]
    weights = (0.2, 0.5, 0.3)
    mean = np.exp(sum(w * x for w, x in zip(weights, logits, strict=True)))
    found = combined(shares, "logits", weights)[1]
    np.testing.assert_allclose(found, mean / mean.sum(1, keepdims=True))
    # The logarithm of a probability of 0 is that of the least one.
    assert np.isfinite(combined(MEMBERS, "logits", (1 / 3,) * 3)[1]).all()
    with pytest.raises(UsageError, match="no probabilities"):
        combined([*MEMBERS[:1], MEMBERS[0] - 0.5], "logits", (0.5, 0.5))


def test_votes_and_what_decides_a_tie():
    scores, shares = combined(MEMBERS, "votes", (1 / 3,) * 3)
    np.testing.assert_allclose(shares, [[1 / 3, 2 / 3, 0], [1 / 3] * 3, [1 / 3] * 3])
    # Means of the second sample: 0.3, 0.27, 0.43; of the third: 0.4, 0.33, 0.27.
    assert scores.argmax(1).tolist() == [1, 2, 0]
    mean = np.stack(MEMBERS).mean(0)
    np.testing.assert_allclose(scores, [[1, 2, 0], [1, 1, 1], [1, 1, 1]] + mean / 2)
    # Two votes are more than one, however sure that one is, and outputs of any sign are bounded.
    sure = np.array([[-3.0, 9.0, 0.0]])
    unsure = np.array([[0.4, 0.3, 0.3]])
    scores, shares = combined([unsure, sure, unsure], "votes", (1 / 3,) * 3)
    np.testing.assert_allclose(shares, [[2 / 3, 1 / 3, 0]])
    np.testing.assert_allclose(scores, [[2 + 0.8 / 6, 1 + 1.6 / 6, 0.6 / 6]])
    assert combined([unsure] * 5, "votes", (0.2,) * 5)[0].argmax(1).tolist() == [0]


def test_members_are_compared_with_the_first():
    def member(name: str, shape: tuple[int, ...], *classes: str) -> Any:
        kind = SimpleNamespace(kind="numbers" if name == "n" else "class")
        return SimpleNamespace(
            path=name, input_shape=shape, classes=classes, checkpoint=DEEP, data=kind
        )

    first = member("a", (1, 8, 8), "x", "y")
    check_members([first, first, member("b", (1, 8, 8), "x", "y")])
    with pytest.raises(CheckpointError, match="n: answers with numbers, but a with classes"):
        check_members([first, member("n", (1, 8, 8), "x", "y")])
    check_members([first, member("b", (1, 8, 8), "y", "x")])
    for other, said in (
        (member("b", (1, 8, 9), "x", "y"), "b: takes samples 1x8x9, but a takes 1x8x8; "),
        (member("b", (1, 8, 8), "x", "z"), "b: knows other classes than a; networks that are"),
        (member("b", (1, 8, 8), "x"), "b: knows other classes than a; networks that are"),
    ):
        for members in ([first, other], [first, first, other], [first, other, first]):
            with pytest.raises(CheckpointError, match=said):
                check_members(members)


def test_files_of_pictures_are_prepared_alike_for_all():
    def member(kind: str, fit: str = "crop", classes: tuple[str, ...] = ("x",)) -> Any:
        dataset = SimpleNamespace(type=kind, options=lambda: {"fit": fit, "draft": fit == "draft"})
        config = SimpleNamespace(data=SimpleNamespace(dataset=dataset))
        named = {"path": f"{kind}, {fit}", "classes": classes, "checkpoint": DEEP}
        shape = SimpleNamespace(takes_pictures=kind != "table", input_shape=(3, 8, 8))
        return SimpleNamespace(config=config, **vars(shape), **named)

    digits = tuple("0123456789")
    pairs = [
        (member("image_folder"), member("image_folder", "resize")),
        (member("image_folder", "resize"), member("cifar10")),
        (member("image_folder"), member("image_folder", "draft")),
        (member("mnist", classes=digits), member("cifar10")),
        (member("table"), member("image_folder")),
    ]
    for one, other in pairs:
        check_preparation([one, one])
        check_preparation([other, other])
        for members in ([one, other], [other, one]):
            with pytest.raises(CheckpointError, match="prepared in another way"):
                check_preparation([members[0], *members])


def test_weights_are_those_of_the_greatest_likelihood():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 3, 60)
    members = [rng.dirichlet((1, 1, 1), 60) for _ in range(2)]
    members[0][np.arange(60), labels] += 0.8
    members[0] /= members[0].sum(1, keepdims=True)
    found = best_weights(members, labels)
    grid = np.linspace(0, 1, 2001)
    own = [p[np.arange(60), labels] for p in members]
    likelihood = [np.log(w * own[0] + (1 - w) * own[1]).sum() for w in grid]
    assert 0.5 < found[0] < 1
    assert found[0] == pytest.approx(grid[int(np.argmax(likelihood))], abs=2e-3)
    assert sum(found) == pytest.approx(1)


@pytest.mark.parametrize(
    ("combine", "weights", "message"),
    [
        ("votes", [1, 1], "votes count equally"),
        ("logits", [1], r"expected 2 numbers, one for each network \(got 1\)"),
        ("logits", [1, -1], "at least 0"),
        ("logits", [0, 0], "not all of them 0"),
        ("logits", [float("nan"), 1], "at least 0"),
    ],
)
def test_weights_that_are_none(combine, weights, message):
    with pytest.raises(UsageError, match=message):
        Mixture.of(2, combine, weights)


@pytest.fixture
def runs(tiny, reference, tmp_path):
    """Two runs with the same data and split, and one that has other validation samples."""
    for change in ("optimizer.lr=0.05", "optimizer.lr=0.02", "seed=8"):
        train(tiny("run.device=numpy", "train.max_steps=20", change), reference, tmp_path)
    return tmp_path / "runs"


def test_an_ensemble_of_runs(runs, reference):
    with dnnstack.load_ensemble(["tiny", "tiny-2"], device="numpy", runs_dir=runs) as model:
        found = model.evaluate()
        images, index = model.load_part("test")
        alone = [answers(each, reference, images, index, "test") for each in model.members]
        mean = (alone[0].probabilities.astype(float) + alone[1].probabilities) / 2
        labels = images.labels
        right = mean.argmax(1) == labels
        assert found.correct == right.sum()
        assert found.loss == pytest.approx(-np.log(mean[np.arange(20), labels]).mean())
        first = alone[0].evaluation
        for key in ("checkpoint", "dataset", "part", "classes", "tta", "tta_share"):
            assert getattr(found, key) == getattr(first, key), key
        places = (mean > mean[np.arange(20), labels][:, None]).sum(1)
        assert found.top_k == {k: int((places < k).sum()) for k in first.top_k}
        wrong = {each.index for each in found.worst}
        assert wrong <= {*np.flatnonzero(~right).tolist()}
        assert len(wrong) == min(len(first.worst) or 10, int((~right).sum()))
        members = found.to_json()["ensemble"]["members"]
        assert [each["correct"] for each in members] == [each.right.sum() for each in alone]
        best = max(each.right.sum() for each in alone)
        gains = [found.to_json()["ensemble"][f"gain_over_{key}"] for key in ("best", "mean")]
        assert gains[0]["difference"] == pytest.approx((right.sum() - best) / 20)
        each = sum(each.right.sum() for each in alone) / 2
        assert gains[1]["difference"] == pytest.approx((right.sum() - each) / 20)
        assert all(low <= high for low, high in (gain["interval"] for gain in gains))
        np.testing.assert_allclose(model.predict_proba(images.images), mean, rtol=1e-4)
        model.fit_weights(tta="mirror")
        assert sum(model.weights) == pytest.approx(1)
        assert model.weights[0] != model.weights[1]
        weighted = model.evaluate(tta="mirror")
        assert (weighted.tta, weighted.weighted) == ("mirror", True)
        assert weighted.weights == tuple(model.weights)
        text = text_of(weighted)
        assert "an ensemble of 2 networks" in text
        assert "tta       mirror: scores averaged over 2 views" in text
        assert max(map(len, text.splitlines())) <= 80


def test_snapshots_of_a_run_are_an_ensemble(tiny, reference, tmp_path):
    cyclic = "schedule={type: cosine_restarts, length: 6}"
    saving = "checkpoint={every_steps: 5, keep: 1, snapshots: true}"
    config = tiny("run.device=numpy", "train.max_steps=20", cyclic, saving)
    train(config, reference, tmp_path)
    runs = tmp_path / "runs"
    notes: list[str] = []
    members = find_members(["tiny"], runs, notes.append)
    assert [member.checkpoint.state.step for member in members] == [6, 12, 18]
    assert notes == [f"using 3 snapshots of {runs / 'tiny'}"]
    (runs / "tiny" / "checkpoints" / "step-12.json").unlink()
    two = find_members([str(runs / "tiny")], runs, notes.append)
    assert [member.checkpoint.state.step for member in two] == [6, 18]
    file = str(members[2].path)
    with pytest.raises(UsageError, match=r"step-18\.safetensors is named twice"):
        find_members(["tiny", file], runs, notes.append)


def test_an_older_network_of_a_group_is_warned_of(tiny, reference, tmp_path):
    runs = tmp_path / "runs"
    group = create_group(runs, "tiny-seeds", Group("seeds", ""))
    for seed in (1, 2):
        saving = ("checkpoint.every_steps=2", "train.max_steps=4", f"run.dir={group}")
        train(tiny("run.device=numpy", f"seed={seed}", *saving), reference, tmp_path)
    damaged = group / "tiny-2" / "checkpoints" / "step-4.safetensors"
    damaged.write_bytes(b"")
    notes: list[str] = []
    find_members(["tiny-seeds"], runs, notes.append)
    assert notes[0] == f"using 2 runs of {group}"
    (warning,) = notes[1:]
    assert warning.startswith(f"{damaged}: ")
    assert isinstance(warning, Warned)


def test_votes_have_no_loss(runs):
    names = ["tiny", "tiny-2"]
    with dnnstack.load_ensemble(names, combine="votes", device="numpy", runs_dir=runs) as model:
        found = model.evaluate()
    told = found.to_json()
    assert told["loss"] is None
    ensemble = told["ensemble"]
    assert (ensemble["combine"], ensemble["weighted"]) == ("votes", False)
    correct = [each["correct"] for each in ensemble["members"]]
    assert [each["weight"] for each in ensemble["members"]] == [0.5, 0.5]
    assert ensemble["best"] == correct.index(max(correct))
    assert ensemble["mean_accuracy"] == pytest.approx(sum(correct) / 2 / found.count)
    assert "\nloss" not in text_of(found)


def test_members_that_do_not_fit(runs):
    def load(*names: str) -> dnnstack.Ensemble:
        return dnnstack.load_ensemble(names, device="numpy", runs_dir=runs)

    with pytest.raises(DatasetError, match="have different validation samples"):
        load("tiny,tiny-3").evaluate(split="validation")
    assert load("tiny,tiny-3").evaluate().count == 20
    for names, kind, message in (
        (["tiny"], UsageError, "at least two networks, but only .*tiny.* is named"),
        (["tiny", "tiny"], UsageError, "is named twice"),
        (["tiny", "no"], CheckpointError, "no such run"),
    ):
        with pytest.raises(DnnstackError, match=message) as caught:
            load(*names)
        assert type(caught.value) is kind
