"""Filter gradients for which a kernel of oneDNN is wrong, and the trial that finds such kernels."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn import convolution, selfcheck
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.library import library
from dnnstack.backends.onednn.memory import ALIGNMENT, Descriptor, Memory
from dnnstack.backends.onednn.primitive import Attributes, NoFastKernel, Primitive, PrimitiveDesc
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window

from ...support.op_cases_windows import Geometry, conv2d_backward_filter
from ...support.op_draft import Draft
from ...support.specs import spec

# Pictures of 12, 6, 3, 2, 1 and 1 pixel: the last two are narrower than the stride.
CONVOLUTIONS = [
    spec("conv2d", filters=filters, kernel_size=3, stride=2, padding=1)
    for filters in (8, 16, 16, 32, 32, 32)
]
NET = (
    *[layer for convolution in CONVOLUTIONS for layer in (convolution, spec("relu"))],
    *(spec("flatten"), spec("dense", units=10), spec("softmax")),
)

AROUND = (1, 1, 1, 1)
WIDELY = (2, 2, 2, 2)
SLIDING = Window((3, 3), (2, 2), AROUND)
HOLES = Window((3, 3), (1, 1), WIDELY, (2, 2))
ROWS, BLOCKS = "nhwc", "nChw16c"
# By name: a geometry for which jit_bf16 of oneDNN 3.2 is wrong, and the layouts in which it is.
WRONG = {
    "pixel": (Geometry((3, 16, 1, 1), SLIDING, 16), (ROWS, BLOCKS)),
    "column": (Geometry((1, 16, 6, 1), Window((5, 5), (3, 3), (1, 1, 2, 2)), 20), (ROWS,)),
    "even": (Geometry((1, 8, 3, 1), Window((2, 2), (3, 3), (0, 0, 1, 1)), 16), (ROWS,)),
    "high": (Geometry((1, 64, 4, 2), Window((4, 6), (1, 4), WIDELY), 16), (ROWS, BLOCKS)),
    "uneven": (Geometry((2, 32, 2, 2), Window((3, 3), (4, 4), (1, 0, 2, 1)), 6, 2), (ROWS,)),
    "wide": (Geometry((3, 64, 2, 2), Window((5, 5), (4, 4), WIDELY), 8), (ROWS, BLOCKS)),
    "beside": (Geometry((5, 32, 7, 3), Window((5, 5), (4, 4), (0, 0, 3, 3)), 64), (ROWS, BLOCKS)),
    "depthwise": (Geometry((3, 8, 2, 1), SLIDING, 8, 8), (ROWS,)),
    "colour": (Geometry((2, 3, 3, 2), Window((3, 3), (4, 3), (0, 0, 2, 2)), 20), (ROWS,)),
    "colour_row": (Geometry((2, 3, 4, 1), Window((2, 1), (1, 2)), 32), (BLOCKS,)),
    "holes": (Geometry((2, 20, 32, 32), HOLES, 16), (ROWS,)),
    "depthwise_holes": (Geometry((1, 64, 32, 32), HOLES, 64, 64), (ROWS,)),
    "pair_holes": (Geometry((1, 8, 9, 49), Window((1, 1), dilation=(2, 2)), 6, 2), (ROWS,)),
    "row_holes": (Geometry((1, 20, 6, 78), Window((1, 1), dilation=(2, 1)), 20, 20), (ROWS,)),
}
PLACES = [(name, layout) for name, (_, layouts) in WRONG.items() for layout in layouts]
# Geometries beside those, for which it is right.
RIGHT = {
    "as_wide": (Geometry((3, 16, 2, 2), SLIDING, 16), BLOCKS),
    "one_tap": (Geometry((3, 16, 4, 4), Window((1, 1)), 16), ROWS),
    "holes_in_rows": (Geometry((1, 20, 32, 32), Window((3, 3), dilation=(1, 2)), 16), ROWS),
    "short_rows": (Geometry((1, 20, 32, 28), HOLES, 16), ROWS),
    "full_vectors": (Geometry((1, 32, 32, 32), HOLES, 16), ROWS),
}


@pytest.fixture(autouse=True)
def bfloat16(onednn):
    if not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")


@pytest.fixture
def jit_bf16():
    """The kernels that are known to be wrong; a processor with AMX gets others."""
    if "amx" in library().isa():
        pytest.skip(f"oneDNN has other kernels for {library().isa()}")


@pytest.fixture(autouse=True)
def untried(monkeypatch):
    monkeypatch.setattr(selfcheck, "_passed", {})


@pytest.fixture
def poison(monkeypatch):
    """Every memory, what lies behind it, and a filter gradient's scratchpad start as NaN."""
    from dnnstack.backends.onednn import memory

    zeroed, describe, bind = memory.aligned, PrimitiveDesc.__init__, Primitive.__init__

    def filled(nbytes):
        buffer = zeroed(nbytes + 4096)
        buffer[...] = 0xFF
        return buffer[:nbytes]

    def described(self, kind, *arguments, shown=None):
        if kind == "convolution_backward_weights" and arguments[-1] is None:
            arguments = (*arguments[:-1], Attributes(own_scratchpad=True))
        describe(self, kind, *arguments, shown=shown)

    def bound(self, desc, arguments):
        layout = desc.descriptor("scratchpad")
        if layout.nbytes and "scratchpad" not in arguments:
            arguments = {**arguments, "scratchpad": Memory(layout)}
        bind(self, desc, arguments)

    monkeypatch.setattr(memory, "aligned", filled)
    monkeypatch.setattr(PrimitiveDesc, "__init__", described)
    monkeypatch.setattr(Primitive, "__init__", bound)


