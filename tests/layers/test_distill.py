"""Distillation against its formula in NumPy, and its gradient against differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.graph import Graph
from dnnstack.graph.rewrites import LIBRARY_REWRITES, rewritten
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.layers.losses.distill import DistillLoss

N, K = 4, 5
RNG = np.random.default_rng(1)
STUDENT, TEACHER = (3.0 * RNG.standard_normal((N, K)) for _ in range(2))
LABELS = np.array([0, 4, 2, 2], np.int32)


def softmax(x):
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


def formula(s, t, weight, label_smoothing, reduction):
    p, q = softmax(s / t), softmax(TEACHER / t)
    wanted = (1.0 - label_smoothing) * np.eye(K)[LABELS] + label_smoothing / K
    soft, hard = (q * np.log(q / p)).sum(1), -(wanted * np.log(softmax(s))).sum(1)
    return getattr(weight * t**2 * soft + (1.0 - weight) * hard, reduction)()


def computed(loss, taught=True):
    """The loss, and its gradient with respect to the student's scores."""
    graph = Graph("train", N, training=True)
    s, t = (graph.tensor(name, (N, K), "float32", "input") for name in "st")
    target = graph.tensor("target", (N,), "int32", "input")
    if taught:
        graph.keep("teacher", scores=t)
    graph.results |= {"loss": loss.forward(graph, s, target), "dx": loss.backward(graph)}
    graph = rewritten(graph, LIBRARY_REWRITES)
    executable = ReferenceBackend(1).compile({"train": graph}, Options("fp64"))
    for tensor, values in ((s, STUDENT), (t, TEACHER), (target, LABELS)):
        if tensor in graph.tensors():
            executable.write(tensor, values)
    executable.run("train")
    return executable.read(graph["loss"])[0], executable.read(graph["dx"])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("t", "weight"), [(3.0, 0.9), (1.0, 0.25), (0.5, 1.0), (7.0, 0.0)])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_it_is_its_formula(t, weight, smoothing, reduction):
    options = {"temperature": t, "weight": weight, "label_smoothing": smoothing}
    value, gradient = computed(DistillLoss(**options, reduction=reduction))
    chosen = (t, weight, smoothing, reduction)
    assert value == pytest.approx(formula(STUDENT, *chosen), rel=1e-12)
    for at in np.ndindex(N, K):
        step = np.zeros((N, K))
        step[at] = 1e-5
        ends = (formula(STUDENT + sign * step, *chosen) for sign in (1, -1))
        assert gradient[at] == pytest.approx(np.subtract(*ends) / 2e-5, rel=1e-6, abs=1e-9)


def test_without_a_teacher_it_is_the_cross_entropy():
    loss = DistillLoss(label_smoothing=0.1)
    plain = CrossEntropyLoss(label_smoothing=0.1)
    for found, wanted in zip(computed(loss, False), computed(plain, False), strict=True):
        np.testing.assert_array_equal(found, wanted)
    # The weights of classes are those of labels alone.
    weighted = replace(loss, weight=1.0, class_weights=(9.0,) * K)
    assert computed(weighted)[0] == computed(replace(weighted, class_weights=()))[0]
