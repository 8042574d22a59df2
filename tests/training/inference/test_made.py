"""Pictures that are made for a class."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import UsageError
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.made import class_picture, fooled

from ...support.untrained import untrained

BACKEND = ReferenceBackend(1)
DEEP = "[conv2d: {filters: 6, kernel_size: 3}, relu, flatten, dense: {units: 3}]"


def test_a_linear_network_is_fooled_by_the_shortest_step() -> None:
    trained = untrained("[flatten, dense: {units: 2}]", (1, 9, 9), 2)
    picture = np.random.default_rng(3).integers(100, 156, (1, 9, 9), np.uint8)
    x = trained.checkpoint.provenance.preprocessing(picture[None]).reshape(-1)
    weight, bias = (trained.checkpoint.arrays[f"dense_1.{part}"] for part in ("weight", "bias"))
    scores = weight @ x + bias
    other = int(scores.argmin())
    slope = (weight[other] - weight[1 - other]) * trained.checkpoint.provenance.preprocessing.scale[
        0
    ]
    far = (scores.max() - scores.min()) / np.linalg.norm(slope)
    found = fooled(trained, BACKEND, picture, other)
    assert Forward(trained, BACKEND)(found[None])[0].argmax() == other
    # Rounding to bytes moves 81 pixels by up to half a level.
    moved = found.astype(float) - picture
    assert abs(moved.ravel() - far * slope / np.linalg.norm(slope)).max() < 1.2
    np.testing.assert_array_equal(fooled(trained, BACKEND, picture, 1 - other), picture)


def test_a_deep_network_is_fooled_or_the_reason_is_told() -> None:
    trained = untrained(DEEP, (1, 8, 8), 3)
    picture = np.random.default_rng(3).integers(60, 200, (1, 8, 8), np.uint8)
    for chosen in range(3):
        found = fooled(trained, BACKEND, picture, chosen)
        assert Forward(trained, BACKEND)(found[None])[0].argmax() == chosen
    flat = "[flatten, dense: {units: 3, kernel_initializer: zeros}]"
    trained = untrained(flat, (1, 8, 8), 3)
    lowest = int(trained.checkpoint.arrays["dense_1.bias"].argmin())
    with pytest.raises(UsageError, match=f"no small steps lead from here to 'c{lowest}'"):
        fooled(trained, BACKEND, picture, lowest)


def test_the_picture_of_a_class() -> None:
    trained = untrained(DEEP, (3, 8, 8), 3)
    made = [class_picture(trained, BACKEND, 1, seed) for seed in (0, 0, 1)]
    assert made[0].shape == (3, 8, 8)
    assert made[0].dtype == np.uint8
    np.testing.assert_array_equal(made[0], made[1])
    assert (made[0] != made[2]).any()
    grey = np.full((3, 8, 8), 128, np.uint8)
    shares = Forward(trained, BACKEND)(np.stack([*made, grey]))[:, 1]
    assert (shares[:3] > shares[3] + 0.15).all()
