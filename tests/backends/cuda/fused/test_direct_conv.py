"""Convolutions of few channels by a kernel of ours: its results, and how a search comes to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import timed_plans
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.backends.cuda.fused import direct_conv
from dnnstack.backends.cuda.libraries.layout import Layout
from dnnstack.backends.cuda.libraries.runtime import device
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Conv2d

from ....support.op_draft import Draft
from ....support.timed import Timed

NCHW = {"layout": "nchw"}
ODD, SAME = Window((3, 3), padding=(1, 1, 1, 1)), Window((2, 2), padding=(0, 1, 0, 1))
WHITENING = ((7, 3, 32, 32), Window((2, 2)), 24)
# Pictures, window, filters, activation, bias, and what differs from the default choices.
CASES = {
    "whitening": (*WHITENING, "gelu", True, {}),
    "whitening nchw": (*WHITENING, "gelu", True, NCHW),
    "odd": ((7, 3, 5, 7), ODD, 20, "relu", True, {}),
    "odd nchw": ((7, 3, 5, 7), ODD, 20, "relu", True, NCHW),
    "one picture": ((1, 1, 5, 7), ODD, 33, "gelu", False, {}),
    "one picture nchw": ((1, 1, 5, 7), ODD, 33, None, True, NCHW),
    "alone": ((7, 4, 5, 7), ODD, 33, None, False, {}),
    "sigmoid": ((2, 2, 5, 7), SAME, 20, "sigmoid", True, {}),
    "elu": ((2, 2, 5, 7), SAME, 3, "elu", False, {}),
    "unpadded": ((2, 3, 6, 6), ODD, 21, "gelu", True, {"pad": "1"}),
    "half padded": ((2, 3, 6, 6), ODD, 33, "relu", True, {"pad": "12"}),
    "strided": ((2, 3, 9, 8), Window((3, 2), (2, 3), (1, 2, 0, 1)), 24, "gelu", True, {}),
    "dilated": ((2, 2, 9, 11), Window((3, 3), (1, 2), (2, 1, 0, 3), (2, 3)), 9, "tanh", True, {}),
    "dilated nchw": ((2, 2, 9, 11), Window((3, 3), (1, 2), (2, 1, 0, 3), (2, 3)), 9, None, 0, NCHW),
    "many taps": ((2, 3, 11, 9), Window((4, 4)), 128, "silu", True, {}),
    "uneven parts": ((200, 1, 5, 3), ODD, 8, "gelu", True, {}),
    "point": ((3, 3, 6, 5), Window((1, 1)), 16, "gelu", True, {}),
}


def convolution(picture, window, filters, activation, bias):
    """A section with this convolution alone, and values that bfloat16 holds."""
    draft = Draft(np.random.default_rng(filters), "normal")
    x = draft.floats("x", *picture)
    w = draft.floats("w", filters, picture[1], *window.kernel, role="parameter")
    b = draft.floats("b", filters, role="parameter") if bias else None
    y = draft.out("y", picture[0], filters, *window.output(*picture[2:]))
    tail = {"bias": b, "activation": activation, "activation_alpha": 0.7}
    draft.graph.add(Conv2d(x=x, w=w, y=y, window=window, **tail))
    for tensor, value in draft.values.items():
        if tensor != b:
            value.view(np.uint32)[...] &= 0xFFFF0000
    return draft, y


def computed(backend, draft, y, options):
    """The output of a run behind which all bytes of the one before are wrong; the executable."""
    executable = backend.compile({"one": draft.graph}, options)
    for tensor, value in draft.values.items():
        executable.write(tensor, value)
    if backend.name == "cuda":
        with device().stream:
            executable._buffer(y).array.fill(0x7F)
    executable.run("one")
    return executable.read(y), executable


@pytest.mark.cuda
@pytest.mark.parametrize("shape", [0, 1])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_the_reference_does(cuda, name, precision, shape):
    *geometry, differing = CASES[name]
    draft, y = convolution(*geometry)
    choices = {**DEFAULT_CHOICES[precision], **differing, "one//forward": f"d{shape}"}
    table = Tuning("cuda", choices=choices)
    got, executable = computed(cuda, draft, y, Options(precision, tuning=table))
    assert not executable.notices
    names = [call.function for call in executable.calls("one") if call.function != "convert_same"]
    assert names[-1] == "direct_conv"
    assert "bias_activation" not in names
    want, _ = computed(ReferenceBackend(1), draft, y, Options("fp64"))
    size = max(1.0, float(np.abs(want).max()))
    # bfloat16 has eight bits: the result is rounded, and nothing before it.
    relative = 2e-6 if precision == "fp32" else 2.0**-8
    np.testing.assert_allclose(got, want, rtol=relative, atol=2e-6 * size)
    held = executable._buffer(y)
    stored = np.asarray(held.array.get())
    channels = held.layout.stored[1]
    if held.layout.nhwc:
        assert not stored.reshape(-1, channels)[:, y.shape[1] :].any()


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_numbers_that_are_none_stay_so(cuda, precision):
    draft, y = convolution((2, 3, 4, 4), Window((1, 1)), 8, "gelu", False)
    x = next(t for t in draft.values if t.name == "x")
    w = next(t for t in draft.values if t.name == "w")
    draft.values[w][...] = np.eye(8, 3)[:, :, None, None]
    draft.values[x][...] = 0.0
    draft.values[x][0, 0, 0, :3] = (np.nan, np.inf, -1e30)
    choices = {**DEFAULT_CHOICES[precision], "one//forward": "d0"}
    table = Tuning("cuda", choices=choices)
    got, _ = computed(cuda, draft, y, Options(precision, tuning=table))
    assert np.isnan(got[0, 0, 0, 0])
    assert got[0, 0, 0, 1] == np.inf
    assert got[0, 0, 0, 2] == 0.0
    assert not got[1].any()


@pytest.mark.parametrize(
    ("layer", "choice"),
    [("conv2d_2", "d0"), ("conv2d_1", "d2"), ("conv2d_1", "d"), ("conv2d_1", "")],
)
def test_a_choice_that_cannot_be_had_is_an_error(bound, sections, layer, choice):
    """One that compiling for the device answers with a search."""
    choices = {"layout": "nhwc", "pad": "8", "streams": "1", f"train/{layer}/forward": choice}
    with pytest.raises(ValueError, match=r"shape 2 of the tuning|'.*' for 'train/"):
        bound(sections("cifar"), "tf32", choices)


@pytest.mark.parametrize(
    ("geometry", "fits"),
    [
        (WHITENING, True),
        (((8, 4, 300, 300), ODD, 128), True),
        (((8, 5, 32, 32), ODD, 24), False),
        (((8, 3, 32, 32), ODD, 129), False),
        (((8, 3, 32, 32), Window((5, 5)), 24), False),
        (((8, 3, 32, 32), Window((1, 9)), 24), False),
        (((1, 3, 9, 20000), ODD, 24), False),
        (((1, 1, 30000, 1200), ODD, 64), False),
    ],
)
def test_it_takes_what_fits(geometry, fits):
    picture, window, filters = geometry
    y = Tensor("y", (picture[0], filters, *window.output(*picture[2:])), "float32", "activation")
    x = replace(y, name="x", shape=picture)
    w = replace(y, name="w", shape=(filters, picture[1], *window.kernel))
    op = Conv2d(x=x, w=w, y=y, window=window)
    assert direct_conv.takes(op, Layout(y.shape, y.shape, True)) == fits
    assert not direct_conv.takes(replace(op, groups=picture[1]), Layout(y.shape, y.shape, True))


@pytest.mark.parametrize("asked", [8.0, None])
def test_every_section_has_its_share_of_a_search(searched, monkeypatch, asked):
    """The last plan is the fastest, and each costs a second."""
    now = [0.0]
    monkeypatch.setattr(timed_plans.time, "perf_counter", lambda: now[0])

    class Slow(Timed):
        def seconds(self, index, workspace, repeats):
            now[0] += 1.0 if repeats == 1 else 0.0
            return super().seconds(index, workspace, repeats)

    every = [Slow(*range(40, 0, -1)) for _ in range(2)]
    sections = [{"convolutions": {name: each}} for name, each in zip("ab", every, strict=True)]
    monkeypatch.setattr(timed_plans, "PLAN_SECONDS", 20.0)
    options = Options("tf32", tune_seconds=asked)
    found = searched(*sections, options=options, seconds=8.0)
    # Half of the seconds asked for, or of those for two convolutions.
    timed = 4 if asked else 20
    assert all(abs(int(found[name]) - timed) <= 1 for name in "ab")


@pytest.mark.parametrize("choice", ["d7", "dx", "t1-2", "tx", "p", "9", "b3"])
def test_a_choice_of_training_that_does_not_serve_elsewhere_is_left_out(bound, sections, choice):
    """Not only in the section that trains, as where an evaluation is compiled alone."""
    graphs = {"evaluate": sections("cifar")["evaluate"]}
    layout = {"layout": "nhwc", "pad": "8", "streams": "1"}
    for layer in ("conv2d_1", "conv2d_2"):
        executable, _ = bound(graphs, choices={**layout, f"train/{layer}/forward": choice})
        found = [call.function for call in executable.calls("evaluate")]
        executable.close()
        assert found.count("cudnnBackendExecute") == 2


def test_an_evaluation_asks_for_the_plan_of_training(bound, sections, monkeypatch):
    """That of the first section that trains the layer; a section that trains has its own."""
    layout = {"layout": "nhwc", "pad": "8", "streams": "1"}
    executable, _ = bound(sections("cifar"), choices=layout)
    kind = type(executable._streams[0].convolution)
    executable.close()
    asked = []
    monkeypatch.setattr(kind, "choose", lambda _, *chosen: asked.append(chosen), raising=False)
    named = {
        "train-60/conv2d_2/forward/plan": "later",
        "train/conv2d_2/forward/plan": "first",
        "train/conv2d_2/forward": "4",
    }
    executable, _ = bound(sections("cifar"), choices={**layout, **named})
    executable.close()
    assert asked[:2] == [(None, ""), (4, "")]
    assert asked[-2:] == [(None, ""), (None, "first")]
    assert {like for _, like in asked[:-1]} == {""}
