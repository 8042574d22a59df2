"""A convolution of few channels on tensor cores, and a bias's gradient, run on the processor.

Needs g++, no GPU. DNNSTACK_TENSOR_CONVS sets how many are drawn.
"""

from __future__ import annotations

import ctypes
import os
import random

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.fused.direct_conv import geometry_of, shapes_of
from dnnstack.backends.cuda.libraries.layout import BFLOAT, Layout
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.geometry import Window
from dnnstack.graph.ops import ACTIVATIONS, FROM_OUTPUT, ActivationBackward, BiasGrad, Conv2d

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, pointer
from ....support.op_draft import Draft
from ....support.tensor_convs import numbers

COUNT = int(os.environ.get("DNNSTACK_TENSOR_CONVS", "3"))
pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
WHITENING = ((3, 3, 32, 32), Window((2, 2)), 24, 24, "gelu", True)
# Pictures that are copied as a whole and in parts, one that is not; more filters than a warp has.
FIXED = [
    WHITENING,
    ((2, 3, 11, 16), Window((2, 2)), 70, 72, "sigmoid", False),
    ((2, 3, 9, 9), Window((4, 4), padding=(1, 2, 3, 0)), 128, 136, "tanh", True),
]


def drawn(seed):
    """A geometry with anything odd."""
    if seed < len(FIXED):
        return FIXED[seed]
    dice = random.Random(seed)
    while True:
        kernel = (dice.randint(1, 3), dice.randint(1, 4))
        height, width = (dice.randint(size, 17) for size in kernel)
        edges = tuple(dice.choice([0, size - 1]) for size in (kernel[0], *kernel, kernel[1]))
        stride, dilation = ((dice.choice([1, 1, 2]), dice.choice([1, 1, 3])) for _ in range(2))
        channels, filters = dice.randint(1, 4), dice.randint(1, 70)
        window = Window(kernel, stride, edges, dilation)
        if min(window.output(height, width)) > 0 and channels * window.area <= 48:
            break
    stored = -(-filters // 8) * 8 + 8 * dice.randint(0, 1)
    picture = (dice.randint(1, 5), channels, height, width)
    return picture, window, filters, stored, dice.choice(ACTIVATIONS), dice.random() < 0.7


class Emulated:
    """The kernels for a drawn convolution and one of their shapes."""

    def __init__(self, op, stored, numbers, folder):
        _, _, rows, columns = op.y.shape
        self.layout = Layout(op.y.shape, (op.y.shape[0], stored, rows, columns), True, dtype=BFLOAT)
        self.op, folder = op, folder / str(numbers["LINES"])
        folder.mkdir()
        fixed = geometry_of(op, self.layout) | numbers | {"BFLOAT": 1}
        self._library = library("tensor_direct", folder, fixed)

    def packed(self, values):
        return Layout(values.shape, values.shape, True, dtype=BFLOAT).pack(values)

    def operands(self, values):
        held = [self.packed(values[self.op.x]), self.packed(values[self.op.w])]
        return [*held, None if self.op.bias is None else values[self.op.bias]]

    def forward(self, operands, blocks):
        out = np.full(self.layout.size, 0x7FC0, np.uint16)
        alpha, n = ctypes.c_float(self.op.activation_alpha), self.op.x.shape[0]
        self._library.forward(*map(pointer, (*operands, out)), alpha, n, blocks)
        channels = out.reshape(-1, self.layout.columns)
        assert not channels[:, self.op.y.shape[1] :].any()
        return self.layout.unpack(out)

    def sums(self, operands, dy, blocks):
        slices = np.full((blocks, self.layout.columns), np.nan, np.float32)
        given = (*operands, self.layout.pack(dy), slices)
        alpha, n = ctypes.c_float(self.op.activation_alpha), self.op.x.shape[0]
        self._library.sums(*map(pointer, given), alpha, n, blocks)
        total = slices.astype(np.float64).sum(0)
        assert not total[self.op.y.shape[1] :].any()
        return total[: self.op.y.shape[1]]


def section(seed):
    """The convolution with its activation, and the gradient of the bias beside it."""
    picture, window, filters, stored, kind, bias = drawn(seed)
    draft, rng = Draft(np.random.default_rng(seed), "normal"), np.random.default_rng(seed)
    x, w = draft.floats("x", *picture), draft.floats("w", filters, picture[1], *window.kernel)
    shape = (picture[0], filters, *window.output(*picture[2:]))
    dy, b = draft.floats("dy", *shape), draft.floats("b", filters)
    for tensor in (x, w, dy):
        draft.values[tensor][...] = numbers(rng, tensor.shape, True)
    if not bias:
        draft.values[b][...] = 0.0
    before, y, dx = (draft.out(name, *shape) for name in ("before", "y", "dx"))
    db, conv = draft.gradient("db", filters), Conv2d(x=x, w=w, y=before, window=window, bias=b)
    tail = {"activation": kind, "activation_alpha": 0.7}
    together = Conv2d(x=x, w=w, y=y, window=window, bias=b if bias else None, **tail)
    value = y if kind in FROM_OUTPUT else before
    back = ActivationBackward(value=value, dy=dy, dx=dx, kind=kind, alpha=0.7)
    for op in (conv, together, back, BiasGrad(dy=dx, db=db)):
        draft.graph.add(op)
    executable = ReferenceBackend(1).compile({"one": draft.graph}, Options("fp64", fusion=False))
    for tensor, values in draft.values.items():
        executable.write(tensor, values)
    executable.run("one")
    wanted = [executable.read(tensor) for tensor in (y, dx, db)]
    return together, stored, draft.values, dy, wanted


@pytest.mark.parametrize("seed", range(len(FIXED) + COUNT))
def test_forward_and_the_gradient_of_the_bias(tmp_path, seed):
    op, stored, values, dy, (y, dx, db) = section(seed)
    _, _, rows, columns = op.y.shape
    layout = Layout(op.y.shape, (op.y.shape[0], stored, rows, columns), True, dtype=BFLOAT)
    found = [shape for shape in shapes_of(op, layout) if "OCTETS" in shape]
    # As many rows in a part as small batches have, and as large ones.
    for lines in {found[-1]["LINES"], (rows + 1) // 2, rows}:
        shape = found[-1] | {"LINES": lines}
        kernel = Emulated(op, stored, shape, tmp_path)
        operands = kernel.operands(values)
        got = [kernel.forward(operands, blocks) for blocks in (2, 99)]
        np.testing.assert_array_equal(*got)
        # The result is rounded to eight bits, and nothing before it.
        np.testing.assert_allclose(got[0], y, rtol=2.0**-8, atol=4e-6 * max(1.0, np.abs(y).max()))
        total = kernel.sums(operands, values[dy], blocks=2)
        error = 2e-4 * np.sqrt((dx**2).sum((0, 2, 3))) + 1e-5
        assert (np.abs(total - db) <= error).all()


def test_what_is_no_number_stays_in_the_windows_that_see_it(tmp_path):
    op, stored, values, _, _ = section(0)
    values[op.x][1, 2, 5, 7] = np.nan
    kernel = Emulated(op, stored, {"LINES": 31, "OCTETS": 3}, tmp_path)
    got = kernel.forward(kernel.operands(values), blocks=2)
    wanted = np.zeros(got.shape, bool)
    wanted[1, :, 4:6, 6:8] = True
    np.testing.assert_array_equal(np.isnan(got), wanted)
