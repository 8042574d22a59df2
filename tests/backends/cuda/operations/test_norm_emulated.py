"""The kernels of batch norm, run on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.backends.cuda.operations.norm import EIGHT, FOUR, _Lines
from dnnstack.graph.ops import ACTIVATIONS

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.tensor_convs import numbers

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")
# rows, channels, channels that are stored, whether in bfloat16, the activation behind the norm.
CASES = [
    (700, 64, 64, True, "gelu"),
    (700, 20, 24, True, "relu"),
    (91, 20, 20, True, "gelu"),
    (333, 5, 8, True, None),
    (9, 6, 8, True, "sigmoid"),
    (500, 30, 32, False, "gelu"),
    (40, 544, 544, True, "gelu"),
]
BLOCKS = 3


def gelu(v):
    return v * 0.5 * (1 + np.vectorize(math.erf)(v / math.sqrt(2)))


def gelu_slope(v):
    density = np.exp(-v * v / 2) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + np.vectorize(math.erf)(v / math.sqrt(2))) + v * density


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


FUNCTIONS = {
    None: (lambda v: v, np.ones_like),
    "relu": (lambda v: np.maximum(v, 0), lambda v: (v > 0).astype(float)),
    "sigmoid": (sigmoid, lambda v: sigmoid(v) * (1 - sigmoid(v))),
    "gelu": (gelu, gelu_slope),
}


class Norm:
    """The kernels for rows of so many channels."""

    def __init__(self, rows, channels, columns, bf16, kind, each, folder, **others):
        layout = Layout((rows, channels), (rows, columns), dtype=BFLOAT if bf16 else FLOAT)
        self.cover, self.columns, self.bf16 = _Lines.of(layout, each), columns, bf16
        # None without rows.
        self._blocks = min(BLOCKS, self.cover.slices())
        defines = {"BFLOAT": int(bf16), "EACH": self.cover.each, **others}
        if kind is not None:
            defines["KIND"] = ACTIVATIONS.index(kind)
        folder.mkdir(exist_ok=True)
        self._library = library("norm", folder, defines)

    def stored(self, values):
        """Rows with the channels that only pad, which are zero."""
        rows, channels = values.shape
        return stored(np.pad(values, ((0, 0), (0, self.columns - channels))), self.bf16)

    def empty(self):
        return stored(np.full((self.cover.rows, self.columns), np.nan), self.bf16)

    def loaded(self, array):
        """Without these channels, which must be zero."""
        values = loaded(array, self.bf16, (self.cover.rows, self.columns))
        assert not values[:, self.cover.channels :].any()
        return values[:, : self.cover.channels]

    def run(self, name, before, *behind):
        grid = (ctypes.c_int * 2)(self._blocks, self.cover.chunks)
        given = [
            pointer(each) if each is None or isinstance(each, np.ndarray) else each
            for each in (*before, *self.cover.numbers, *behind)
        ]
        getattr(self._library, name)(grid, *given)

    def sums(self, name, before, *behind):
        """Those of two kinds over all slices."""
        slices = np.full((self._blocks, 2, self.columns), np.nan)
        self.run(name, (*before, slices), *behind)
        total = slices.sum(0)
        assert not total[:, self.cover.channels :].any()
        return total[:, : self.cover.channels]


@pytest.mark.parametrize(
    "case",
    [
        (*case, each)
        for case in CASES
        for each in (FOUR, EIGHT)
        if each == FOUR or (case[3] and case[2] % EIGHT == 0)
    ],
    ids=str,
)
def test_forward_and_backward(tmp_path, case):
    rows, channels, _, bf16, kind, _ = case
    f, slope = FUNCTIONS[kind]
    kernels, rng = Norm(*case, tmp_path), np.random.default_rng(rows)
    # Means from small to large, beside which the deviations keep their digits.
    means = np.linspace(-3, 3, channels) if bf16 else np.geomspace(1, 1e4, channels)
    x = stored(numbers(rng, (rows, channels), False) + means, bf16)
    x = loaded(x, bf16, (rows, channels)).astype(np.float64)
    total, square = kernels.sums("sums", [kernels.stored(x)])
    np.testing.assert_allclose(total, x.sum(0), rtol=1e-6, atol=1e-4)
    mean, var = total / rows, np.maximum(square / rows - (total / rows) ** 2, 0)
    np.testing.assert_allclose(var, x.var(0), rtol=1e-4, atol=1e-6)

    weight, bias = (rng.standard_normal(channels).astype(np.float32) for _ in range(2))
    given = None if channels < 6 else weight
    weight = np.ones_like(weight) if given is None else weight
    inverse = (1 / np.sqrt(x.var(0) + 1e-3)).astype(np.float32)
    middle, y = mean.astype(np.float32), kernels.empty()
    h = (x - x.mean(0)) * inverse.astype(np.float64)
    value = h * weight + bias
    rest = (ctypes.c_float(-1.0), ctypes.c_float(0.0))
    kernels.run("forward", (kernels.stored(x), None, y), middle, inverse, given, bias, *rest)
    near = {"rtol": 2.0**-8, "atol": 1e-4} if bf16 else {"rtol": 1e-4, "atol": 5e-3}
    np.testing.assert_allclose(kernels.loaded(y), f(value), **near)

    dy = numbers(rng, (rows, channels), bf16)
    g = dy * slope(value)
    out = y if kind in ("relu", "sigmoid") else None
    ends = (kernels.stored(x), kernels.stored(dy), out)
    known = (middle, inverse, given, bias, ctypes.c_float(0.0))
    db, dw = kernels.sums("gradients", (*ends[:2], None, out, None), *known)
    loose = {"rtol": 2e-2, "atol": 2e-2 * math.sqrt(rows)} if kind == "sigmoid" else {"atol": 0.05}
    np.testing.assert_allclose(db, g.sum(0), **loose)
    np.testing.assert_allclose(dw, (g * h).sum(0), **loose)
    averages = np.zeros((2, kernels.columns), np.float32)
    averages[:, :channels] = g.mean(0), (g * h).mean(0)
    dx = kernels.empty()
    kernels.run("backward", (*ends, dx), *known, averages)
    want = weight * inverse * (g - averages[0, :channels] - h * averages[1, :channels])
    near = {"rtol": 2.0**-7, "atol": 2e-2} if bf16 else {"rtol": 1e-3, "atol": 5e-3}
    np.testing.assert_allclose(kernels.loaded(dx), want, **near)


@pytest.mark.parametrize("case", [(*case, FOUR) for case in CASES[1::2]], ids=str)
@pytest.mark.parametrize("terms", [1, 2])
def test_what_a_residual_block_ends_in(tmp_path, case, terms):
    """As if each of the operations had stored its result, bit by bit."""
    rows, channels, columns, bf16, kind, _ = case
    shape, rng = (rows, columns), np.random.default_rng(rows)

    def drawn():
        return kernels.stored(numbers(rng, (rows, channels), bf16))

    def rounded(values):
        return loaded(stored(np.asarray(values, np.float32), bf16), bf16, shape)

    plain, kernels = (
        Norm(rows, channels, columns, bf16, each, FOUR, folder, **others)
        for each, folder, others in (
            (None, tmp_path / "plain", {}),
            (kind, tmp_path / "all", {"TERMS": terms, "WRITES": 1, "KEEPS_NAN": 1, "ADDS": 1}),
        )
    )
    x, other, dy = drawn(), drawn(), drawn()
    middle, inverse, weight, bias = (
        rng.standard_normal(channels).astype(np.float32) for _ in range(4)
    )
    known, eps = (middle, inverse, weight, bias), ctypes.c_float(-1.0)
    apart, together = plain.empty(), kernels.empty()
    plain.run("forward", (x, None, apart), *known, eps, ctypes.c_float(0))
    kernels.run("forward", (x, other, together), *known, eps, ctypes.c_float(0))
    added = plain.loaded(apart) + kernels.loaded(other)
    f, slope = FUNCTIONS[kind]
    near = {"rtol": 2.0**-8} if bf16 else {"rtol": 1e-6}
    np.testing.assert_allclose(kernels.loaded(together), f(added), atol=1e-6, **near)

    total = loaded(dy, bf16, shape)
    if terms == 2:
        total = rounded(total + loaded(other, bf16, shape))
    factor = np.zeros(shape)
    if kind not in (None, "relu"):
        # One whose slope follows from its input is not taken along backward.
        return
    out = None if kind is None else together
    factor[...] = 1.0 if out is None else loaded(out, bf16, shape) > 0
    left = kernels.empty()
    ends = (x, dy, other if terms == 2 else None, out, left)
    found = kernels.sums("gradients", ends, *known, ctypes.c_float(0))
    g = rounded(total * factor)
    np.testing.assert_array_equal(loaded(left, bf16, shape), g)
    wanted = plain.sums(
        "gradients", (x, stored(g, bf16), None, None, None), *known, ctypes.c_float(0)
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("keeps", [0, 1])
def test_nan_where_a_relu_lets_nothing_through(tmp_path, keeps):
    """Batch norm with a ReLU of its own drops it; the gradient of a ReLU by itself does not."""
    shape = (40, 4)
    fixed = {"TERMS": 1, "WRITES": 1, "KEEPS_NAN": keeps}
    kernels = Norm(*shape, 4, False, "relu", FOUR, tmp_path, **fixed)
    x, dy, y = np.ones(shape), np.ones(shape), np.ones(shape)
    y[3, 1], dy[3, 1], y[7, 2], dy[7, 2] = 0, np.nan, 0, -np.inf
    known = [np.ones(4, np.float32) for _ in range(4)]
    left = kernels.empty()
    ends = (kernels.stored(x), kernels.stored(dy), None, kernels.stored(y), left)
    kernels.run("gradients", (*ends, np.zeros((3, 2, 4))), *known, ctypes.c_float(0))
    found = loaded(left, False, shape)
    wanted = np.ones(shape)
    wanted[3, 1] = wanted[7, 2] = np.nan if keeps else 0.0
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("slices", "channels"), [(1, 3), (37, 20), (700, 8), (1500, 13)])
def test_slices_are_united(tmp_path, slices, channels):
    kernels = Norm(100, channels, 24, False, None, FOUR, tmp_path)
    rng, rows = np.random.default_rng(slices), 77 * slices
    part = np.full((slices, 2, 24), np.nan)
    part[:, 0, :channels] = rng.standard_normal((slices, channels)) + 5 * rows / slices
    part[:, 1, :channels] = 30 * rows / slices + rng.random((slices, channels))
    total, square = part[..., :channels].sum(0)
    middle = total / rows
    var = square / rows - middle**2
    ends = [np.full(channels, fill, np.float32) for fill in (np.nan, np.nan, 2.0, 3.0, np.nan)]
    mean, inverse, running_mean, running_var, left = ends
    given = (pointer(part), slices, rows, channels, 24, ctypes.c_float(1e-3), ctypes.c_float(0.1))
    move = (*map(pointer, (mean, inverse, running_mean, running_var)), None)
    kernels._library.united(*given, *move)
    np.testing.assert_array_equal(mean, middle.astype(np.float32))
    np.testing.assert_allclose(inverse, 1 / np.sqrt(var + 1e-3), rtol=1e-6)
    np.testing.assert_allclose(running_mean, 0.9 * 2 + 0.1 * middle, rtol=1e-6)
    np.testing.assert_allclose(running_var, 0.9 * 3 + 0.1 * var * rows / (rows - 1), rtol=1e-6)
    kernels._library.united(*given, pointer(mean), pointer(inverse), None, None, pointer(left))
    np.testing.assert_allclose(left, var, rtol=1e-6)
    db, dw, means = np.zeros(channels, "f4"), np.zeros(channels, "f4"), np.zeros((2, 24), "f4")
    kernels._library.means_of(*given[:5], *map(pointer, (db, dw, means)))
    np.testing.assert_allclose([db, dw], [total, square], rtol=1e-6)
    np.testing.assert_allclose(means[:, :channels], [middle, square / rows], rtol=1e-6)
    assert not means[:, channels:].any()
