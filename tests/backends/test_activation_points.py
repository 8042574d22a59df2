"""Activations, and layers that are made of them, at 0, at subnormals and at infinity."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Backend, Options
from dnnstack.graph import ops
from dnnstack.layers.build import LayerSpec, build_layers

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


@pytest.mark.parametrize("kind", RIGHT)
def test_values_and_slopes(backend, kind):
    d, alpha = Draft(np.random.default_rng(1), "normal"), ALPHA.get(kind, 0.0)
    x, shape = d.given("x", POINTS[None]), (1, POINTS.size)
    y, dx, dy = d.out("y", *shape), d.out("dx", *shape), d.given("dy", np.ones(shape, np.float32))
    d.graph.add(ops.Activation(x=x, y=y, kind=kind, alpha=alpha))
    value = y if kind in ops.FROM_OUTPUT else x
    d.graph.add(ops.ActivationBackward(value=value, dy=dy, dx=dx, kind=kind, alpha=alpha))
    value_there, slope = (found[0] for found in results(backend, d))
    assert_right(kind, value_there, slope, flushed=backend.name == "cuda")


def test_prelu_has_its_slope_at_zero(backend):
    """That of leaky ReLU, as in PyTorch; none of its own slope's gradient comes from 0."""
    # A GPU may take subnormal numbers for 0.
    some = slice(4 if backend.name == "cuda" else 6)
    x = np.array([[0.0, -0.0, 2.0, -2.0, 1e-40, -1e-40]] * 2, np.float32)[:, some]
    dy = np.array([[1.0, 3.0, 5.0, 0.3, 0.7, 7.0], [2.0] * 6], np.float32)[:, some]
    (layer,) = build_layers([LayerSpec("prelu", options={"initial_slope": 0.3})], x.shape[1:])
    d = Draft(np.random.default_rng(1), "normal")
    y = layer.forward(d.graph, d.given("x", x))
    dx = layer.backward(d.graph, d.given("dy", dy))
    slope = layer.parameters()[0].tensor
    ds = d.graph.gradient(slope)
    d.values[slope] = np.full(slope.shape, 0.3, np.float32)
    d.graph.results |= {"y": y, "dx": dx, "ds": ds}
    got = results(backend, d)
    wanted = np.where(x > 0, x, np.float32(0.3) * x), np.where(x > 0, dy, np.float32(0.3) * dy)
    np.testing.assert_allclose(got[0], wanted[0], rtol=3e-7, atol=1e-44)
    np.testing.assert_array_equal(got[1], wanted[1])
    np.testing.assert_allclose(got[2], (dy * np.minimum(x, 0.0)).sum(0), 1e-6, 1e-44)
