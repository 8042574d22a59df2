"""Activations that NumPy computes on oneDNN's memories."""

from __future__ import annotations

from math import erfc, sqrt

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn import activations
from dnnstack.backends.onednn.library import library
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import FROM_OUTPUT, Activation, ActivationBackward


def test_gelu_keeps_the_digits_of_small_results():
    """Where the library's own is taken this one is not, but it must be as good everywhere."""
    x = np.linspace(-12.0, 12.0, 50_001).astype(np.float32)
    y, *scratch = np.full((4, *x.shape), np.nan, np.float32)
    activations._gelu(x, y, *scratch, np.float32(0.0))
    want = x * np.vectorize(lambda value: 0.5 * erfc(-value * sqrt(0.5)))(x.astype(np.float64))
    units = np.abs(y - want) / np.spacing(np.abs(want).astype(np.float32))
    assert units[np.abs(x) < 1.0].max() < 4.0
    # There the square of x is rounded before it is an exponent.
    assert (units < 4.0 + np.square(x)).all()


def test_gelu_of_what_is_not_finite():
    x = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0], np.float32)
    y, *scratch = np.empty((4, *x.shape), np.float32)
    with np.errstate(all="raise", under="ignore"):
        activations._gelu(x, y, *scratch, np.float32(0.0))
    want = np.array([np.inf, 0.0, np.nan, 3e38, 0.0, 0.0], np.float32)
    np.testing.assert_array_equal(y, want)


def test_gelu_is_the_library_s_where_it_is_exact(onednn):
    graph = Graph("one", 1)
    x, y = graph.tensor("x", (2, 20, 3, 3), role="input"), graph.tensor("y", (2, 20, 3, 3))
    graph.add(Activation(x=x, y=y, kind="gelu"))
    graph.results["y"] = y
    executable = onednn.compile({"one": graph}, Options(fusion=False))
    libraries = [call.library for call in executable.calls("one")]
    assert libraries == ["oneDNN" if library().has_avx512() else "numpy"]
    executable.close()


@pytest.mark.parametrize("kind", activations.WITHOUT_AVX2)
def test_without_avx2_activations_and_their_slopes_are_exact(kind, onednn, monkeypatch):
    monkeypatch.setattr(library(), "has_avx2", lambda: False)
    graph = Graph("one", 1)
    x = graph.tensor("x", (3, 4001), role="input")
    dy = graph.tensor("dy", x.shape, role="input")
    y, dx = graph.tensor("y", x.shape), graph.tensor("dx", x.shape)
    graph.add(Activation(x=x, y=y, kind=kind))
    value = y if kind in FROM_OUTPUT else x
    graph.add(ActivationBackward(value=value, dy=dy, dx=dx, kind=kind))
    graph.results.update(y=y, dx=dx)
    executable = onednn.compile({"one": graph}, Options(fusion=False, tune=False))
    assert {call.library for call in executable.calls("one")} == {"numpy"}
    given = np.linspace(-30.0, 30.0, x.size).astype(np.float32).reshape(x.shape)
    executable.write(x, given)
    executable.write(dy, np.ones(x.shape, np.float32))
    executable.run("one")
    sigmoid = 1.0 / (1.0 + np.exp(-given.astype(np.float64)))
    tanh = np.tanh(given.astype(np.float64))
    want, slope = {
        "sigmoid": (sigmoid, sigmoid * (1.0 - sigmoid)),
        "silu": (given * sigmoid, sigmoid * (1.0 + given * (1.0 - sigmoid))),
        "tanh": (tanh, 1.0 - np.square(tanh)),
    }[kind]
    np.testing.assert_allclose(executable.read(y), want, rtol=1e-6)
    np.testing.assert_allclose(executable.read(dx), slope, rtol=1e-6, atol=3e-7)
    executable.close()
