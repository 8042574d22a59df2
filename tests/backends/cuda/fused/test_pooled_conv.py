"""Convolutions on tensor cores with the max-pool in the same kernel: choices, and results."""

from __future__ import annotations

import random
from itertools import count

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.backends.cuda.binding.decisions import Together
from dnnstack.backends.cuda.fused import tensor_conv
from dnnstack.backends.cuda.fused.conv_tilings import tilings
from dnnstack.backends.cuda.fused.filter_tilings import filter_tilings
from dnnstack.backends.cuda.fused.tilings import Geometry
from dnnstack.backends.cuda.fused.warpgroup_tilings import (
    WarpgroupFilterTiling,
    WarpgroupTiling,
    warpgroup_filter_tilings,
    warpgroup_tilings,
)
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.backends.tuning import Tuning
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window

from ....support.op_draft import Draft
from ....support.tensor_convs import draw, right_in_every_way
from ....support.timed import Timed

HALVES = Window((2, 2), (2, 2))


@pytest.fixture(autouse=True)
def any_work(monkeypatch):
    """Small convolutions have every way that large ones have."""
    monkeypatch.setattr(tensor_conv, "LEAST_WORK", 0)


def numbers(tiling):
    warpgroups = isinstance(tiling, WarpgroupTiling | WarpgroupFilterTiling)
    mark = "pw" if warpgroups else "p"
    return mark + "-".join(map(str, tiling.numbers.values()))


def chosen(seed, warpgroups=False):
    """A convolution that a max-pool may follow in its kernel, and choices of tilings for it and its
    gradients; in one case of four windows do not cover the picture."""
    find = warpgroup_tilings if warpgroups else tilings
    for turn in count():
        drawn = draw(f"{seed} {turn}", "forward", pooled=True, warpgroups=warpgroups)
        g, dice = drawn.geometry, random.Random(seed)
        forward = {"one//forward": numbers(drawn.tiling)}
        covered = g.y[1] % 2 == g.y[2] % 2 == 0
        if covered == (seed % 4 == 0):
            continue
        back = find(Geometry(g.y, g.x, g.window, True, g.dtype), drawn.n, 40, H200)
        sums = warpgroup_filter_tilings if warpgroups else filter_tilings
        filters = sums(g, drawn.n, 40, H200)
        if back and filters:
            gradients = {"one//data": back, "one//filter": filters}
            return drawn, forward | {
                name: numbers(dice.choice(every)) for name, every in gradients.items()
            }


def section(drawn, relu, bias, whole=False):
    """Convolution, ReLU and max-pool, and their gradients, on values that bfloat16 holds.

    whole: the operands of forward are -1, 0 and 1, of which it holds the sums as well.
    """
    g, n = drawn.geometry, drawn.n
    draft = Draft(np.random.default_rng(n), "normal")
    graph, small = draft.graph, (n, g.y[0], g.y[1] // 2, g.y[2] // 2)
    kind = "relu" if relu else None
    x = draft.floats("x", n, *g.x)
    w = draft.floats("w", g.y[0], g.x[0], *g.window.kernel, role="parameter")
    b = draft.floats("b", g.y[0], role="parameter") if bias else None
    y, p = graph.tensor("y", (n, *g.y)), draft.out("p", *small)
    graph.add(ops.Conv2d(x=x, w=w, y=y, window=g.window, bias=b, activation=kind))
    graph.add(ops.Pool2d(x=y, y=p, window=HALVES, kind="max"))
    dp = dp_given = draft.floats("dp", *small)
    if relu:
        masked = graph.tensor("masked", small)
        graph.add(ops.ActivationBackward(value=p, dy=dp, dx=masked, kind="relu"))
        dp = masked
    dy, dx = graph.tensor("dy", (n, *g.y)), draft.out("dx", n, *g.x)
    dw, db = draft.gradient("w", *w.shape), draft.gradient("b", g.y[0]) if bias else None
    graph.add(ops.Pool2dBackward(x=y, y=p, dy=dp, dx=dy, window=HALVES, kind="max"))
    graph.add(ops.Conv2dBackwardFilter(x=x, dy=dy, dw=dw, window=g.window, bias_grad=db))
    graph.add(ops.Conv2dBackwardData(dy=dy, w=w, dx=dx, window=g.window))
    for tensor, value in draft.values.items():
        if whole and tensor is not dp_given:
            value[...] = np.clip(np.rint(value), -1, 1)
        value.view(np.uint32)[...] &= 0xFFFF0000
    return draft, [p, dx, dw, *([db] if bias else [])]


def variants(**times):
    """Kernels of ours, by their marks."""
    return [(mark, lambda t=t: Timed(t)) for mark, t in times.items()]


@pytest.mark.parametrize(
    ("spared", "wanted"), [(3.0, {"a": "p0", "b": "p0"}), (1.0, {"a": "0", "b": "t0"})]
)
def test_a_search_counts_the_launch_that_they_spare(searched, spared, wanted):
    """Both gradients, or none: 4 + 4 beside 5 + 2 and the max-pool's own kernel."""
    section = {
        "convolutions": {"a": Timed(5.0), "b": Timed(6.0)},
        "variants": {"a": variants(p=4.0), "b": variants(t=2.0, p=4.0)},
        "together": [Together(("a", "b"), lambda repeats: spared), Together((), None)],
    }
    assert searched(section) == wanted


def test_of_two_kernels_with_the_max_pool_the_faster_is_taken(searched):
    section = {
        "convolutions": {"a": Timed(5.0)},
        "variants": {"a": variants(p=4.0, pw=3.0, t=5.0)},
        "together": [Together(("a",), lambda repeats: 1.0)],
    }
    assert searched(section, options=Options("bf16")) == {"a": "pw0"}


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_every_way_that_a_search_times_is_right(cuda, precision):
    """On operands whose result is known, as a search finds out before it takes one."""
    drawn, _ = chosen(1)
    draft, _ = section(drawn, True, True)
    choices = {**DEFAULT_CHOICES[precision], "pad": "8"}
    options = Options(precision, tuning=Tuning("cuda", choices=choices))
    executable = cuda.compile({"one": draft.graph}, options)
    binder = executable.binders()[0]
    found = [each for variants in binder.variants.values() for each in variants]
    made = [make() for mark, make in found if mark in ("p", "pw")]
    assert len(made) >= 3
    for candidates in made:
        right_in_every_way(candidates)
    assert all(0.0 < each.spared(5) < 1.0 for each in binder.together)
    executable.close()
