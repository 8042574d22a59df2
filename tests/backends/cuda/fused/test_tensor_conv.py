"""Convolutions of few channels on tensor cores: where they serve, how they are chosen, results."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import timed_plans
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.backends.cuda.binding.bind import Arithmetic
from dnnstack.backends.cuda.fused import tensor_conv, tensor_filter
from dnnstack.backends.cuda.fused.conv_tilings import tilings
from dnnstack.backends.cuda.fused.tilings import Geometry
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter

from ....support.op_draft import Draft
from ....support.tensor_convs import draw, right_in_every_way

LENET = Geometry((24, 12, 12), (56, 8, 8), Window((5, 5)), False, FLOAT)
CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}
LEAST_WORK = tensor_conv.LEAST_WORK


@pytest.fixture(autouse=True)
def any_work(monkeypatch):
    """Small convolutions have every way that large ones have."""
    monkeypatch.setattr(tensor_conv, "LEAST_WORK", 0)


def ends(precision="tf32", *, x=(4, 20, 12, 12), filters=50, window=None, **layout):
    """A convolution, and its operands as they lie channels-last, padded to eight."""
    window = window or Window((5, 5))
    dtype = BFLOAT if precision == "bf16" else FLOAT

    def lying(*shape):
        n, c, *rest = shape
        stored = (-(-n // 8) * 8 if shape == weights else n, c if c < 5 else -(-c // 8) * 8, *rest)
        return SimpleNamespace(layout=Layout(shape, stored, layout.get("nhwc", True), dtype=dtype))

    weights = (filters, x[1], *window.kernel)
    y = (x[0], filters, *window.output(*x[2:]))
    found = {"x": lying(*x), "w": lying(*weights), "y": lying(*y)}
    tensors = {
        name: Tensor(name, end.layout.shape, "float32", "activation") for name, end in found.items()
    }
    return Conv2d(window=window, **tensors), found


@pytest.mark.parametrize(
    ("given", "serves"),
    [
        ({}, True),
        ({"precision": "bf16"}, True),
        ({"precision": "fp32"}, False),
        ({"nhwc": False}, False),
        ({"x": (4, 3, 12, 12)}, False),
        ({"x": (4, 64, 12, 12), "filters": 128}, True),
        ({"x": (4, 72, 12, 12), "filters": 80}, False),
        ({"x": (4, 8, 12, 12), "filters": 136}, False),
        ({"window": Window((3, 3), padding=(2, 1, 0, 2))}, True),
        ({"window": Window((3, 3), padding=(3, 1, 0, 2))}, False),
        ({"window": Window((3, 3), (2, 1))}, False),
        ({"window": Window((3, 3), dilation=(1, 2))}, False),
    ],
)
def test_where_they_serve(given, serves):
    precision = given.pop("precision", "tf32")
    op, found = ends(precision, **given)
    arithmetic = Arithmetic.of(precision, True)
    assert tensor_conv.takes(op, found, arithmetic) == serves
    assert not tensor_conv.takes(op, found, replace(arithmetic, fusion=False))
    assert not tensor_conv.takes(replace(op, groups=2), found, arithmetic)


def offered(executable, wanted="t"):
    """The candidates of the first section's convolutions, by their names."""
    return {
        name: make()
        for name, variants in executable.binders()[0].variants.items()
        for mark, make in variants
        if mark == wanted and not name.endswith("/gemm")
    }


@pytest.mark.parametrize(("count", "marks"), [(64, ["t"]), (1024, ["t", "w"])])
def test_products_of_warpgroups_are_for_much_work(monkeypatch, count, marks):
    monkeypatch.setattr(tensor_conv, "LEAST_WORK", LEAST_WORK)
    op, found = ends("bf16", x=(count, 24, 12, 12), filters=56, window=Window((5, 5)))
    stream = SimpleNamespace(processors=replace(H200, warpgroups=True))
    ways = tensor_conv.ways(SimpleNamespace(stream=stream), op, found)
    assert [way.alone.mark for way in ways] == marks
    filters = tensor_filter.filter_ways(SimpleNamespace(stream=stream), found)
    assert [way.alone.mark for way in filters] == marks


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_trials_are_given_pointers(bound, sections, precision):
    """Of other operands, for which the result is known."""
    executable, _ = bound(sections("lenet"), precision, CHOICES)
    found = (*offered(executable).values(), *offered(executable, "w").values())
    assert len(found) == (6 if precision == "bf16" else 3)
    for candidates in found:
        assert candidates.plans() == tensor_conv.CANDIDATES
        assert all(map(candidates.build, range(candidates.plans())))
        candidates._launch(0, {"x": 16, "w": 32, "y": 48})()
        candidates.launch(1, 0)()
        assert len({candidates.name(index) for index in range(8)}) == 8


def test_what_the_compiler_refuses_is_never_chosen(bound, sections, monkeypatch):
    executable, _ = bound(sections("lenet"), "tf32", CHOICES)
    found = offered(executable)

    def refuse(*_, **__):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(tensor_conv, "Kernel", refuse)
    assert timed_plans.begun([*found.values()]) == []
    for candidates in found.values():
        assert timed_plans.best(candidates, 0, 1.0)[0] == float("inf")


# ---------------------------------------------------------------- on a device


def section(drawn, activation, bias):
    """The operation of a drawn convolution alone, with values that bfloat16 holds."""
    g, n = drawn.geometry, drawn.n
    picture, out = (g.y, g.x) if g.data else (g.x, g.y)
    draft = Draft(np.random.default_rng(n), "normal")
    window = g.window
    weights = (out[0], picture[0], *window.kernel)
    if drawn.kind == "forward":
        x, w = draft.floats("x", n, *picture), draft.floats("w", *weights, role="parameter")
        b = draft.floats("b", out[0], role="parameter") if bias else None
        found = [draft.out("y", n, *out)]
        tail = {"bias": b, "activation": activation, "activation_alpha": 0.3}
        draft.graph.add(Conv2d(x=x, w=w, y=found[0], window=window, **tail))
    elif drawn.kind == "data":
        dy, w = draft.floats("dy", n, *out), draft.floats("w", *weights, role="parameter")
        found = [draft.out("dx", n, *picture)]
        draft.graph.add(Conv2dBackwardData(dy=dy, w=w, dx=found[0], window=window))
    else:
        x, dy = draft.floats("x", n, *picture), draft.floats("dy", n, *out)
        dw, db = draft.gradient("w", *weights), draft.gradient("b", out[0]) if bias else None
        found = [dw, db] if bias else [dw]
        op = Conv2dBackwardFilter(x=x, dy=dy, dw=dw, window=window, bias_grad=db)
        draft.graph.add(op)
    for value in draft.values.values():
        value.view(np.uint32)[...] &= 0xFFFF0000
    return draft, found


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_every_way_that_a_search_times_is_right(cuda, precision):
    """On operands whose result is known, as a search finds out before it takes one."""
    drawn = replace(draw(1, "forward"), n=16)
    geometry = replace(LENET, dtype=BFLOAT if precision == "bf16" else FLOAT)
    first = tilings(geometry, 16, 1, H200)[0]
    draft, found = section(replace(drawn, tiling=first), None, True)
    choices = {**DEFAULT_CHOICES[precision], "pad": "8"}
    options = Options(precision, tuning=Tuning("cuda", choices=choices))
    executable = cuda.compile({"one": draft.graph}, options)
    for candidates in (*offered(executable).values(), *offered(executable, "w").values()):
        right_in_every_way(candidates)
    executable.close()