def drafted(geometry, bias_grad=True):
    """A filter gradient of small whole numbers, whose sums are exact."""
    draft = Draft(np.random.default_rng(1), "ties")
    conv2d_backward_filter(draft, geometry, bias_grad)
    return draft


def bound(draft, layout, activations="bfloat16", threads=1):
    tuning = Tuning("onednn", choices={"": layout, "/filter": layout})
    return OneDnnExecutable({"one": draft.graph}, tuning, threads, activations=activations)


def assert_exact(executable, draft):
    exactly = ReferenceBackend(1).compile({"one": draft.graph}, Options("fp64", fusion=False))
    (op,) = draft.graph.ops
    for each in (exactly, executable):
        for tensor, value in draft.values.items():
            each.write(tensor, value.copy())
        each.run("one")
    for tensor in op.writes():
        np.testing.assert_array_equal(executable.read(tensor), exactly.read(tensor), tensor.name)


def gradient_call(executable):
    return executable.calls("one")[-1]


def source_type(call):
    return call.arguments["src"].split()[0]


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize("bias_grad", [False, True])
@pytest.mark.parametrize(("name", "layout"), PLACES)
def test_geometries_that_were_wrong(name, layout, bias_grad):
    draft = drafted(WRONG[name][0], bias_grad)
    assert_exact(bound(draft, layout), draft)


@pytest.mark.usefixtures("jit_bf16")
@pytest.mark.parametrize(("name", "layout"), PLACES)
def test_they_are_computed_in_float32_and_the_call_says_why(name, layout):
    call = gradient_call(bound(drafted(WRONG[name][0]), layout))
    assert (call.library, source_type(call)) == ("oneDNN", "f32")
    assert call.arguments["reason"] == "oneDNN has no correct bfloat16 kernel for it"
    call = gradient_call(bound(drafted(WRONG[name][0]), layout, activations="float32"))
    assert "reason" not in call.arguments


@pytest.mark.usefixtures("poison")
@pytest.mark.parametrize("name", RIGHT)
def test_no_more_geometries_than_need_be(name):
    geometry, layout = RIGHT[name]
    draft = drafted(geometry)
    executable = bound(draft, layout)
    assert source_type(gradient_call(executable)) == "bf16"
    assert_exact(executable, draft)


@pytest.mark.usefixtures("jit_bf16")
@pytest.mark.parametrize(("name", "layout"), PLACES)
def test_the_trial_finds_them_by_itself(name, layout, monkeypatch):
    """As it would find them in another version, on another processor."""
    monkeypatch.setattr(selfcheck, "has_known_fault", lambda op, desc: False)
    draft = drafted(WRONG[name][0])
    executable = bound(draft, layout)
    assert source_type(gradient_call(executable)) == "f32"
    assert_exact(executable, draft)


# Strided windows of 1 x 1 on 2 threads or more: the gradient is right, memory behind the scratchpad
# is overwritten.
OVERRUNS = Geometry((5, 8, 18, 16), Window((1, 1), (3, 2)), 3)


@pytest.mark.usefixtures("jit_bf16")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kernels_that_overrun_their_scratchpad_are_not_taken(dtype):
    draft = drafted(OVERRUNS)
    executable = bound(draft, ROWS, dtype, threads=2)
    call = gradient_call(executable)
    assert ("1x1" not in call.implementation) or ROWS not in call.arguments["src"]
    assert_exact(executable, draft)


@pytest.mark.parametrize("layout", [ROWS, BLOCKS])
@pytest.mark.usefixtures("poison")
def test_a_net_of_small_pictures_trains_alike_twice(make, layout):
    """Nothing of an earlier call, and no NaN, gets into its gradients."""
    runs = []
    for _ in range(2):
        _, _, trial = make(NET, options=Options("bf16", tune=False))
        choices = dict.fromkeys(trial.tuning.choices, layout)
        tuning = Tuning("onednn", trial.tuning.environment, trial.tuning.graph, choices)
        network, graphs, executable = make(NET, options=Options("bf16", tuning=tuning))
        losses = []
        for _ in range(20):
            executable.run("train")
            losses.append(float(executable.read(graphs["train"]["loss"])[0]))
        assert np.isfinite(losses).all()
        kept = [executable.read(p.tensor).tobytes() for p in network.parameters()]
        runs.append((losses, kept))
        types = [source_type(c) for c in executable.calls("train") if is_filter_gradient(c)]
        assert types[2:] == ["bf16"] * 4
        assert "amx" in library().isa() or types[:2] == ["f32"] * 2
    assert runs[0] == runs[1]


def is_filter_gradient(call):
    return call.function == "dnnl_convolution_backward_weights"


