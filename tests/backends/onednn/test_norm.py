"""What batch norm, local response normalisation and dropout become in oneDNN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from dnnstack.backends.base import Array, BoundCall, Options
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.fallback import NOT_FAST
from dnnstack.backends.onednn.library import library
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.layers.build import LayerSpec
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed
from ...support.outcomes import outcome
from ...support.specs import network_of, spec

pytestmark = pytest.mark.usefixtures("norms_by_onednn")
PICTURE = (3, 8, 8)
NORM, RELU = spec("batch_norm"), spec("relu")
CONV = spec("conv2d", filters=16, kernel_size=3, use_bias=False)
END = [spec("flatten"), spec("dense", units=5)]


def step(layers: Sequence[LayerSpec], picture: tuple[int, ...] = PICTURE) -> tuple[Network, Graph]:
    """A network for such pictures, and a step of its training."""
    network, channels = network_of(layers, picture, 5), picture[0]
    scaling = Preprocessing((1 / 128,) * channels, (-1.0,) * channels)
    return network, composed.train_graph(network, 4, "train", 8, 2, 4, scaling, Sgd(), seed=1)


def given(network: Network, train: Graph, rate: float = 0.05) -> dict[Tensor, Array]:
    """Pictures, labels, their order, rates, and fresh parameters."""
    pictures = np.random.default_rng(3).integers(0, 256, train["images"].shape, np.uint8)
    labels = np.array([0, 1, 2, 3, 4, 0, 1, 2], np.int32)
    rates = np.full(4, rate, np.float32)
    found = {"images": pictures, "labels": labels, "order": np.arange(8, dtype=np.int32)}
    found["rates"] = rates
    return {train[name]: value for name, value in found.items()} | network.initial_values(1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [3, 5, 7, 9])
@pytest.mark.parametrize("channels", [4, 16, 20, 48])
def test_lrn_of_a_picture_with_channels_last(onednn, channels, size, dtype):
    """oneDNN 3.2's gradient is wrong for some of these, and it has none without AVX-512.

    They must go another way.
    """
    if dtype == "bfloat16" and not library().has_bfloat16():
        pytest.skip(f"this processor has no bfloat16 ({library().isa()})")
    by_numpy = lrn_by_numpy(channels, size, dtype, gradient=True)
    if not library().has_avx512():
        assert [type(call.op) for call in by_numpy] == [ops.Lrn, ops.LrnBackward]
        assert {call.arguments["reason"] for call in by_numpy} == {NOT_FAST}
    elif size <= 5:
        # Where the gradient in bfloat16 is wrong, that in float32 is not, and fast.
        assert not by_numpy


@pytest.mark.parametrize("channels", [4, 8, 16, 20, 48])
def test_lrn_without_a_gradient(onednn, channels):
    by_numpy = lrn_by_numpy(channels, size=5, dtype="float32", gradient=False)
    has_kernel = library().has_avx512() or channels in (16, 48)
    assert [type(call.op) for call in by_numpy] == ([] if has_kernel else [ops.Lrn])


def lrn_by_numpy(channels: int, size: int, dtype: str, gradient: bool) -> list[BoundCall]:
    """Compare a picture's normalisation with float64; what of it the library does not do."""
    shape, numbers = (2, channels, 5, 3), {"size": size, "alpha": 1.0, "beta": 0.75, "k": 1.0}
    graph = Graph("one", 1)
    given = [graph.tensor(name, shape, role="input") for name in ("x", "dy")[: 1 + gradient]]
    w = graph.tensor("w", (channels, channels, 1, 1), role="parameter")
    a, y, dx = (graph.tensor(name, shape) for name in ("a", "y", "dx"))
    graph.add(ops.Conv2d(x=given[0], w=w, y=a, window=Window((1, 1))))
    graph.add(ops.Lrn(x=a, y=y, **numbers))
    graph.results["y"] = y
    if gradient:
        graph.add(ops.LrnBackward(x=a, y=y, dy=given[1], dx=dx, **numbers))
        graph.results["dx"] = dx
    table = Tuning("onednn", choices={"": "nhwc"})
    tried = OneDnnExecutable({"one": graph}, table, 1, activations=dtype)
    exact = ReferenceBackend(1).compile({"one": graph}, Options("fp64"))
    for executable in (tried, exact):
        executable.write(w, np.eye(channels, dtype=np.float32)[:, :, None, None])
        draw = np.random.default_rng(0)
        for tensor in given:
            executable.write(tensor, draw.integers(-8, 9, shape).astype(np.float32) / 4)
        executable.run("one")
    for tensor in (y, dx)[: 1 + gradient]:
        want = exact.read(tensor)
        np.testing.assert_allclose(
            tried.read(tensor), want, 0, 0.03 if dtype == "bfloat16" else 1e-5
        )
    return [call for call in tried.calls("one") if call.library == "numpy"]


# Primes and powers of two, pictures of one pixel, blocks that are full and not, several pieces.
SHAPES = [
    (3, 16, 5, 7),
    (2, 48, 64, 64),
    (127, 16, 1, 9),
    (2, 20, 37, 37),
    (5, 3, 11, 13),
    (7, 32, 1, 1),
    (9, 16, 128, 128),
    (2, 5, 1, 10007),
    (300, 10, 1, 1),
    (211, 1, 4, 4),
]


