"""Training in bfloat16 on the processor: every operation, small networks, what they are bound to.

Activations and their gradients are rounded to eight digits between operations. Parameters, their
gradients, statistics, losses and what enters or leaves are float32.
"""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn import backend
from dnnstack.backends.onednn.bind import BFLOAT16
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.library import library
from dnnstack.backends.onednn.memory import Descriptor
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import BatchNorm, BatchNormBackward

from ...support.feeding import losses_of
from ...support.op_cases import CASES
from ...support.outcomes import outcome
from ...support.rows import rows
from ...support.specs import layers_of, spec

FP32 = float(np.finfo(np.float32).eps)
# Half a unit in the last place of eight digits.
ROUNDING = 2.0**-9
NET = layers_of(
    "[conv2d: {filters: 20, kernel_size: 3, use_bias: false}, batch_norm, relu, max_pool2d, "
    "conv2d: {filters: 18, kernel_size: 3}, gelu, flatten, dense: {units: 32}, tanh, "
    "dense: {units: 10}, softmax]"
)


@pytest.fixture(autouse=True)
def bfloat16(onednn):
    if not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")


def rounded(array):
    """The nearest numbers that bfloat16 has, halves to even."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    up = 0x7FFF + ((bits >> 16) & 1)
    return ((bits + up.astype(np.uint32)) & np.uint32(0xFFFF0000)).view(np.float32)


def drafted(rng, name, law):
    draft = CASES[name](rng, law)
    if any(type(op) in BFLOAT16 for op in draft.graph.ops):
        for tensor, value in draft.values.items():
            if value.dtype == np.float32:
                draft.values[tensor] = rounded(value)
    return draft


def outcomes(executable, draft, inside):
    for tensor, value in draft.values.items():
        executable.write(tensor, value.copy())
    executable.run(draft.graph.name, draft.steps)
    written = dict.fromkeys(t for op in draft.graph.ops for t in op.writes())
    # The memory of what is read again may then be given away.
    kept = [t for t in written if not inside or not draft.graph.consumers(t)]
    return {tensor: executable.read(tensor) for tensor in kept}


def expected(draft):
    sections = {draft.graph.name: draft.graph}
    exactly = ReferenceBackend(1).compile(sections, Options("fp64", fusion=False))
    return outcomes(exactly, draft, False)


@pytest.mark.usefixtures("poison")
@rows("name", CASES)
def test_operation(onednn, name):
    """Against the reference in float64, on values that bfloat16 holds exactly.

    An operation without a kernel for bfloat16 has no more error than in float32.
    """
    rng = np.random.default_rng(len(name))
    drafts = [drafted(rng, name, law) for law in ("normal", "ties", "zeros")]
    wanted = [expected(draft) for draft in drafts]
    check(onednn, drafts, wanted, inside=False)
    for draft in drafts:
        # Nobody outside asks for what it computes, as in the middle of a network.
        draft.graph.results.clear()
    check(onednn, drafts, wanted, inside=True)


def check(onednn, drafts, wanted, inside):
    executable = None
    for draft, want in zip(drafts, wanted, strict=True):
        sections = {draft.graph.name: draft.graph}
        bf16 = Options("bf16", fusion=False, tune=False)
        executable = executable or onednn.compile(sections, bf16)
        rounded = any(type(op) in BFLOAT16 for op in draft.graph.ops)
        step = ROUNDING * (2.0 + 2.0 * np.sqrt(draft.length))
        exact = FP32 * (16.0 + 4.0 * np.sqrt(draft.length))
        for tensor, got in outcomes(executable, draft, inside).items():
            value, where = want[tensor], f"{draft.law} {tensor.name}, inside: {inside}"
            assert got.dtype == tensor.dtype, where
            if value.dtype.kind != "f":
                np.testing.assert_array_equal(got, value, where)
                continue
            size = max(1.0, float(np.abs(value).max(initial=0.0)))
            tolerance = (step if rounded else exact) * size
            np.testing.assert_allclose(got, value, rtol=0.0, atol=tolerance, err_msg=where)


def table(make, precision, layout, specs=NET):
    """A tuning table that fits, with one layout for all convolutions."""
    _, _, trial = make(specs, options=Options(precision, tune=False))
    choices = dict.fromkeys(trial.tuning.choices, layout)
    return Tuning("onednn", trial.tuning.environment, trial.tuning.graph, choices)


@pytest.mark.parametrize("layout", ["nhwc", "nChw16c"])
def test_losses_follow_those_of_fp32(make, layout):
    """Ten epochs of four steps, 64 pictures of noise learnt by heart.

    The first loss is within 0.1%, each of the first 16 within 0.03, an epoch's mean within 0.05.
    """
    curves = {}
    for precision in ("fp32", "bf16"):
        tuning = table(make, precision, layout)
        _, graphs, executable = make(NET, options=Options(precision, tuning=tuning))
        assert not executable.notices
        curves[precision] = np.array(losses_of(executable, graphs["train"], 40))
    exact, rounded = curves["fp32"], curves["bf16"]
    epochs = exact.reshape(10, 4).mean(1)
    assert epochs[-1] < 0.1 * epochs[0]
    assert not np.array_equal(exact, rounded), "nothing was computed in bfloat16"
    assert abs(rounded[0] - exact[0]) < 1e-3 * exact[0]
    np.testing.assert_allclose(rounded[:16], exact[:16], rtol=0, atol=0.03)
    np.testing.assert_allclose(rounded.reshape(10, 4).mean(1), epochs, rtol=0, atol=0.05)


def types(call):
    """The type of every argument that is a memory: src=bf16 and the like."""
    return {name: text.split()[0] for name, text in call.arguments.items()}


def test_layouts_are_timed_in_the_precision_asked_for(make, monkeypatch):
    timed = []

    class Watched(backend.OneDnnExecutable):
        def step_seconds(self, section, repeats):
            timed.append(any("bf16" in types(call).values() for call in self.calls(section)))
            return super().step_seconds(section, 1)

    monkeypatch.setattr(backend, "OneDnnExecutable", Watched)
    for precision in ("fp32", "bf16"):
        timed.clear()
        make(NET, options=Options(precision))
        assert len(timed) > 2
        assert set(timed) == {precision == "bf16"}


@pytest.mark.parametrize("name", ["nhwc", "nchw", "nChw16c", "nChw8c"])
def test_a_copy_of_another_type_keeps_the_layout(name):
    for shape in ((2, 20, 5, 3), (2, 1, 5, 3)):
        rounded = Descriptor.of(shape, name, "bfloat16")
        assert rounded.retyped("float32") == Descriptor.of(shape, name)
        assert (rounded.dtype, rounded.retyped("float32").dtype) == ("bfloat16", "float32")


def test_memory_is_not_overwritten_while_somebody_needs_it(make):
    """A sum is read as it is by one branch, and by a cast of it by the other."""
    inner = [spec("tanh"), spec("conv2d", filters=16, kernel_size=1)]
    specs = (
        *(spec("conv2d", filters=16, kernel_size=3), spec("residual", body=[spec("scaled_tanh")])),
        *(spec("tanh"), spec("residual", body=[spec("scaled_tanh"), *inner])),
        *(spec("flatten"), spec("dense", units=10)),
    )
    values = []
    for precision in ("fp32", "bf16"):
        network, graphs, executable = make(specs, options=Options(precision, tune=False))
        executable.run("train")
        gradients = [p.tensor for p in network.parameters()]
        values.append([executable.read(graphs["train"].gradient(p)) for p in gradients])
    for exact, rounded in zip(*values, strict=True):
        size = float(np.abs(exact).max())
        np.testing.assert_allclose(rounded, exact, rtol=0, atol=0.02 * size)


def test_a_table_for_another_precision_is_a_misfit(make):
    given = Options("bf16", tuning=table(make, "fp32", "nhwc"))
    _, _, executable = make(NET, options=given)
    (notice,) = executable.notices
    assert "precision was fp32, now it is bf16" in notice


def test_a_processor_without_it_is_named(make, monkeypatch):
    monkeypatch.setattr(library(), "_isa", lambda: 39)
    with pytest.raises(BackendUnavailableError) as caught:
        make(options=Options("bf16"))
    assert str(caught.value) == (
        "precision 'bf16': this processor has neither AVX512_BF16 nor AMX (oneDNN uses "
        "avx512_core here); set run.precision to auto or fp32"
    )


@pytest.mark.parametrize("forward", [True, False])
def test_batch_norm_of_few_values_with_a_large_eps(forward):
    """The unbiased estimate and eps matter; backward alone works the variance out."""
    shape, eps = (3, 16, 2, 2), 4.0
    graph = Graph("one", 1)
    x, dy = (graph.tensor(name, shape, role="input") for name in ("x", "dy"))
    role = "activation" if forward else "input"
    mean, inverse = (graph.tensor(name, (16,), role=role) for name in ("mean", "inverse_std"))
    moved = [graph.tensor(name, (16,), role="state") for name in ("running_mean", "running_var")]
    draw = np.random.default_rng(1)
    given = {t: draw.integers(-8, 9, shape).astype(np.float32) / 4 for t in (x, dy)}
    if forward:
        rule = {"momentum": 0.5, "eps": eps, "running_mean": moved[0], "running_var": moved[1]}
        y = graph.tensor("y", shape)
        graph.add(BatchNorm(x=x, y=y, mean=mean, inverse_std=inverse, **rule))
        given |= {tensor: np.full(16, 3, np.float32) for tensor in moved}
    else:
        given[mean] = given[x].mean((0, 2, 3))
        given[inverse] = 1 / np.sqrt(given[x].var((0, 2, 3)) + np.float32(eps))
    dx = graph.tensor("dx", shape)
    graph.add(BatchNormBackward(x=x, dy=dy, mean=mean, inverse_std=inverse, dx=dx, eps=eps))
    wanted = [dx, *([y, mean, inverse, *moved] if forward else [])]
    graph.results.update({tensor.name: tensor for tensor in wanted})
    tried = OneDnnExecutable({"one": graph}, Tuning("onednn"), 1, activations="bfloat16")
    exact = ReferenceBackend(1).compile({"one": graph}, Options("fp64"))
    assert any(call.library == "oneDNN" for call in tried.calls("one"))
    got, want = (outcome(each, given, wanted) for each in (tried, exact))
    for name, value in want.items():
        limit = 0.01 if name in ("dx", "y") else 1e-5
        np.testing.assert_allclose(got[name], value, rtol=0, atol=limit)
