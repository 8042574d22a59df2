"""The file for NumPy: what it answers for every operation, and its text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.exports import numpy_file, numpy_functions
from dnnstack.exports.numpy_file import Numpy
from dnnstack.exports.plain import Plain
from dnnstack.graph import ops
from dnnstack.graph.ops import Quantization
from dnnstack.training.inference.trained import Trained

from ..support.activation_points import POINTS, RIGHT
from ..support.exported import compared
from ..support.untrained import untrained


def _in_integers(layers: str, **inputs: Quantization) -> Trained:
    trained = untrained(layers, (2, 8, 8), 3)
    return Trained.of(replace(trained.checkpoint, quantization=inputs))


def test_integers_are_the_same_integers(tmp_path):
    trained = _in_integers(
        "[{conv2d: {filters: 4, kernel_size: 3, name: one}}, batch_norm, relu, max_pool2d, "
        "{conv2d: {filters: 6, kernel_size: 2, name: two}}, tanh, flatten, "
        "{dense: {units: 3, name: three}}]",
        one=Quantization(0.03, True),
        two=Quantization(0.02, False),
        three=Quantization(1 / 127, True),
    )
    plain = Plain.of(trained)
    kinds = [type(op) for op in plain.ops]
    assert {ops.Quantize, ops.QuantizedConv2d, ops.QuantizedMatMul} <= {*kinds}
    assert compared(Numpy(), trained, tmp_path, 100).largest < 1e-6


@pytest.mark.parametrize("kind", RIGHT)
def test_activations_at_their_corners(kind):
    given = [0.3] if kind == "leaky_relu" else [0.7] * (kind == "elu")
    with np.errstate(invalid="ignore", under="ignore", over="ignore"):
        found = getattr(numpy_functions, kind)(POINTS, *given)
    # -inf times 0 is no number; the limit is 0.
    right = np.array(RIGHT[kind][0], np.float32)
    known = ~(np.isneginf(POINTS) & np.isnan(found))
    np.testing.assert_allclose(found[known], right[known], rtol=1e-6, atol=1e-45)
    assert found.dtype == np.float32


def test_gelu_is_that_of_the_error_function():
    from math import erf, sqrt

    x = np.linspace(-8, 8, 4001, dtype=np.float32)
    right = [v * (1 + erf(v / sqrt(2))) / 2 for v in x.tolist()]
    np.testing.assert_allclose(numpy_functions.gelu(x), right, rtol=1e-6, atol=5e-7)


def test_texts_are_quoted():
    for name in ("é😀", "a\0b", "a\nb", "\udc80", "'\"", "\\"):
        assert eval(numpy_file.quoted(name).encode()) == name
    assert numpy_file.quoted("é") == '"é"'
    assert numpy_file.about({"data": "a\0b"}) == {"data": "a\\x00b"}
    assert numpy_file.quoted('a"b') == "'a\"b'"
    assert numpy_file.quoted("a'b") == '"a\'b"'
    assert numpy_file.about({"task": "a\n b", "classes": "x"}) == {"task": "a b"}
