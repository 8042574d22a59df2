"""Matrix products on tensor cores: where they serve, how they are chosen, results."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.cuda import timed_plans
from dnnstack.backends.cuda.fused import tensor_dense
from dnnstack.backends.cuda.libraries import kernels
from dnnstack.backends.cuda.libraries.layout import Layout

from ....support.tensor_products import offered
from ....support.timed import Timed

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}
LENET = ("train/dense_1/forward/gemm", "train/dense_1/data/gemm", "train/dense_1/filter/gemm")


def test_a_choice_for_another_precision_is_an_error(bound, sections):
    with pytest.raises(ValueError, match="the tuning's kernel does not take it"):
        bound(sections("lenet"), "fp32", CHOICES | {LENET[0]: "t1-1-1"})


def at(place, rows, pitch, dtype):
    """The stored numbers at an address, and their layout."""
    flat = Layout((rows * pitch,), (rows * pitch,), dtype=dtype)
    kind = ctypes.c_uint16 if flat.item == "uint16" else ctypes.c_float
    return np.ctypeslib.as_array((kind * flat.size).from_address(place)), flat


def computing(candidates, spoil):
    """A launch that computes in NumPy what ``verified`` asks for, and spoils it."""
    g = candidates._geometry
    shapes = [layout.shape for layout in candidates._alone()]

    def launch(kernel, stream, grid, block, arguments, shared=0):
        a, b, bias, c, *_ = arguments
        assert bias == 0
        places = zip((a, b, c), shapes, g.pitches, (g.dtype, g.dtype, g.result), strict=True)
        held = [at(place, shape[0], pitch, dtype) for place, shape, pitch, dtype in places]

        def run():
            left, right, found = (
                flat.unpack(array).reshape(shape[0], -1)
                for (array, flat), shape in zip(held, shapes, strict=True)
            )
            left, right = left[:, : shapes[0][1]], right[:, : shapes[1][1]]
            found = found.copy()
            found[:, : g.columns] = (left if g.deep_a else left.T) @ (
                right.T if g.deep_b else right
            )
            found[:, g.counted : g.columns] = 0.0
            spoil(found)
            held[2][0][...] = held[2][1].pack(found.ravel())

        return run

    return launch


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("fault", ["none", "one number", "padding", "not twice"])
def test_what_is_wrong_or_differs_is_not_verified(bound, sections, monkeypatch, precision, fault):
    executable, _ = bound(sections("lenet"), precision, CHOICES)
    turns = []

    def spoil(c):
        turns.append(0)
        if fault == "one number":
            c[-1, 3] *= 1.02
        elif fault == "not twice":
            # Within what rounding may make of it.
            c[0, 0] *= 1.0 + len(turns) % 2 * (6e-3 if precision == "bf16" else 5e-4)
        elif fault == "padding":
            c[:, -1] += 1.0 + 0.02 * c[:, -1]

    for candidates in offered(executable).values():
        monkeypatch.setattr(kernels.Kernel, "launch", computing(candidates, spoil))
        assert candidates.verified(0, 0) == (fault == "none")


@pytest.mark.parametrize(
    ("times", "ours", "tail", "wanted"),
    [
        ((5.0, 4.0), Timed(6.0, 4.5), 0.0, "1"),
        ((5.0, 4.0), Timed(6.0, 3.5), 0.0, "t1"),
        ((5.0, 4.9), Timed(5.1, 4.9), 0.0, None),
        ((5.0, 4.9), Timed(5.1, 4.8), 0.0, "t1"),
        ((5.0, 4.0), Timed(4.5, 6.0), 1.0, "t0"),
        ((5.0, 4.0), Timed(3.0, 2.0, right=False), 1.0, "1"),
        ((), Timed(3.0), 0.0, None),
    ],
)
def test_a_search_times_them_beside_the_algorithms(searched, times, ours, tail, wanted):
    """And what must follow an algorithm counts to it."""
    tails = {"p/gemm": lambda repeats: tail} if tail else {}
    variants = {"p/gemm": [("t", lambda: ours)]}
    found = searched({"products": {"p": Timed(*times)}, "variants": variants, "tails": tails})
    assert found == ({} if wanted is None else {"p/gemm": wanted})


@pytest.mark.parametrize(
    ("times", "ours", "launches", "rivals"),
    [
        # Ours and the library's that are nearly as fast; never what is slower by far, or wrong.
        ((5.0, 4.0), Timed(5.0, 9.0, 4.5), 3, {"p/gemm": ["t2", "t0"]}),
        ((5.0, 4.0), Timed(3.5, 3.6), 3, {"p/gemm": ["t1", "1"]}),
        ((5.0, 4.0), Timed(4.5, right=False), 3, {"p/gemm": []}),
        # Of a network in which a launch matters little, none.
        ((5.0, 4.0), Timed(4.5), timed_plans.FEW_LAUNCHES + 1, {}),
    ],
)
def test_a_search_keeps_what_is_nearly_as_fast(searched, times, ours, launches, rivals):
    variants, steps = {"p/gemm": [("t", lambda: ours)]}, [SimpleNamespace(call=True)] * launches
    found = {}
    section = {"products": {"p": Timed(*times)}, "variants": variants, "steps": steps}
    searched(section, rivals=found)
    assert found == rivals


def test_what_the_compiler_refuses_is_never_chosen(bound, sections, monkeypatch):
    executable, _ = bound(sections("lenet"), "tf32", CHOICES)
    found = offered(executable)

    def refuse(*_, **__):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(tensor_dense, "Kernel", refuse)
    assert timed_plans.begun([*found.values()]) == []
    for candidates in found.values():
        assert timed_plans.best(candidates, 0, 1.0)[0] == float("inf")


def test_the_most_promising_of_each_are_compiled_first():
    done = []
    every = [
        SimpleNamespace(preparations=lambda n=n, c=c: [lambda i=i: done.append((c, i)) for i in n])
        for c, n in enumerate((range(2), range(3)))
    ]
    timed_plans.begun(every)
    assert done == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
