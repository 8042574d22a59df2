"""A first layer's filter gradient with the gradient of the activation behind it in its kernel."""

from __future__ import annotations

import random
from itertools import count

import numpy as np
import pytest
from dnnstack.backends.cuda.fused.filter_tilings import filter_tilings
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.graph import ops

from ....support.emulated_build import COMPILER
from ....support.op_draft import Draft
from ....support.tensor_convs import Emulated, draw, numbers
from .test_tensor_conv_emulated import close, gradient_of_filters

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}
KEY = "one//filter"
# Slopes by outputs, at alpha 0.3, whose products numbers of eight bits nearly hold.
SLOPES = {
    "relu": lambda v: (v > 0) * 1.0,
    "leaky_relu": lambda v: np.where(v > 0, 1.0, np.float64(np.float32(0.3))),
    "tanh": lambda v: 1.0 - v.astype(np.float64) ** 2,
}


def drawn_of(seed):
    """A geometry whose pictures are padded to eights, and the choice of a tiling of it."""
    for turn in count():
        drawn = draw(f"{seed} {turn}", "filter")
        if drawn.geometry.x[0] % 8 == 0:
            found = filter_tilings(drawn.geometry, drawn.n, 40, H200)
            tiling = random.Random(seed).choice(found)
            return drawn, {KEY: "p" + "-".join(map(str, tiling.numbers.values()))}


def section(drawn, kind, bias=True, data=False):
    """A convolution with an activation, and the gradients of both, on values of bfloat16.

    data: something else reads the activation's gradient.
    """
    g, n = drawn.geometry, drawn.n
    draft = Draft(np.random.default_rng(n), "normal")
    graph, large = draft.graph, (n, *g.y)
    x, dy = draft.floats("x", n, *g.x), draft.floats("dy", *large)
    w = draft.floats("w", g.y[0], g.x[0], *g.window.kernel, role="parameter")
    value, dx = graph.tensor("value", large), graph.tensor("dx", large)
    forward = kind if kind in ops.FROM_OUTPUT else None
    graph.add(
        ops.Conv2d(x=x, w=w, y=value, window=g.window, activation=forward, activation_alpha=0.3)
    )
    graph.add(ops.ActivationBackward(value=value, dy=dy, dx=dx, kind=kind, alpha=0.3))
    dw = draft.gradient("w", g.y[0], g.x[0], *g.window.kernel)
    db = draft.gradient("b", g.y[0]) if bias else None
    graph.add(ops.Conv2dBackwardFilter(x=x, dy=dx, dw=dw, window=g.window, bias_grad=db))
    found = [dw, *([db] if bias else [])]
    if data:
        found.append(draft.out("twice", *large))
        graph.add(ops.Scale(x=dx, y=found[-1], factor=2.0))
    for array in draft.values.values():
        array.view(np.uint32)[...] &= 0xFFFF0000
    return draft, found


@pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
@pytest.mark.parametrize("kind", SLOPES)
@pytest.mark.parametrize("seed", range(2))
def test_emulated(tmp_path, kind, seed):
    drawn = draw(f"{kind} {seed}", "filter")
    kernel = Emulated(drawn, tmp_path, BIAS=1, SLOPE=ops.ACTIVATIONS.index(kind))
    tiling = drawn.tiling
    assert kernel.sizes() == (tiling.shared, tiling.threads, tiling.units)
    g, rng = drawn.geometry, np.random.default_rng(seed)
    x = numbers(rng, (drawn.n, *g.x[1:], g.x[0]), drawn.bf16)
    dy, value = (numbers(rng, (drawn.n, *g.y[1:], g.y[0]), drawn.bf16) for _ in range(2))
    if kind == "tanh":
        value = numbers(rng, value.shape, drawn.bf16) / 4
    sloped = dy * SLOPES[kind](value)
    weights, biases = kernel.gradients(x, dy, mask=value)
    close(weights, gradient_of_filters(x, sloped, g), 4e-3 if drawn.bf16 else 5e-4)
    close(biases, sloped.sum((0, 1, 2)), 4e-3 if drawn.bf16 else 1e-5)


def test_warpgroups_have_no_slopes_on_the_way(bound):
    for seed in range(8):
        drawn, choices = drawn_of(seed)
        if drawn.bf16:
            break
    draft, _ = section(drawn, "relu")
    choices = CHOICES | {KEY: choices[KEY].replace("p", "pw", 1)}
    with pytest.raises(ValueError, match=r"tuning's tiling .* is unknown"):
        bound({"one": draft.graph}, "bf16", choices)
