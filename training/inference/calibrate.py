"""The temperature of a trained network's probabilities, and what is familiar to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend
from ...common.errors import ConfigError, UsageError
from ...datasets import ImageSet
from ..metrics import Calibration as Bins
from ..network import MOST_FEATURES
from ..records.formats import calibration as stored
from ..records.formats.calibration import Arrays, Calibration, Floats, Trust, energy_of
from ..records.formats.dnnz import is_compressed, save_compressed
from .evaluate import Part, evaluate
from .trained import Trained

Samples = tuple[ImageSet, NDArray[np.int32]]
Seen = tuple[Floats, NDArray[np.float32], NDArray[Any]]
DIVIDED: tuple[Part, Part] = ("train", "validation")
KEEP = 0.95
"""The share of the validation samples that is familiar."""
# Samples that means and covariance are of; of the features' mean variance, what is added to each.
_MOST, _SHRINKAGE = 10_000, 0.1
_ROUNDS = 200


def calibrate(
    trained: Trained, backend: Backend, train: Samples, validation: Samples, keep: float = KEEP
) -> tuple[Trained, Calibration]:
    """The network with a temperature, and of classes with what is familiar, saved beside it.

    The temperature is fitted to the validation samples, of which ``keep`` are familiar; means and
    covariance of features are those of samples to train on. Pictures are seen as they are. Raises
    ConfigError for targets and losses without probabilities, CheckpointError if it cannot be saved.
    """
    if not 0 <= keep <= 1:
        raise UsageError(f"--keep: expected a number from 0 to 1 (got {keep})")
    kind = trained.data.kind
    if kind == "numbers" or not trained.network.has_logits:
        raise ConfigError(
            f"{trained.path}: has no probabilities to calibrate: it answers with numbers, or its "
            "loss is no function of scores such as cross_entropy"
        )
    held = scores, features, targets = seen(trained, backend, validation)
    answers = scores.argmax(1)
    if kind == "yes_no":
        # A question is two classes, of which "no" has the score 0.
        scores = np.stack([np.zeros(scores.size), scores.reshape(-1)], 1)
        right = targets.reshape(-1) > 0.5
        own, answers = scores[:, 1] * right, np.ones(len(scores), np.int64)
    elif kind == "distribution":
        own, right = (targets * scores).sum(1), targets.argmax(1) == answers
    else:
        own, right = scores[np.arange(len(targets)), targets], targets == answers
    t = best_temperature(scores, own)
    before, after = (_figures(scores / each, own / each, answers, right) for each in (1.0, t))
    figures = zip(before, after, strict=True)
    if is_compressed(trained.path):
        # It may be sent without what lies beside it.
        kept = save_compressed(replace(trained.checkpoint, temperature=t), trained.path)
        trained = replace(trained, checkpoint=kept.checkpoint)
    said = Calibration(trained.checkpoint.sha256, t, len(targets), keep, *figures)
    arrays: Arrays = {}
    if kind != "yes_no" and features.shape[1] <= MOST_FEATURES:
        images, index = train
        learned = seen(trained, backend, (images, index[:: -(-len(index) // _MOST)]))
        arrays = familiar_arrays(known(learned, trained.reject), known(held, trained.reject), keep)
    trust = Trust(said, arrays)
    stored.write_trust(trained.path, trust)
    return trained.calibrated(trust), said


def best_temperature(scores: Floats, own: Floats) -> float:
    """T of the least mean of log(sum of e^(scores / T)) - own / T, which is convex in 1 / T.

    scores: (N, K); own: (N,), those of the true classes. By Newton's method, between bounds that
    close in on the slope's zero; never worse than T = 1.
    """
    low, high, b = 1 / stored.HOTTEST, 1 / stored.COLDEST, 1.0
    most = scores.max(1)
    below, gap = scores - most[:, None], own - most
    for _ in range(_ROUNDS):
        p = np.exp(b * below)
        p /= p.sum(1, keepdims=True)
        mean = (p * below).sum(1)
        slope = float((mean - gap).mean())
        curve = float(((p * below * below).sum(1) - mean * mean).mean())
        low, high = (low, b) if slope > 0 else (b, high)
        step = b - slope / curve if curve > 0 else low
        b, last = step if low < step < high else (low + high) / 2, b
        if abs(b - last) <= 1e-12 * b:
            break
    return 1 / b if _loss(scores * b, own * b) <= _loss(scores, own) else 1.0


def _loss(scores: Floats, own: Floats) -> float:
    return float((energy_of(scores) - own).mean())


def _figures(
    scores: Floats, own: Floats, answers: NDArray[Any], right: NDArray[Any]
) -> tuple[float, float]:
    """Cross-entropy, and calibration error of the probabilities of ``answers``, (N,)."""
    bins, log = Bins(), scores[np.arange(len(scores)), answers] - energy_of(scores)
    bins.add(np.minimum(np.exp(log), 1.0), right)
    return _loss(scores, own), bins.error or 0.0


def seen(trained: Trained, backend: Backend, samples: Samples) -> Seen:
    """Scores (N, K), features (N, D) and targets of the samples, in their order, uncalibrated."""
    trained = replace(trained.calibrated(None), network=trained.network.judged(1.0, True))
    found: list[tuple[Any, Any]] = []

    def hear(index: object, scores: Any, probabilities: object, features: Any) -> None:
        found.append((scores.astype(np.float64), features))

    images, index = samples
    evaluate(trained, backend, images, index, "validation", tta="none", hear=hear)
    scores, features = map(np.concatenate, zip(*found, strict=True))
    return scores, features, images.labels[index]


def known(seen: Seen, reject: int | None) -> Seen:
    """With labels (N,), and without the samples of the class ``reject``."""
    *_, targets = seen
    labels = targets if targets.ndim == 1 else targets.argmax(1)
    scores, features, labels = (each[labels != reject] for each in (*seen[:2], labels))
    return scores, features, labels


def familiar_arrays(learned: Seen, held: Seen, keep: float) -> Arrays:
    """The arrays of samples that were ``learned``; their threshold by those ``held`` back."""
    scores, features, labels = learned
    classes, place = np.unique(labels, return_inverse=True)
    if not (len(classes) and len(held[0])):
        return {}
    x = features.astype(np.float64)
    means = np.stack([x[place == at].mean(0) for at in range(len(classes))])
    away = x - means[place]
    covariance = away.T @ away / len(x)
    spread = _SHRINKAGE * covariance.trace() / len(covariance) + 1e-12
    lower = np.linalg.cholesky(covariance + spread * np.eye(len(covariance)))
    turn = np.linalg.inv(lower).T
    arrays = {"centres": means @ turn, "whitening": turn}
    found = {name: np.ascontiguousarray(each, np.float32) for name, each in arrays.items()}
    figures = energy_of(scores), stored.distance_of(features, found)
    moments = [number for each in figures for number in (each.mean(), max(each.std(), 1e-6))]
    found["moments"] = np.array([*moments, 0.0], np.float32)
    told = stored.familiarity_of(held[1], held[0], found)
    # A little less, for it is kept as float32.
    least = np.float32(np.quantile(told, 1 - keep, method="lower"))
    found["moments"][4] = np.nextafter(least, np.float32(-np.inf))
    return found
