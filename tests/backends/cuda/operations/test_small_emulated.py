"""Kernels that move or count a few numbers, run on the processor. Needs g++, no GPU."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from dnnstack.backends.cuda.operations.convolution import TURNED
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.graph.ops import Dropout, share_of

from ....support.emulated_build import COMPILER
from ....support.emulated_kernels import library, loaded, pointer, stored
from ....support.op_cases import CASES
from ....support.op_draft import Draft
from ....support.tensor_convs import numbers

pytestmark = pytest.mark.skipif(COMPILER is None, reason="g++ is not there")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    outside = ("augment.cu", "elementwise.cu", "lecture.cu", "losses.cu")
    return library("small", tmp_path_factory.mktemp("small"), {"BFLOAT": 1}, outside)


def longs(size):
    return ctypes.c_longlong(size)


@pytest.mark.parametrize("eights", [True, False])
def test_a_change_of_type_keeps_the_numbers(kernels, eights):
    """In eights where there is no change of order, else as (2, 3, 5, 16) becomes (16, 5, 3, 2)."""
    x = numbers(np.random.default_rng(1), (2, 3, 5, 16), True)
    cast = None if eights else np.array([5, 3, 2, 1, 16, 80, 240, 30, 6, 2, 1], np.int32)
    size, want = (x.size // 8, x) if eights else (x.size, x.transpose())
    narrow, wide = stored(np.full(x.shape, np.nan), True), np.full(x.size, np.nan, np.float32)
    kernels.narrow(pointer(x), pointer(narrow), longs(size), pointer(cast))
    np.testing.assert_array_equal(loaded(narrow, True, want.shape), want)
    near = stored(x, True)
    kernels.widen(pointer(near), pointer(wide), longs(size), pointer(cast))
    np.testing.assert_array_equal(wide.reshape(want.shape), want)


@pytest.mark.parametrize("shape", [(40, 3, 2, 70), (32, 1, 1, 8), (5, 5, 3, 33)])
def test_filters_are_rotated(kernels, shape):
    outer, height, width, inner = shape
    w = numbers(np.random.default_rng(2), shape, True)
    source, out = stored(w, True), stored(np.full(shape, np.nan), True)
    grid = (-(-outer // TURNED), -(-inner // TURNED), height * width)
    kernels.rotate(pointer(source), pointer(out), outer, inner, height, width, *grid)
    want = w[:, ::-1, ::-1].transpose(3, 1, 2, 0)
    np.testing.assert_array_equal(loaded(out, True, want.shape), want)


@pytest.mark.parametrize(("n", "threads"), [(100, 128), (300, 64), (1, 32)])
@pytest.mark.parametrize("mean", [0, 1])
def test_metrics_count_first_maxima(kernels, n, threads, mean):
    """A NaN is the largest, and the first of equals counts; rows without a target do not."""
    rng = np.random.default_rng(n)
    scores = rng.integers(0, 4, (n, 11)).astype(np.float32)
    scores[rng.random((n, 11)) < 0.05] = np.nan
    target = rng.integers(-1, 4, n).astype(np.int32)
    best = np.where(np.isnan(scores), np.inf, scores).argmax(1)
    right, count = (best == target).sum(), (target >= 0).sum()
    sums, loss = np.array([1.0, 2.0, 3.0]), np.array([0.5], np.float32)
    given = (scores, target, loss, sums)
    kernels.measure(*map(pointer, given), n, 11, mean, threads)
    np.testing.assert_allclose(sums, [1 + 0.5 * (count if mean else 1), 2 + right, 3 + count])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", [name for name in CASES if "words" in name])
def test_batches_of_floats_and_of_rows_of_numbers(kernels, name, parts):
    """Where pictures are whole numbers all are exact; a masked one is 0 beside infinities."""
    op, (images, labels, order, step), _ = of_case(name)
    n, channels, height, width = op.x.shape
    pixels, floats = height * width, images.dtype == np.float32
    if floats:
        images = np.rint(images * 4)
        images[0] = np.inf
        order[1] = -1
    steps, words = len(order) // n, op.target.size // n
    scale, shift = np.full(channels, 2, np.float32), np.full(channels, -0.0, np.float32)
    x, target = stored(np.full(op.x.shape, np.nan), True), np.full((n, words), 7, np.int32)
    place = np.array([channels, pixels, steps, channels * pixels, pixels, 1], np.int32)
    following, count = np.zeros(1, np.int64), np.zeros(1, np.uint32)
    ends = (x, target, scale, shift)
    kernels.batch(
        *(pointer(images), int(floats), *map(pointer, (labels, order, step, *ends)), n),
        *(pointer(place), pointer(following), pointer(count), words, parts),
    )
    at = int(step[0]) % steps
    rows = order[at * n : (at + 1) * n]
    gone = rows < 0
    want = np.where(gone[:, None, None, None], 0.0, images[rows] * 2.0)
    want = loaded(stored(want, True), True, op.x.shape)
    np.testing.assert_array_equal(loaded(x, True, op.x.shape), want)
    bits = np.where(gone[:, None], -1, labels.reshape(len(labels), -1)[rows].view(np.int32))
    np.testing.assert_array_equal(target, bits)
    assert following[0] == step[0] + 1


@pytest.mark.parametrize("mean", [0, 1])
def test_the_gradient_of_a_loss(kernels, mean):
    rng, n, classes, smoothing = np.random.default_rng(3), 150, 7, 0.2
    scores = rng.standard_normal((n, classes))
    log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    target = rng.integers(-1, classes, n).astype(np.int32)
    dx = np.full((n, classes), np.nan, np.float32)
    ends = (log_p.astype(np.float32), target, dx)
    kernels.gradient(*map(pointer, ends), n, classes, ctypes.c_float(smoothing), mean)
    wanted = (1 - smoothing) * np.eye(classes)[target] + smoothing / classes
    right = (np.exp(log_p) - wanted) * (target >= 0)[:, None]
    right = right / (target >= 0).sum() if mean else right
    np.testing.assert_allclose(dx, right, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("mean", [0, 1])
@pytest.mark.parametrize("n", [1, 150])
def test_the_loss_of_a_lecture(kernels, n, mean):
    """Of probabilities and rows of 0 and 1; that of a wrong class may be 0."""
    rng = np.random.default_rng(n)
    predict = rng.dirichlet(np.ones(7), n).astype(np.float32)
    target = predict.argmax(1).astype(np.int32)
    predict[predict < 0.05] = 0.0
    rows, loss = np.full((n, 7), np.nan, np.float32), np.full(1, np.nan, np.float32)
    kernels.lecture(*map(pointer, (target, predict, rows, loss)), n, 7, mean)
    np.testing.assert_array_equal(rows, np.eye(7)[target])
    right = -np.log(predict[np.arange(n), target].astype(np.float64))
    np.testing.assert_allclose(loss[0], right.mean() if mean else right.sum(), rtol=1e-6)


def of_case(name):
    """An operation, what it reads, and what the reference makes of it, in the order of its fields.

    A field that is absent has None.
    """
    draft = CASES[name](np.random.default_rng(1), "normal")
    (op,), values = draft.graph.ops, draft.values
    fields = [getattr(op, field) for field in op.inputs]
    given = [None if tensor is None else values[tensor] for tensor in fields]
    made = KERNELS[type(op)].compute(op, *given)
    return op, given, made if isinstance(made, tuple) else (made,)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("least_sure")])
def test_the_least_sure_samples_are_those_of_the_reference(kernels, name, blocks):
    op, (scores, target), (place, rows) = of_case(name)
    n, classes = scores.shape
    gaps = np.full(n, np.nan, np.float32)
    found = [np.full(n, -7, np.int32), np.full(len(rows), -7, np.int32)]
    most = np.array([share_of(count, op.share) for count in range(n + 1)], np.int32)
    given = (scores, target, gaps, *found, most)
    kernels.sure(*map(pointer, given), n, classes, op.rows.size, blocks)
    np.testing.assert_array_equal(found[0], place)
    np.testing.assert_array_equal(found[1], rows)


def test_many_samples_are_in_the_order_of_their_gaps(kernels):
    """More of them than threads, many with equal gaps."""
    n, classes, share = 500, 10, 0.26
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 9, (n, classes)).astype(np.float32)
    target = rng.integers(-1, 4, n).astype(np.int32)
    most = np.array([share_of(count, share) for count in range(n + 1)], np.int32)
    size = int(most[n])
    found = [np.full(n, np.nan, np.float32), np.full(n, -7, np.int32), np.full(size, -7, np.int32)]
    kernels.sure(*map(pointer, (scores, target, *found, most)), n, classes, size, 2)
    second, best = np.sort(scores, 1)[:, -2:].T
    rows = np.lexsort((np.arange(n), np.where(target < 0, np.inf, best - second)))[:size]
    np.testing.assert_array_equal(found[2], rows)
    place, kept = np.full(n, -1), share_of(int((target >= 0).sum()), share)
    assert 0 < kept < size
    place[rows[:kept]] = np.arange(kept)
    np.testing.assert_array_equal(found[1], place)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("average_views")])
def test_scores_of_views_are_averaged(kernels, name):
    op, (x, scores, place), (want,) = of_case(name)
    y, weights = np.full(want.shape, np.nan, np.float32), np.array(op.weights, np.float32)
    given = (x, y, weights, scores, place)
    sizes = (len(weights), want.shape[1], longs(x.size // len(weights)), longs(want.size))
    kernels.average(*map(pointer, given), *sizes)
    np.testing.assert_allclose(y, want, rtol=1e-6)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("views-")])
def test_rows_are_seen_in_views(kernels, name, inner):
    """As planes, and with the channels of a pixel side by side."""
    op, (x, rows), (want,) = of_case(name)
    n, channels, height, width = x.shape
    table = np.array([(v.flip, v.down, v.right) for v in op.views], np.int32)
    given = np.rint(x * 8)  # which bfloat16 has
    want = np.rint(want * 8)
    source = stored(np.moveaxis(given, 1, 3) if inner else given, True)
    out = stored(np.full(want.shape, np.nan), True)
    sizes = (1, height, width, channels) if inner else (channels, height, width, 1)
    count = len(want) // len(op.views)
    ends = (source, rows, out, table)
    kernels.seen(*map(pointer, ends), len(op.views), count, *sizes)
    shape = (len(want), height, width, channels) if inner else want.shape
    found = loaded(out, True, shape)
    np.testing.assert_array_equal(np.moveaxis(found, 3, 1) if inner else found, want)


@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize("wide", [3, 5])
def test_channels_are_copied_and_zeros_behind_them(kernels, each, wide):
    """Three of seven from the second on, to the third place of nine and what is behind it."""
    x = numbers(np.random.default_rng(4), (20, 7 * each), True)
    source, out = stored(x, True), stored(np.full((20, 9 * each), -1.0), True)
    kernels.columns(pointer(source), pointer(out), each == 4, 20, 3, wide, 7, 9, 1, 2)
    want = np.full((20, 9, each), -1.0)
    want[:, 2 : 2 + wide] = 0.0
    want[:, 2:5] = x.reshape(20, 7, each)[:, 1:4]
    np.testing.assert_array_equal(loaded(out, True, want.shape), want)


@pytest.mark.parametrize("whole", [False, True])
def test_elements_or_samples_are_dropped_as_the_reference_drops_them(kernels, whole):
    """Of the second part of a batch, whose three channels are stored as four behind each other."""
    n, pixels, stride = 9, 10, 4
    d = Draft(np.random.default_rng(3), "ties")
    shape = (n, 3, 5, 2)
    mask, step = d.out("mask", *shape, dtype="uint8"), np.array([5], np.int64)
    alike, y = (3 * pixels if whole else 1), d.out("y", *shape)
    ends = {"x": d.floats("x", *shape), "step": d.given("step", step, "state"), "y": y}
    rule = {"key": (12345, 678), "threshold": 2**31, "scale": 2.0, "parts": 2, "alike": alike}
    op = Dropout(**ends, mask=mask, **rule)
    x = d.values[op.x]
    want, kept = KERNELS.of(op).compute(op, x, step)
    assert 0 < kept[:, 0, 0, 0].sum() < n
    rows = np.zeros((n, pixels, stride))
    rows[..., :3] = x.reshape(n, 3, pixels).transpose(0, 2, 1)
    source, out = stored(rows, True), stored(np.full(rows.shape, np.nan), True)
    found, key = np.full(rows.shape, 9, np.uint8), np.array(op.key, np.uint32)
    places = np.array([pixels * stride, stride, 3, pixels], np.int32)
    tensors = (*map(pointer, (source, out, found)), rows.size, pointer(places), pointer(step))
    kernels.drop(*tensors, 2, alike, pointer(key), op.threshold, ctypes.c_float(op.scale))
    y = loaded(out, True, rows.shape)
    np.testing.assert_array_equal(y[..., :3].transpose(0, 2, 1).reshape(shape), want)
    np.testing.assert_array_equal(found[..., :3].transpose(0, 2, 1).reshape(shape), kept)
    assert not y[..., 3].any()


def test_planes_are_those_of_a_table(kernels):
    x = np.random.default_rng(5).standard_normal((4, 6)).astype(np.float32)
    table = np.array([3, -1, 0, 0, 2], np.int32)
    found = np.full((5, 6), np.nan, np.float32)
    kernels.planes(pointer(x), pointer(found), found.size, 6, pointer(table))
    np.testing.assert_array_equal(found, np.where(table[:, None] < 0, 0.0, x[table]))
