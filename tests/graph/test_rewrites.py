"""Fused equals unfused, and nothing is fused that somebody else looks at."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Array, Options, Precision
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph, Op, Tensor
from dnnstack.graph.rewrites import REWRITES, rewritten
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support import composed
from ..support.nets import stacks

PICTURE, CLASSES, BATCH, COUNT = (2, 9, 9), 4, 3, 6
LENET = [
    LayerSpec("conv2d", options={"filters": 3, "kernel_size": 2}),
    LayerSpec("relu"),
    LayerSpec("max_pool2d"),
    LayerSpec("conv2d", options={"filters": 2, "kernel_size": 2}),
    LayerSpec("max_pool2d", options={"pool_size": 2, "stride": 1}),
    LayerSpec("flatten"),
    LayerSpec("dense", options={"units": 6}),
    LayerSpec("relu"),
    LayerSpec("dense", options={"units": CLASSES}),
    LayerSpec("softmax"),
]


def chosen(*names):
    return {name: REWRITES[name] for name in names}


def network(specs: list[LayerSpec]) -> Network:
    loss = CrossEntropyLoss(label_smoothing=0.1)
    return Network(build_layers(specs, PICTURE), loss, PICTURE, CLASSES)


def train_graph(net: Network) -> Graph:
    optimizer = Sgd(momentum=0.9, weight_decay=0.01)
    pixels = Preprocessing((1 / 64, 1 / 128), (-2.0, -1.0))
    return composed.train_graph(net, BATCH, "toy", COUNT, COUNT // BATCH, 9, pixels, optimizer)


def trained(net: Network, graph: Graph, precision: Precision, seed: int) -> dict[str, Array]:
    """What three steps leave behind: loss, sums, scores, parameters, momenta."""
    backend = ReferenceBackend(1)
    executable = backend.compile({"train": graph}, Options(precision, fusion=False))
    rng = np.random.default_rng(seed)
    # Few different pixels, so that windows tie; half of them black, as in pictures of digits.
    pixels = rng.choice(np.array([0, 0, 0, 90, 180, 255], np.uint8), (COUNT, *PICTURE))
    executable.write(graph["images"], pixels)
    executable.write(graph["labels"], rng.integers(0, CLASSES, COUNT).astype(np.int32))
    executable.write(graph["order"], rng.permutation(COUNT).astype(np.int32))
    executable.write(graph["rates"], np.full(9, 0.05, np.float32))
    for tensor, value in net.initial_values(seed).items():
        # Biases that begin equal would let roundings decide which score is the largest.
        executable.write(tensor, value + rng.normal(0.0, 0.01, value.shape).astype(value.dtype))
    executable.run("train", 3)
    updated = [t for op in graph.ops for t in op.tensors(op.updates)]
    return {t.name: executable.read(t) for t in (*updated, graph["scores"], graph["loss"])}


def origins(graph: Graph) -> set[object]:
    return {origin for op in graph.ops for origin in op.origin}


def kinds(graph: Graph) -> Counter[type[Op]]:
    return Counter(type(op) for op in graph.ops)


@pytest.mark.parametrize("names", [*([name] for name in REWRITES), list(REWRITES)], ids=str)
@settings(max_examples=15)
@given(specs=stacks(CLASSES), seed=st.integers(0, 1000))
def test_fused_equals_unfused(names, specs, seed):
    net = network(specs)
    plain = train_graph(net)
    fused = rewritten(plain, chosen(*names))
    assert origins(fused) == origins(plain)
    assert fused.results == plain.results
    want, got = (trained(net, graph, "fp64", seed) for graph in (plain, fused))
    assert want.keys() == got.keys()
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-11, err_msg=name)


@settings(max_examples=15)
@given(specs=stacks(CLASSES), seed=st.integers(0, 1000))
def test_masking_after_pooling_is_equal_bit_for_bit(specs, seed):
    first = LayerSpec("conv2d", options={"filters": 2, "kernel_size": 2}), LayerSpec("relu")
    overlapping = LayerSpec("max_pool2d", options={"pool_size": 3, "stride": 1, "padding": "same"})
    net = network([*first, overlapping, *specs])
    plain = train_graph(net)
    fused = rewritten(plain, chosen("relu_pool"))
    assert fused.ops != plain.ops
    want, got = (trained(net, graph, "fp32", seed) for graph in (plain, fused))
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, name)


def test_what_becomes_of_lenet():
    plain = train_graph(network(LENET))
    assert kinds(plain)[ops.BiasAdd] == kinds(plain)[ops.BiasGrad] == 4

    biased = rewritten(plain, chosen("bias"))
    assert kinds(biased) == kinds(plain) - Counter({ops.BiasAdd: 4})
    graded = rewritten(plain, chosen("bias_grad"))
    assert kinds(graded) == kinds(plain) - Counter({ops.BiasGrad: 4})
    # The activations follow the additions of a bias; only together with 'bias' do they fuse.
    assert kinds(rewritten(plain, chosen("activation"))) == kinds(plain)
    activated = rewritten(plain, chosen("bias", "activation"))
    assert kinds(activated) == kinds(biased) - Counter({ops.Activation: 2})
    # The first max-pool follows a relu, the second a convolution.
    assert kinds(rewritten(plain, chosen("relu_pool"))) == kinds(plain)

    loss = rewritten(plain, chosen("softmax_cross_entropy"))
    gone = {ops.Softmax: 1, ops.RowLoss: 1, ops.RowLossBackward: 1, ops.SoftmaxBackward: 1}
    come = {ops.SoftmaxCrossEntropy: 1, ops.SoftmaxCrossEntropyBackward: 1}
    assert kinds(loss) == kinds(plain) - Counter(gone) + Counter(come)


def test_origins_of_a_fused_operation_are_united():
    fused = rewritten(train_graph(network(LENET)), REWRITES)
    first = next(op for op in fused.ops if isinstance(op, ops.Conv2d))
    assert [str(origin.layer) for origin in first.origin] == ["conv2d_1", "relu_1"]
    assert first.bias is not None
    assert first.activation == "relu"
    back = [op for op in fused.ops if isinstance(op, ops.Conv2dBackwardFilter)]
    assert all(op.bias_grad is not None for op in back)


def test_relu_mask_moves_to_the_pooled_tensor():
    fused = rewritten(train_graph(network(LENET)), chosen("relu_pool"))
    pool = [op for op in fused.ops if isinstance(op, ops.Pool2dBackward)][-1]
    mask = fused.producer(pool.dy)
    assert isinstance(mask, ops.ActivationBackward)
    assert mask.value == pool.y
    assert mask.dy.size < pool.dx.size


# ---------------------------------------------------------------- where nothing may be fused


def section(*results: str) -> tuple[Graph, dict[str, Tensor]]:
    """A dense layer with bias and relu, and what of it is looked at from outside."""
    graph = Graph("one", 2)
    shapes = {"x": (2, 3), "w": (4, 3), "b": (4,), "product": (2, 4), "sum": (2, 4), "y": (2, 4)}
    outside = ("x", "w", "b")
    t = {
        name: graph.tensor(name, shape, role="input" if name in outside else "activation")
        for name, shape in shapes.items()
    }
    graph.add(ops.MatMul(a=t["x"], b=t["w"], c=t["product"], transpose_b=True))
    graph.add(ops.BiasAdd(x=t["product"], b=t["b"], y=t["sum"]))
    graph.add(ops.Activation(x=t["sum"], y=t["y"], kind="relu"))
    graph.results.update({name: t[name] for name in results})
    return graph, t


def test_a_chain_becomes_one_operation():
    graph, t = section("y")
    fused = rewritten(graph, REWRITES)
    assert kinds(fused) == {ops.MatMul: 1}
    only = fused.ops[0]
    assert isinstance(only, ops.MatMul)
    assert (only.c, only.bias, only.activation) == (t["y"], t["b"], "relu")


def test_an_intermediate_result_is_not_fused_away():
    graph, _ = section("product", "y")
    assert kinds(rewritten(graph, REWRITES)) == {ops.MatMul: 1, ops.BiasAdd: 1, ops.Activation: 1}
    graph, _ = section("sum", "y")
    assert kinds(rewritten(graph, REWRITES)) == {ops.MatMul: 1, ops.Activation: 1}


def test_an_intermediate_that_another_reads_is_not_fused_away():
    graph, t = section("y")
    graph.add(ops.Activation(x=t["product"], y=graph.tensor("other", (2, 4)), kind="tanh"))
    assert kinds(rewritten(graph, REWRITES)) == {ops.MatMul: 1, ops.BiasAdd: 1, ops.Activation: 2}
    graph, t = section("y")
    graph.add(ops.Activation(x=t["sum"], y=graph.tensor("other", (2, 4)), kind="tanh"))
    assert kinds(rewritten(graph, REWRITES)) == {ops.MatMul: 1, ops.Activation: 2}


def test_activations_whose_backward_needs_the_input_stay_apart_in_training():
    specs = [LayerSpec("flatten"), LayerSpec("dense", options={"units": CLASSES})]
    for kind, left in (("tanh", 0), ("gelu", 1)):
        net = network([*specs, LayerSpec(kind)])
        fused = rewritten(train_graph(net), REWRITES)
        assert kinds(fused)[ops.Activation] == left, kind
        assert kinds(rewritten(net.infer_graph(1), REWRITES))[ops.Activation] == 0, kind


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("value", ["pooled", "another"])
def test_mask_of_another_tensor_stays(kind, value):
    """Only max-pooling of the very output that the mask looks at may change places with it."""
    graph = Graph("one", 1)
    large, small = (1, 1, 4, 4), (1, 1, 2, 2)
    inputs = {"x": large, "y": small, "dy": small, "other": large}
    t = {name: graph.tensor(name, shape, role="input") for name, shape in inputs.items()}
    middle, dx = graph.tensor("middle", large), graph.tensor("dx", large)
    back = ops.Pool2dBackward(
        x=t["x"], y=t["y"], dy=t["dy"], dx=middle, window=Window((2, 2), (2, 2)), kind="max"
    )
    graph.add(back if kind == "max" else replace(back, kind="avg", x=None, y=None))
    looked_at = t["x"] if value == "pooled" else t["other"]
    graph.add(ops.ActivationBackward(value=looked_at, dy=middle, dx=dx, kind="relu"))
    graph.results["dx"] = dx
    moved = isinstance(rewritten(graph, chosen("relu_pool")).ops[0], ops.ActivationBackward)
    assert moved == (kind == "max" and value == "pooled")


NORMED = [
    LayerSpec("conv2d", options={"filters": 3, "kernel_size": 2, "use_bias": False}),
    LayerSpec("batch_norm", options={"eps": 0.1}),
    LayerSpec("relu"),
    LayerSpec("max_pool2d"),
    LayerSpec("flatten"),
    LayerSpec("dense", options={"units": 6}),
    LayerSpec("batch_norm", options={"eps": 0.1}),
    LayerSpec("relu"),
    LayerSpec("dense", options={"units": CLASSES}),
]


def test_batch_norm_that_others_read_stays_apart():
    for seen in ("batch_norm_1.y", "relu_1.dx"):
        graph = train_graph(network(NORMED))
        graph.results["seen"] = next(t for t in graph.tensors() if t.name == seen)
        fused = rewritten(graph, chosen("batch_norm_relu"))
        assert kinds(fused)[ops.Activation] == 1, seen
        assert [op.activation for op in fused.ops if isinstance(op, ops.BatchNorm)] == [
            None,
            "relu",
        ]


def normed(kind: str) -> list[LayerSpec]:
    tanh = kind == "gelu_tanh"
    layer = LayerSpec("gelu", options={"approximate": True}) if tanh else LayerSpec(kind)
    return [layer if spec.kind == "relu" else spec for spec in NORMED]


@pytest.mark.parametrize("kind", ops.ACTIVATIONS)
def test_batch_norm_and_any_activation_become_one_operation(kind):
    net = network(normed(kind))
    plain = train_graph(net)
    mine, other = "batch_norm_activation", "batch_norm_relu"
    if kind == "relu":
        mine, other = other, mine
    assert rewritten(plain, chosen(other)).ops == plain.ops
    fused = rewritten(plain, chosen(mine))
    assert kinds(fused) == kinds(plain) - Counter({ops.Activation: 2, ops.ActivationBackward: 2})
    forward = [op for op in fused.ops if isinstance(op, ops.BatchNorm)]
    backward = [op for op in fused.ops if isinstance(op, ops.BatchNormBackward)]
    assert [op.activation for op in (*forward, *backward)] == [kind] * 4
    assert len({op.activation_alpha for op in (*forward, *backward)}) == 1
    outputs = [op.y if kind in ops.FROM_OUTPUT else None for op in forward[::-1]]
    assert [op.y for op in backward] == outputs
    inputs = [None if kind in ops.FROM_OUTPUT else op.bias for op in forward[::-1]]
    assert [op.bias for op in backward] == inputs
    # The value between the two is no longer there.
    assert not {"batch_norm_1.y", "batch_norm_2.y"} & {t.name for t in fused.tensors()}
    assert kinds(rewritten(net.infer_graph(1), chosen(mine)))[ops.Activation] == 0
    want, got = (trained(net, graph, "fp64", 7) for graph in (plain, fused))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("kind", ["gelu", "tanh"])
def test_an_activation_stays_apart_where_others_see_its_norm(kind):
    for seen in ("batch_norm_1.y", f"{kind}_1.dx"):
        graph = train_graph(network(normed(kind)))
        graph.results["seen"] = next(t for t in graph.tensors() if t.name == seen)
        fused = rewritten(graph, chosen("batch_norm_activation"))
        assert kinds(fused)[ops.Activation] == kinds(fused)[ops.ActivationBackward] == 1, seen
        norms = [op for op in fused.ops if isinstance(op, ops.BatchNorm | ops.BatchNormBackward)]
        found = [op.activation for op in norms if op.origin[0].layer == "batch_norm_1"]
        assert found == [None, None], seen


def norm_section(kind: str) -> tuple[Graph, dict[str, Tensor]]:
    """Batch norm, an activation and the backward of both."""
    graph = Graph("one", 4)
    outside = {"x": (4, 2), "dy": (4, 2), "running_mean": (2,), "running_var": (2,), "b": (2,)}
    t = {name: graph.tensor(name, shape, role="input") for name, shape in outside.items()}
    for name in ("h", "y", "dh", "dx"):
        t[name] = graph.tensor(name, (4, 2))
    statistics = {name: graph.tensor(name, (2,)) for name in ("mean", "inverse_std")}
    state = {name: t[name] for name in ("running_mean", "running_var")}
    graph.add(
        ops.BatchNorm(x=t["x"], y=t["h"], bias=t["b"], momentum=0.1, eps=0.1, **statistics, **state)
    )
    graph.add(ops.Activation(x=t["h"], y=t["y"], kind=kind))
    value = t["y" if kind in ops.FROM_OUTPUT else "h"]
    graph.add(ops.ActivationBackward(value=value, dy=t["dy"], dx=t["dh"], kind=kind))
    graph.add(ops.BatchNormBackward(x=t["x"], dy=t["dh"], dx=t["dx"], eps=0.1, **statistics))
    graph.results.update(y=t["y"], dx=t["dx"])
    return graph, t


@pytest.mark.parametrize("kind", ["silu", "sigmoid"])
@pytest.mark.parametrize("change", ["none", "read", "slope", "kind", "sum"])
def test_only_an_activation_with_its_own_backward_joins_its_norm(kind, change):
    graph, t = norm_section(kind)
    mask = graph.ops[2]
    assert isinstance(mask, ops.ActivationBackward)
    if change == "read":
        graph.add(ops.Scale(x=t["h"], y=graph.tensor("other", (4, 2)), factor=2.0))
    elif change == "slope":
        graph.ops[2] = replace(mask, value=t["x"])
    elif change == "kind":
        graph.ops[2] = replace(mask, kind="tanh" if kind == "sigmoid" else "gelu")
    elif change == "sum":
        graph.add(ops.Scale(x=t["dh"], y=graph.tensor("other", (4, 2)), factor=2.0))
    fused = rewritten(graph, chosen("batch_norm_activation"))
    if change == "none":
        assert kinds(fused) == {ops.BatchNorm: 1, ops.BatchNormBackward: 1}
    else:
        assert fused.ops == graph.ops


def test_what_is_a_result_is_computed_after_the_rewrites_too():
    graph = train_graph(network(LENET))
    graph.results["seen"] = next(op for op in graph.ops if isinstance(op, ops.Softmax)).y
    fused = rewritten(graph, REWRITES)
    assert isinstance(fused.producer(graph["seen"]), ops.SoftmaxCrossEntropy)

    graph = train_graph(network(LENET))
    graph.results["seen"] = next(op for op in graph.ops if isinstance(op, ops.RowLossBackward)).dx
    assert kinds(rewritten(graph, REWRITES))[ops.SoftmaxCrossEntropy] == 0


def test_no_names_no_change():
    graph = train_graph(network(LENET))
    assert rewritten(graph, {}).ops == graph.ops
