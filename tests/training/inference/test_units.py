"""The pictures that excite units, and the fields of these, against trying every pixel."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.training.inference.inspect import activations
from dnnstack.training.inference.units import excited, field

from ...support.untrained import untrained

BACKEND = ReferenceBackend(1)


def test_the_nine_highest_outputs_of_each_unit() -> None:
    layers = "[conv2d: {filters: 5, kernel_size: 3}, relu, flatten, dense: {units: 3}]"
    trained = untrained(layers, (1, 6, 7), 3)
    pictures = np.random.default_rng(8).integers(0, 256, (150, 1, 6, 7), np.uint8)
    rows = np.arange(3, 143)
    x = trained.checkpoint.provenance.preprocessing(pictures)
    for layer, units in (("conv2d_1", [4, 1]), ("dense_1", [2])):
        every = activations(trained, BACKEND, x)[layer]
        index, outputs, places = excited(trained, BACKEND, pictures, rows, layer, units)
        assert index.shape == outputs.shape == places.shape == (len(units), 9)
        for at, unit in enumerate(units):
            maps = every[:, unit].reshape(150, -1)
            best = sorted(rows.tolist(), key=lambda row: (-maps[row].max(), row))[:9]
            assert index[at].tolist() == best
            np.testing.assert_allclose(outputs[at], maps[best].max(1), rtol=1e-5)
            assert places[at].tolist() == maps[best].argmax(1).tolist()


@pytest.mark.parametrize(
    ("layers", "layer"),
    [
        ("conv2d: {filters: 1, kernel_size: [3, 2], stride: [1, 2]}", "conv2d_1"),
        ("conv2d: {filters: 2, kernel_size: 3, padding: same}, tanh, avg_pool2d: {pool_size: 2}, "
         "conv2d: {filters: 1, kernel_size: 2, dilation: 2}", "conv2d_2"),
        ("conv2d: {filters: 2, kernel_size: 2, algorithm: im2col}, residual: {body: [conv2d: "
         "{filters: 2, kernel_size: 3, padding: 1}]}", "residual_1"),
        ("concat: {branches: [[conv2d: {filters: 1, kernel_size: 3, padding: 1}], []]}, "
         "batch_norm", "batch_norm_1"),
        ("conv2d: {filters: 2, kernel_size: 2}, flatten, dense: {units: 3}", "dense_1"),
    ],
)  # fmt: skip
def test_a_unit_depends_on_its_field_and_nothing_else(layers: str, layer: str) -> None:
    trained = untrained(f"[{layers}, flatten, dense: {{units: 3}}]", (1, 9, 10), 3)
    x = np.random.default_rng(2).standard_normal((91, 1, 9, 10)).astype(np.float32)
    x[:] = x[0]
    x[np.arange(90), 0, np.arange(90) // 10, np.arange(90) % 10] += 3.0
    outputs = activations(trained, BACKEND, x)[layer][:, 0].reshape(91, -1)
    for place in range(outputs.shape[1]):
        changed = np.abs(outputs[:90, place] - outputs[90, place]) > 1e-6
        rows, columns = np.nonzero(changed.reshape(9, 10))
        found = rows.min(), rows.max() + 1, columns.min(), columns.max() + 1
        assert field(trained, layer, place) == found, place