@pytest.mark.parametrize("layout", ["nChw16c", "nhwc", ""])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm_of_any_size_and_layout(onednn, shape, layout):
    beside_float64(shape, layout, threads=1)


@pytest.mark.parametrize("relu", [None, "relu"])
def test_batch_norm_in_pieces_of_two_threads(onednn, relu):
    """Neither y nor dy may be written over, x only where it is read no more."""
    beside_float64((6, 16, 128, 96), "nChw16c", threads=2, activation=relu)


def beside_float64(
    shape: tuple[int, ...], layout: str, threads: int, activation: str | None = None
) -> None:
    """Compare batch norm behind a convolution in a layout, or of what comes from outside.

    From AVX2 on, none is left to NumPy, unless its values are few.
    """
    c, draw = shape[1], np.random.default_rng(5)
    graph = Graph("one", shape[0])
    outside, dy = (graph.tensor(name, shape, role="input") for name in ("outside", "dy"))
    w = graph.tensor("w", (c, c, 1, 1), role="parameter")
    weight, bias = (graph.tensor(name, (c,), role="parameter") for name in ("weight", "bias"))
    running = {n: graph.tensor(n, (c,), role="state") for n in ("running_mean", "running_var")}
    x, y, dx = (graph.tensor(name, shape) for name in ("x", "y", "dx"))
    found = {name: graph.tensor(name, (c,)) for name in ("mean", "inverse_std")}
    dw, db = (graph.tensor(name, (c,), role="gradient") for name in ("dw", "db"))
    if layout:
        graph.add(ops.Conv2d(x=outside, w=w, y=x, window=Window((1, 1))))
    else:
        x = outside
    affine = {"weight": weight, "bias": bias, "activation": activation, "eps": 1e-3}
    graph.add(ops.BatchNorm(x=x, y=y, **found, **running, **affine, momentum=0.3))
    back = {"weight": weight, "dw": dw, "db": db, "activation": activation, "eps": 1e-3}
    if activation is not None:
        back["y"] = y
    graph.add(ops.BatchNormBackward(x=x, dy=dy, dx=dx, **found, **back))
    graph.results.update(y=y, dx=dx)
    table = Tuning("onednn", choices={"": layout or "nhwc"})
    values = {
        outside: draw.standard_normal(shape) + 3.0,
        dy: draw.standard_normal(shape) + 0.5,
        w: np.eye(c)[:, :, None, None],
        weight: draw.uniform(0.5, 2.0, c),
        bias: draw.standard_normal(c),
        running["running_mean"]: draw.standard_normal(c),
        running["running_var"]: draw.uniform(0.5, 2.0, c),
    }
    values = {
        tensor: values[tensor].astype(np.float32) for tensor in values.keys() & {*graph.tensors()}
    }
    exact = ReferenceBackend(1).compile({"one": graph}, Options("fp64"))
    executable = OneDnnExecutable({"one": graph}, table, threads)
    if library().isa() not in ("sse41", "avx"):
        assert not [call for call in executable.calls("one") if "reason" in call.arguments]
    read = (y, dx, dw, db, *found.values(), *running.values())
    got, wanted = (outcome(each, values, read) for each in (executable, exact))
    for name, want in wanted.items():
        # A rounding of the mean moves every term of a sum.
        bound = 2e-6 * np.abs(want).max() + 2e-7 * (name in ("dw", "db")) * y.size / c
        np.testing.assert_allclose(got[name], want, 0, bound, err_msg=name)


def test_measuring_leaves_the_statistics_alone(onednn):
    network, train = step([CONV, NORM, RELU, *END])
    executable = onednn.compile({"train": train}, Options(tune=False))
    for tensor, value in given(network, train, 0.0).items():
        executable.write(tensor, value)
    norm = next(op for op in train.ops if isinstance(op, ops.BatchNorm))
    executable.write(norm.running_mean, np.full(16, 0.5, np.float32))
    executable.measure("train", 2)
    np.testing.assert_array_equal(executable.read(norm.running_mean), np.float32(0.5))
    executable.close()


def test_batch_norm_takes_the_layout_of_the_convolution_behind(onednn):
    """Behind a convolution of one channel, which writes channels last."""
    network, train = step([*[CONV, NORM, RELU] * 2, *END], (1, 8, 8))
    executable = onednn.compile({"train": train}, Options(tune=False))
    if library().has_avx512():
        for kind in (ops.BatchNorm, ops.BatchNormBackward):
            found = [call for call in executable.calls("train") if isinstance(call.op, kind)]
            assert "f32 nChw16c 4x16x6x6" in {call.arguments.get("dst") for call in found}
    exact = ReferenceBackend(1).compile({"train": train}, Options(tune=False))
    values = given(network, train)
    got, want = (outcome(each, values, network.learned(), 2) for each in (executable, exact))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_what_may_wait_is_done_once_for_several_norms(onednn):
    _, train = step([CONV, NORM, RELU, CONV, NORM, RELU, *END])
    calls = onednn.compile({"train": train}, Options()).calls("train")
    late = [call.arguments["operations"] for call in calls if "operations" in call.arguments]
    assert late == ["2"] * 3
