"""Every operation on every backend against the reference in float64."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import chain

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Executable, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.reference.linear import conv2d
from dnnstack.graph import ops
from dnnstack.graph.graph import Tensor

from ..support.op_cases import CASES
from ..support.op_draft import Draft
from ..support.opened import NAMES, opened
from ..support.operations import OPERATIONS
from ..support.rows import AT_ONCE, rows

# What tensor cores compute, and what works on its results in less precision.
PRODUCTS = (
    ops.MatMul,
    ops.Conv2d,
    ops.Conv2dBackwardData,
    ops.Conv2dBackwardFilter,
    ops.BiasAdd,
    ops.BiasGrad,
    ops.Activation,
    ops.ActivationBackward,
    ops.Pool2d,
)
EPSILON = float(np.finfo(np.float32).eps)


def reference() -> Backend:
    return ReferenceBackend(1)


@pytest.fixture(params=NAMES)
def backend(request):
    return opened(request.param)


def compiled(backend: Backend, draft: Draft, precision: str) -> Executable:
    options = Options(precision, fusion=False, tune=False)  # type: ignore[arg-type]
    return backend.compile({draft.graph.name: draft.graph}, options)


def results(executable: Executable, draft: Draft) -> dict[Tensor, Array]:
    """Write the draft's inputs, run it, read everything that it computes."""
    for tensor, value in draft.values.items():
        executable.write(tensor, value.copy())
    executable.run(draft.graph.name, draft.steps)
    computed = dict.fromkeys(chain.from_iterable(op.writes() for op in draft.graph.ops))
    return {tensor: executable.read(tensor) for tensor in computed}


def assert_close(got: Array, want: Array, length: int, name: str) -> None:
    """Rounding errors of a sum grow like the square root of its length."""
    assert got.shape == want.shape, name
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, name)
        return
    size = max(1.0, float(np.abs(want).max(initial=0.0)))
    tolerance = EPSILON * (16.0 + 4.0 * np.sqrt(length)) * size
    np.testing.assert_allclose(got, want, rtol=0.0, atol=tolerance, err_msg=name)


@lru_cache(maxsize=AT_ONCE)
def expected(name: str) -> list[tuple[Draft, dict[Tensor, Array]]]:
    """Drafts by every law, and what the reference computes of each in float64."""
    rng = np.random.default_rng(len(name))
    drafts = [CASES[name](rng, law) for law in ("normal", "ties", "zeros")]
    return [(draft, results(compiled(reference(), draft, "fp64"), draft)) for draft in drafts]


def check(name: str, backend: Backend) -> None:
    executable = None
    for draft, want in expected(name):
        # One executable for all: what a run leaves behind must not show in the next.
        executable = executable or compiled(backend, draft, "fp32")
        got = results(executable, draft)
        for tensor in want:
            assert_close(got[tensor], want[tensor], draft.length, f"{draft.law} {tensor.name}")
            assert got[tensor].dtype == tensor.dtype, tensor.name
        for tensor, value in draft.values.items():
            if tensor not in got:
                changed = f"{draft.law}: '{tensor.name}' was changed"
                np.testing.assert_array_equal(executable.read(tensor), value, changed)


@pytest.mark.usefixtures("poison")
@rows("name", CASES)
def test_operation(name, backend):
    check(name, backend)


@pytest.mark.usefixtures("poison", "norms_by_onednn")
@rows("name", [name for name in CASES if name.startswith("batch_norm")])
def test_batch_norm_by_onednn(name):
    """As of many values; otherwise NumPy computes cases this small."""
    check(name, opened("cpu"))


def rounded(values: Array, bits: int) -> Array:
    """Float values cut to so many bits of their fraction."""
    if values.dtype != np.float32:
        return values
    mask = np.uint32(0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF)
    return (values.view(np.uint32) & mask).view(np.float32)


# Bits of an operand's fraction; how coarse results are: TF32's products are exact in float32; how
# much of an activation is rounded away where it is stored.
NUMBERS = {"tf32": (10, 64 * EPSILON, 0.0), "bf16": (7, 2.0**-7, 2.0**-9)}