# ---------------------------------------------------------------- a kernel that fails on purpose

PLAIN = Geometry((4, 16, 8, 8), Window((3, 3), padding=AROUND), 16)


class Saboteur:
    """oneDNN, but for calls that run in the trial: ``spoil`` is what they do besides."""

    def __init__(self, spoil, only=""):
        self._spoil, self._only = spoil, only
        self.tried = []

    def __getattr__(self, name):
        return getattr(library(), name)

    def execute(self, *call):
        status = library().execute(*call)
        if self._only in self.tried[-1].implementation:
            return self._spoil(self.tried[-1].arguments) or status
        return status

    def watched(self, desc, arguments):
        self.tried.append(Primitive(desc, arguments))
        return self.tried[-1]


def sabotage(monkeypatch, *arguments):
    saboteur = Saboteur(*arguments)
    monkeypatch.setattr(selfcheck, "library", lambda: saboteur)
    monkeypatch.setattr(selfcheck, "Primitive", saboteur.watched)
    return saboteur


def last_value_missing(arguments):
    arguments["diff_weights"].array()[-1] = np.nan


def two_values_swapped(arguments):
    values = arguments["diff_weights"].array()
    values[:2] = values[1::-1].copy()


def bias_a_little_off(arguments):
    arguments["diff_bias"].array()[3] *= 1.01


def written_behind(arguments):
    buffer = arguments["diff_bias"].buffer
    ctypes.memset(buffer.ctypes.data + buffer.nbytes + 5, 0, 1)


def refused(arguments):
    return 5


FAULTS = (last_value_missing, two_values_swapped, bias_a_little_off, written_behind, refused)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_primitive_that_fails_is_not_taken(fault, monkeypatch):
    """None of them in bfloat16; in float32 each in turn, and NumPy's kernel at last."""
    saboteur = sabotage(monkeypatch, fault)
    draft = drafted(PLAIN)
    executable = bound(draft, ROWS)
    call = gradient_call(executable)
    assert call.library == "numpy"
    tried = [str(each.arguments["src"].descriptor).split()[0] for each in saboteur.tried]
    assert tried.count("bf16") == 1
    assert tried.count("f32") > 1
    assert_exact(executable, draft)


def test_float32_takes_over_from_bfloat16(monkeypatch):
    sabotage(monkeypatch, last_value_missing, "bf16")
    draft = drafted(PLAIN)
    executable = bound(draft, BLOCKS)
    assert source_type(gradient_call(executable)) == "f32"
    assert "no correct bfloat16 kernel" in gradient_call(executable).arguments["reason"]
    assert_exact(executable, draft)


def test_the_next_layout_takes_over_in_float32(monkeypatch):
    seen = []

    def first_alone(arguments):
        seen.append(str(arguments["src"].descriptor).split()[1])
        return 5 if seen[-1] == ROWS else 0

    sabotage(monkeypatch, first_alone)
    draft = drafted(PLAIN)
    executable = bound(draft, ROWS, activations="float32")
    assert seen[:2] == [ROWS, convolution.candidate_layouts()[0]]
    assert gradient_call(executable).arguments["src"].split()[1] == seen[1]
    assert_exact(executable, draft)


def test_each_geometry_is_tried_once(make, monkeypatch):
    saboteur = sabotage(monkeypatch, lambda arguments: 0)
    _, _, first = make(NET, options=Options("bf16", tune=False))
    calls = [call for call in first.calls("train") if is_filter_gradient(call)]
    # The fifth and the sixth convolution are alike, which only known faults keep from a trial.
    assert 0 < len(saboteur.tried) <= len(calls) == 6
    count = len(saboteur.tried)
    make(NET, options=Options("bf16", tune=False))
    assert len(saboteur.tried) == count
    # With other threads it may be another computation.
    bound(drafted(PLAIN), ROWS, threads=1)
    bound(drafted(PLAIN), ROWS, threads=2)
    assert len(saboteur.tried) == count + 2


def test_what_cannot_be_tried_is_taken(monkeypatch):
    """Nothing is known against it."""
    monkeypatch.setattr(selfcheck, "Attributes", lambda own_scratchpad: None)
    real = PrimitiveDesc.__init__
    assert selfcheck.passes(*unavailable())
    assert PrimitiveDesc.__init__ is real


def unavailable():
    (op,) = drafted(PLAIN).graph.ops
    desc = convolution.filter_gradient_desc(op, {}, "float32")

    def describe(op, attributes):
        raise NoFastKernel

    return op, desc, describe


@pytest.mark.parametrize("further", [0, 1000])
def test_memory_is_guarded_on_both_sides(further):
    layout = Descriptor.of((3, 5))
    guarded = selfcheck._Guarded(layout, further)
    assert guarded.memory.buffer.ctypes.data % ALIGNMENT == 0
    assert all(each.size >= selfcheck.GUARD + further for each in guarded._around)
    for side, place in ((0, -1), (1, 0)):
        assert guarded.is_intact()
        guarded._around[side][place] = 0
        assert not guarded.is_intact()
        guarded._around[side][place] = selfcheck.UNTOUCHED
