"""The temperature of probabilities, what is familiar, and where both are kept."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import dnnstack
import numpy as np
import pytest
from dnnstack.common.errors import ConfigError, UsageError, Warned
from dnnstack.graph.ops import Scale
from dnnstack.training import network as module
from dnnstack.training.inference.calibrate import DIVIDED, best_temperature, calibrate
from dnnstack.training.inference.evaluate import evaluate
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.metrics import Calibration
from dnnstack.training.records.formats import calibration
from dnnstack.training.records.formats.calibration import trust_path, write_trust
from dnnstack.training.records.formats.dnnz import save_compressed
from dnnstack.training.records.formats.store import write_checkpoint
from dnnstack.training.trainer import train
from safetensors.numpy import load_file, save_file


def _loss(scores: np.ndarray, own: np.ndarray, t: float) -> float:
    return float((np.log(np.exp(scores / t).sum(1)) - own / t).mean())


@pytest.mark.parametrize(
    ("sharp", "wanted"),
    [(1.0, (0.8, 1.25)), (4.0, (3.2, 5.0)), (0.2, (0.16, 0.25)), (1e-3, (0.05, 0.05))],
)
@pytest.mark.parametrize("classes", [2, 10])
def test_no_other_temperature_has_a_lower_cross_entropy(sharp, wanted, classes):
    rng = np.random.default_rng(classes)
    logits = 2 * rng.standard_normal((2000, classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    scores = sharp * logits
    own = scores[np.arange(2000), labels]
    t = best_temperature(scores, own)
    assert wanted[0] <= t * (1 + 1e-9)
    assert t * (1 - 1e-9) <= wanted[1]
    for other in (1.0, 0.999 * t, 1.001 * t):
        assert _loss(scores, own, t) <= _loss(scores, own, other) or t == pytest.approx(0.05)
    # Answers that are all right ask for the coldest, all wrong ones for the hottest.
    assert best_temperature(scores, scores.max(1)) == pytest.approx(0.05)
    assert best_temperature(scores, scores.min(1)) == pytest.approx(20.0)
    assert best_temperature(np.zeros((3, classes)), np.zeros(3)) <= 20.0


@pytest.fixture
def trained(tiny, reference, tmp_path):
    train(tiny("run.device=numpy"), reference, tmp_path)
    return find_trained(None, None, tmp_path / "runs", lambda text: None)


def _unwarned(text: str) -> None:
    assert not isinstance(text, Warned), text


def _divided(trained: Trained, root: Path) -> list[Any]:
    return [load_part(trained, part, root) for part in DIVIDED]


def _scores(trained: Trained, backend: Any, samples: Any) -> list[np.ndarray]:
    """Scores, probabilities and features, (N, ...) float64."""
    found: list[tuple[Any, ...]] = []
    images, index = samples
    evaluate(trained, backend, images, index, "test", hear=lambda _, *each: found.append(each))
    return [np.concatenate(each).astype(np.float64) for each in zip(*found, strict=True)]


@pytest.mark.parametrize("keep", [0.95, 0.5, 1.0])
def test_what_is_fitted_is_what_one_computes_by_hand(trained, backend, tmp_path, keep):
    learned, held = _divided(trained, tmp_path)
    plain, _, _ = _scores(trained, backend, held)
    found, said = calibrate(trained, backend, learned, held, keep)
    again = find_trained(None, None, tmp_path / "runs", _unwarned)
    assert again.trust is not None
    assert again.trust.calibration == said
    labels, t = held[0].labels[held[1]], said.temperature
    own = plain[np.arange(32), labels]
    assert said.count == 32
    assert said.cross_entropy == pytest.approx((_loss(plain, own, 1.0), _loss(plain, own, t)))
    assert said.cross_entropy[1] < said.cross_entropy[0]
    assert t == pytest.approx(best_temperature(plain, own), rel=1e-6)
    p = np.exp(plain / t) / np.exp(plain / t).sum(1, keepdims=True)
    scores, probabilities, features = _scores(again, backend, held)
    np.testing.assert_allclose(scores, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probabilities, p, rtol=1e-4, atol=1e-6)
    for error, shown in zip(said.calibration_error, (1.0, t), strict=True):
        bins = Calibration()
        shares = np.exp(plain / shown) / np.exp(plain / shown).sum(1, keepdims=True)
        bins.add(shares.max(1), plain.argmax(1) == labels)
        assert error == pytest.approx(bins.error, abs=1e-6)
    # Features are what enters the last dense layer.
    weights = again.checkpoint.parameters({t.name: t.shape for t in again.network.learned()})
    made = features @ weights["dense_1.weight"].T + weights["dense_1.bias"]
    np.testing.assert_allclose(made, scores, rtol=1e-3, atol=1e-4)
    every = [_scores(again, backend, each) for each in (learned, held)]
    (energy, distance), (other, far) = (_measured(every[0], each, learned) for each in every)
    wanted = (other - energy.mean()) / energy.std() - (far - distance.mean()) / distance.std()
    wanted -= np.sort(wanted)[int(np.floor((1 - keep) * 31))]
    pixels = held[0].images[held[1]]
    for of in (found, again):
        shares, told = Forward(of, backend).judged(pixels)
        assert told is not None
        np.testing.assert_allclose(told, wanted, rtol=0, atol=0.01)
        np.testing.assert_allclose(shares, p, rtol=1e-3, atol=1e-5)
    result = evaluate(again, backend, *held, "validation")
    assert result.kept == (told >= 0).mean() == 1 - np.floor((1 - keep) * 31) / 32
    assert (result.temperature, result.to_json()["kept"]) == (t, result.kept)


def _measured(trained: Any, each: Any, learned: Any) -> tuple[np.ndarray, np.ndarray]:
    """Energy and distance; by the inverse of the covariance."""
    x, labels = trained[2], learned[0].labels[learned[1]]
    means = np.stack([x[labels == k].mean(0) for k in range(10)])
    away = x - means[labels]
    covariance = away.T @ away / len(x)
    inverse = np.linalg.inv(covariance + 0.1 * np.diag(covariance).mean() * np.eye(len(covariance)))
    gaps = each[2][:, None] - means
    squares = np.einsum("nki,ij,nkj->nk", gaps, inverse, gaps)
    return np.log(np.exp(each[0]).sum(1)), np.sqrt(squares.min(1))


def test_views_and_other_sizes_of_batches_are_judged_alike(trained, reference, tmp_path):
    learned, held = _divided(trained, tmp_path)
    found, _ = calibrate(trained, reference, learned, held)
    pixels = held[0].images[held[1]]
    (_, one), (_, all_of_them) = (
        Forward(found, reference).judged(pixels[:n]) for n in (1, len(pixels))
    )
    assert one[0] == pytest.approx(all_of_them[0], abs=1e-4)
    # Views change the answers; what is judged is the picture as it is.
    answers, told = Forward(found, reference, "mirror").judged(pixels)
    np.testing.assert_allclose(told, all_of_them, rtol=0, atol=1e-3)
    assert np.abs(answers - Forward(found, reference)(pixels)).max() > 0.01
    for share in (None, 0.25):
        evaluated = found.config.evaluate.model_copy(update={"tta_share": share})
        config = found.config.model_copy(update={"evaluate": evaluated})
        seen = evaluate(replace(found, config=config), reference, *held, "validation", tta="mirror")
        assert seen.kept == (all_of_them >= 0).mean()
    assert Forward(found, reference).judged(pixels[:0])[1].shape == (0,)
    ops = found.network.infer_graph(2).ops
    (scale,) = (op for op in ops if isinstance(op, Scale))
    assert scale.factor == pytest.approx(1 / found.trust.calibration.temperature)
    assert not [op for op in trained.network.infer_graph(2).ops if isinstance(op, Scale)]
    with pytest.raises(UsageError, match=r"^--keep: .* \(got 1\.5\)"):
        calibrate(trained, reference, learned, held, 1.5)


def _damaged(path: Path, change: Any) -> None:
    """The file with another text or other arrays, and the digest that belongs to it."""
    header = path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")]
    said = json.loads(json.loads(header)["__metadata__"]["dnnstack"])
    arrays = load_file(path)
    change(said, arrays)
    text = json.dumps(said)
    save_file(arrays, path, {"dnnstack": text, "sha256": calibration._digest(text, arrays)})


_WRONG = {
    "of another": lambda said, arrays: said.update(checkpoint="0" * 64),
    "temperature": lambda said, arrays: said.update(temperature=0.01),
    "greater than or equal|less than or equal": lambda said, arrays: said.update(keep=1.5),
    "no calibration": lambda said, arrays: arrays.pop("moments"),
    "not finite": lambda said, arrays: arrays["whitening"].__setitem__((0, 0), np.inf),
    "not of this network": lambda said, arrays: arrays["moments"].__setitem__(1, 0.0),
    "its numbers are": lambda said, arrays: arrays["moments"].__setitem__(3, -1.0),
    "numbers are not": lambda said, arrays: arrays.update(centres=arrays["centres"][:, 1:].copy()),
    "are not of": lambda said, arrays: arrays.update(centres=arrays["centres"][:0]),
    "its numbers": lambda said, arrays: arrays.update(centres=np.tile(arrays["centres"], (2, 1))),
    "larger": lambda said, arrays: arrays.update(more=np.zeros(1 << 20, np.float32)),
}


def test_a_file_that_does_not_fit_is_told_and_not_used(trained, reference, tmp_path):
    calibrate(trained, reference, *_divided(trained, tmp_path))
    path = trust_path(trained.path)
    sound = path.read_bytes()
    flipped = {at: bytes([sound[at] ^ 1]) for at in (len(sound) - 1, len(sound) // 2, 200)}
    for name, change in _WRONG.items():
        path.write_bytes(sound)
        _damaged(path, change)
        _check_refused(trained, tmp_path, name)
    for at, byte in flipped.items():
        path.write_bytes(sound[:at] + byte + sound[at + 1 :])
        _check_refused(trained, tmp_path, "damaged|SHA-256|no calibration")
    path.write_bytes(sound[:100])
    _check_refused(trained, tmp_path, "damaged")
    path.unlink()
    path.symlink_to("nowhere")
    _check_refused(trained, tmp_path, "cannot be read")
    path.unlink()
    path.write_bytes(sound)
    # What was saved again at the same step is another checkpoint.
    saved = trained.checkpoint
    state = replace(saved.state, best=None, sums=(1.0, 2.0, 3.0))
    write_checkpoint(path.parent, saved.arrays, state, saved.provenance, keep=1)
    _check_refused(trained, tmp_path, "which was replaced since")


def _check_refused(trained: Trained, folder: Path, why: str) -> None:
    notices: list[str] = []
    found = find_trained(None, None, folder / "runs", notices.append)
    assert (found.trust, found.network.temperature) == (None, 1.0)
    (told,) = (each for each in notices if isinstance(each, Warned))
    assert told.startswith(str(trust_path(trained.path)))
    assert told.endswith("it is not used: calibrate again with dnnstack eval --calibrate")
    assert re.search(why, told), told


def test_it_goes_with_its_checkpoint_and_beside_a_small_file(trained, reference, tmp_path):
    found, _ = calibrate(trained, reference, *_divided(trained, tmp_path))
    path, saved = trust_path(trained.path), trained.checkpoint
    small = tmp_path / "small.dnnz"
    save_compressed(saved, small)
    (tmp_path / "runs/tiny/config.yaml").rename(tmp_path / "config.yaml")
    other = find_trained(None, small, tmp_path, lambda text: None)
    assert other.trust is None
    assert found.trust is not None
    write_trust(small, replace(found.trust, calibration=replace(
        found.trust.calibration, checkpoint=other.checkpoint.sha256)))  # fmt: skip
    assert find_trained(None, small, tmp_path, _unwarned).trust is not None
    assert trust_path(small) == tmp_path / "small.calibration.safetensors"
    for step, there in ((saved.state.step, True), (saved.state.step + 1, False)):
        state = replace(saved.state, step=step, best=None)
        write_checkpoint(path.parent, saved.arrays, state, saved.provenance, keep=1)
        assert path.exists() is there


def test_a_small_file_keeps_its_temperature_alone(trained, reference, tmp_path):
    """Without what lies beside it, or with that damaged; its weights are those of before."""
    small = tmp_path / "small.dnnz"
    save_compressed(trained.checkpoint, small)
    before = find_trained(None, small, tmp_path, _unwarned)
    assert before.checkpoint.temperature == before.network.temperature == 1.0
    found, said = calibrate(before, reference, *_divided(trained, tmp_path))
    assert found.network.temperature == said.temperature != 1.0
    beside = find_trained(None, small, tmp_path, _unwarned)
    assert (beside.trust is not None, beside.trust.calibration) == (True, said)
    trust_path(small).write_bytes(b"damaged")
    notices: list[str] = []
    damaged = find_trained(None, small, tmp_path, notices.append)
    assert len([each for each in notices if isinstance(each, Warned)]) == 1
    trust_path(small).unlink()
    alone = find_trained(None, small, tmp_path, _unwarned)
    assert alone.trust is damaged.trust is None
    images = _divided(trained, tmp_path)[1][0].images[:5]
    want = Forward(found, reference)(images)
    for each in (alone, damaged):
        assert each.network.temperature == said.temperature
        np.testing.assert_array_equal(Forward(each, reference)(images), want)
    plain = dnnstack.load(small, device="numpy", calibrated=False)
    np.testing.assert_array_equal(plain.predict_proba(images), Forward(before, reference)(images))
    for name, array in before.checkpoint.arrays.items():
        np.testing.assert_array_equal(alone.checkpoint.arrays[name], array)


_SHARES = "{table: {inputs: [[0, 1], [1, 0], [1, 1], [2, 0], [0, 2], [2, 2]], kind: distribution, "
_SHARES += "targets: [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.1, 0.9], [1, 0], [0.4, 0.6]]}}"


@pytest.mark.parametrize(
    ("name", "changes", "known"),
    [
        ("logistic.yaml", ["data.validation=16", "data.batch_size=16", "optimizer.lr=0.02"], False),
        ("logistic.yaml", [f"data.dataset={_SHARES}", "data.validation=3", "data.batch_size=3",
            "loss=cross_entropy", "layers=[{dense: {units: 2}}]"], True),
    ],
    ids=["yes_no", "distribution"],
)  # fmt: skip
def test_other_targets(name, changes, known, reference, tmp_path):
    short = [f"run.dir={tmp_path}", "train.epochs=30", "evaluate.calibrate=true"]
    done = dnnstack.train(name, overrides=[*short, *changes], device="numpy")
    model = dnnstack.load(done.run, device="numpy")
    said = model.trained.trust.calibration
    assert said.cross_entropy[1] <= said.cross_entropy[0]
    assert bool(model.trained.trust.arrays) == model.knows_familiar == known
    plain = dnnstack.load(done.run, device="numpy", calibrated=False)
    inputs = np.array(plain.config.data.dataset.options()["inputs"], np.float32)
    p, q = (each.predict_proba(inputs).astype(np.float64) for each in (plain, model))
    t = said.temperature
    logits = np.log(p) - (np.log1p(-p) if not known else 0)
    wanted = np.exp(logits / t) / (1 + np.exp(logits / t))
    if known:
        wanted = np.exp(logits / t) / np.exp(logits / t).sum(1, keepdims=True)
    np.testing.assert_allclose(q, wanted, rtol=2e-3, atol=1e-5)
    images, index = model.load_part("validation")
    targets = images.labels[index].astype(np.float64)
    for shares, loss in zip((p, q), said.cross_entropy, strict=True):
        own = shares[index]
        crossed = -targets * np.log(own) - (0 if known else (1 - targets) * np.log(1 - own))
        assert loss == pytest.approx(crossed.sum(1).mean() if known else crossed.mean(), rel=1e-3)


@pytest.mark.parametrize("most", [143, 144])
def test_too_many_features_give_way_to_scores(most, trained, reference, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_FEATURES", most)
    graph = trained.network.judged(1.0, True).infer_graph(2)
    wide = graph["features"].shape[1]
    assert (wide == 144) == (most == 144)
    assert wide == 144 or graph["features"] == graph["scores"] == graph["logits"]
    found, _ = calibrate(trained, reference, *_divided(trained, tmp_path))
    assert found.trust is not None
    assert found.trust.arrays["whitening"].shape == (wide, wide)
    assert find_trained(None, None, tmp_path / "runs", _unwarned).trust is not None
    monkeypatch.setattr("dnnstack.training.inference.calibrate.MOST_FEATURES", 9)
    assert calibrate(trained, reference, *_divided(trained, tmp_path))[0].trust.arrays == {}


def test_what_has_no_probabilities_is_not_calibrated(tmp_path):
    where, short = (
        f"run.dir={tmp_path}",
        ["train.epochs=2", "data.validation=4", "data.batch_size=4"],
    )
    done = dnnstack.train("linear-regression.yaml", overrides=[where, *short], device="numpy")
    model = dnnstack.load(done.run, device="numpy")
    with pytest.raises(ConfigError, match=r"has no probabilities to calibrate"):
        model.calibrate()
    with pytest.raises(UsageError, match=r"was not measured; Classifier\.calibrate\(\) measures"):
        model.familiarity(np.zeros((1, 2), np.float32))
    again = [where, *short, "evaluate.calibrate=true"]
    with pytest.raises(ConfigError, match=r"evaluate\.calibrate: the targets are numbers"):
        dnnstack.train("linear-regression.yaml", overrides=again, device="numpy")


def test_a_program_calibrates_and_asks_what_is_familiar(trained, tmp_path):
    where = tmp_path / "runs"
    with dnnstack.load(runs_dir=where, device="numpy") as model:
        assert not model.knows_familiar
        said = model.calibrate(keep=0.75)
        images, index = model.load_part("validation")
        told = model.familiarity(images.images[index])
        # The same object answers by it from now on.
        assert (told >= 0).mean() == model.evaluate(split="validation").kept == 25 / 32
        assert said.keep == 0.75
        assert model.knows_familiar
        alike = model.predict_proba(images.images[index])
    with dnnstack.load(runs_dir=where, device="numpy", calibrated=False) as plain:
        assert not plain.knows_familiar
        assert np.abs(plain.predict_proba(images.images[index]) - alike).max() > 1e-3
    pair = [trained.path, trained.path.with_name("step-10.safetensors")]
    shutil.copy(pair[0], pair[1])
    with dnnstack.load_ensemble(pair, device="numpy") as both:
        each = (
            dnnstack.load(trained.path, device="numpy", calibrated=own) for own in (True, False)
        )
        halves = [one.predict_proba(images.images) for one in each]
        found = both.predict_proba(images.images)
        np.testing.assert_allclose(found, np.mean(halves, 0), rtol=1e-5, atol=1e-7)
        assert not both.knows_familiar
        with pytest.raises(UsageError, match="calibrate each alone"):
            both.calibrate()
