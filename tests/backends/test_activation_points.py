"""Activations, and layers that are made of them, at 0, at subnormals and at infinity."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Backend, Options
from dnnstack.graph import ops

from ..support.activation_points import POINTS, RIGHT, assert_right
from ..support.op_draft import ALPHA, Draft
from ..support.opened import NAMES, opened


@pytest.fixture(params=NAMES, scope="module")
def backend(request):
    return opened(request.param)


def results(backend: Backend, draft: Draft) -> list[np.ndarray]:
    """What the draft gives out, in order, but for what is given."""
    options = Options("fp32", fusion=False, tune=False)
    executable = backend.compile({draft.graph.name: draft.graph}, options)
    for tensor, value in draft.values.items():
        executable.write(tensor, value.copy())
    with np.errstate(invalid="ignore", over="ignore"):
        executable.run(draft.graph.name, 1)
    made = [t for t in draft.graph.results.values() if t not in draft.values]
    found = [executable.read(tensor) for tensor in made]
    executable.close()
    return found


def test_every_activation_is_tried():
    assert set(RIGHT) == set(ops.ACTIVATIONS)


def at(backend: Backend, kind: str, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of an activation, and its slopes."""
    d, alpha = Draft(np.random.default_rng(1), "normal"), ALPHA.get(kind, 0.0)
    x, shape = d.given("x", points[None]), (1, points.size)
    y, dx, dy = d.out("y", *shape), d.out("dx", *shape), d.given("dy", np.ones(shape, np.float32))
    d.graph.add(ops.Activation(x=x, y=y, kind=kind, alpha=alpha))
    value = y if kind in ops.FROM_OUTPUT else x
    d.graph.add(ops.ActivationBackward(value=value, dy=dy, dx=dx, kind=kind, alpha=alpha))
    value_there, slope = (found[0] for found in results(backend, d))
    return value_there, slope


@pytest.mark.parametrize("kind", RIGHT)
def test_values_and_slopes(backend, kind):
    assert_right(kind, *at(backend, kind, POINTS), flushed=backend.name == "cuda")


KINKS = np.array([-3, 3, 6], np.float32)
BELOW, ABOVE = KINKS - np.float32(1e-3), KINKS + np.float32(1e-3)


@pytest.mark.parametrize(
    ("kind", "values", "below", "there", "above"),
    [
        ("relu6", [0, 3, 6], [0, 1, 1], [0, 1, 0], [0, 1, 0]),
        ("hardsigmoid", [0, 1, 1], [0, 1 / 6, 0], [0, 0, 0], [1 / 6, 0, 0]),
        ("hardswish", [0, 3, 6], [0, 1.499667, 1], [0, 1, 1], [-0.499667, 1, 1]),
    ],
)
def test_values_and_slopes_at_their_kinks(backend, kind, values, below, there, above):
    """As PyTorch has them."""
    for points, want in ((BELOW, below), (KINKS, there), (ABOVE, above)):
        found, slopes = at(backend, kind, points)
        np.testing.assert_allclose(slopes, want, rtol=1e-5)
        np.testing.assert_allclose(found, values, atol=1.6e-3 * (points is not KINKS))