def lost_in_variances(draft: Draft, want: dict[Tensor, Array], step: float) -> dict[Tensor, Array]:
    """What each inverse_std may lose, by channel, because its rows were rounded when stored.

    Errors of at most d = step * max|x| move a standard deviation s by at most d. Where s is small
    beside x, that is much of s, and so of 1 / sqrt(s^2 + eps).
    """
    lost = {}
    for op in draft.graph.ops:
        if isinstance(op, ops.BatchNorm) and op.x in want:
            x = want[op.x]
            axes = tuple(axis for axis in range(x.ndim) if axis != 1)
            least = (x.std(axes) - step * np.abs(x).max(axes)).clip(0.0)
            lost[op.inverse_std] = 1.0 / np.sqrt(least**2 + op.eps) - want[op.inverse_std]
    return lost


def lost_in_operands(draft: Draft, want: dict[Tensor, Array], bits: int) -> dict[Tensor, Array]:
    """What a convolution may lose whose pictures another operation computed.

    They have more bits than an operand, which rounds each by at most 2^-bits of itself, towards
    zero or not: at most so much of the sum of the products' absolute values.
    """
    lost = {}
    for op in draft.graph.ops:
        if isinstance(op, ops.Conv2d) and op.x in want:
            sums = replace(op, bias=None, activation=None)
            weights = draft.values[op.w].astype(np.float64)
            lost[op.y] = 2.0**-bits * conv2d(sums, np.abs(want[op.x]), np.abs(weights))
    return lost


def excess(
    draft: Draft, got: dict[Tensor, Array], want: dict[Tensor, Array], precision: str
) -> dict[Tensor, float]:
    """By how much the largest error of each result is beyond what the precision must lose."""
    bits, coarse, step = NUMBERS[precision]
    lost = lost_in_variances(draft, want, step) | lost_in_operands(draft, want, bits)
    beyond = {}
    for tensor in want:
        size = max(1.0, float(np.abs(want[tensor]).max(initial=0.0)))
        tolerance = (coarse + EPSILON * (16.0 + 4.0 * np.sqrt(draft.length))) * size
        error = np.abs(np.subtract(got[tensor], want[tensor], dtype=np.float64))
        beyond[tensor] = float((error - lost.get(tensor, 0.0)).max(initial=0.0)) - tolerance
    return beyond


@pytest.mark.cuda
@pytest.mark.parametrize("precision", NUMBERS)
def test_less_precision_loses_no_more_than_it_must(precision):
    """Operands that TF32 or bfloat16 holds exactly: only results are rounded."""
    backend = opened("cuda")
    bits, _, _ = NUMBERS[precision]
    tried = 0
    for name, make in CASES.items():
        draft = make(np.random.default_rng(len(name)), "normal")
        if not any(isinstance(op, PRODUCTS) for op in draft.graph.ops):
            continue
        tried += 1
        for tensor, value in draft.values.items():
            draft.values[tensor] = rounded(value, bits)
        got = results(compiled(backend, draft, precision), draft)
        want = results(compiled(reference(), draft, "fp64"), draft)
        for tensor, beyond in excess(draft, got, want, precision).items():
            assert beyond <= 0.0, f"{name} {tensor.name}: {beyond} more than it must lose"
    assert tried > 20


@pytest.mark.parametrize("kind", ops.ACTIVATIONS)
def test_what_tf32_loses_in_a_second_product_is_known(kind):
    """Cut to TF32's ten bits nothing is beyond the bound, cut to seven it is."""
    draft = CASES[f"conv2d-blocks-{kind}"](np.random.default_rng(1), "normal")
    for tensor, value in draft.values.items():
        draft.values[tensor] = rounded(value, 10)
    want = results(compiled(reference(), draft, "fp64"), draft)
    first, second = draft.graph.ops
    assert isinstance(first, ops.Conv2d)
    assert isinstance(second, ops.Conv2d)
    for bits, fine in ((10, True), (7, False)):
        pictures = rounded(want[first.y].astype(np.float32), bits).astype(np.float64)
        got = want | {second.y: conv2d(second, pictures, draft.values[second.w])}
        assert (excess(draft, got, want, "tf32")[second.y] <= 0.0) == fine


def test_every_operation_has_a_case():
    rng = np.random.default_rng(0)
    tried = {type(op) for make in CASES.values() for op in make(rng, "normal").graph.ops}
    # Fused has its own tests: it means what its parts mean.
    assert tried | {ops.Fused} == OPERATIONS
