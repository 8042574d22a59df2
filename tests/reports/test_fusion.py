"""Which plain operations a rewritten one stands for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from dnnstack.backends.cuda.fused import REWRITES
from dnnstack.configs import RunConfig, parse_config
from dnnstack.graph.graph import Graph, Op, Origin
from dnnstack.graph.ops import Fused
from dnnstack.graph.rewrites import LIBRARY_REWRITES, rewritten
from dnnstack.reports.fusion import replacements, same_op
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.sections import composition

from ..support import composed
from ..support.stored import cases

_STACKS = cases(__file__, "stacks")


def _plain(config: RunConfig) -> Graph:
    info = describe_data(config)
    network = build_network(config, info)
    scaling = preprocessing(config, info)
    return composed.train_graph(network, 8, "train", 40, 5, 10, scaling, composition(config))


def _config(layers: str) -> RunConfig:
    text = (
        f"data: {{dataset: mnist}}\nlayers: {layers}\n"
        "optimizer: {type: sgd, lr: 0.1, momentum: 0.9, clip_norm: 1}\ntrain: {epochs: 1}\n"
    )
    return parse_config(text, "x.yaml")


def _names(ops: tuple[Op, ...]) -> list[str]:
    return [op.name for op in ops]


@pytest.mark.parametrize("layers", _STACKS.values(), ids=_STACKS)
@pytest.mark.parametrize("names", [list(REWRITES), *([name] for name in REWRITES), []])
def test_every_plain_operation_is_kept_or_replaced_once(layers, names):
    plain = _plain(_config(layers))
    graph = rewritten(plain, {name: REWRITES[name] for name in names})
    found = replacements(plain, graph)
    assert set(found) <= set(graph.ops)
    kept = [op for op in graph.ops if op not in found]
    replaced = [op for sources in found.values() for op in sources]
    assert Counter([*kept, *replaced]) == Counter(plain.ops)
    for op, sources in found.items():
        assert {source.origin[0] for source in sources} <= set(op.origin)


def test_what_one_kernel_for_several_operations_stands_for():
    plain = _plain(_config(_STACKS["convolutions"]))
    graph = rewritten(plain, REWRITES)
    replaced = replacements(plain, graph)
    found = {op.name: _names(replaced[op]) for op in graph.ops if isinstance(op, Fused)}
    assert found["first_conv_pool"] == ["Conv2d", "BiasAdd", "Activation", "Pool2d"]
    assert sorted(found["first_conv_pool_backward"]) == sorted(
        ["Pool2dBackward", "ActivationBackward", "Conv2dBackwardFilter", "BiasGrad"]
    )


def test_a_call_for_several_layers_is_found_again():
    plain = _plain(_config(_STACKS["dense"]))
    op = plain.ops[3]
    assert same_op(replace(op, origin=(*op.origin, Origin("other", "forward"))), plain.ops) is op
    assert same_op(replace(op, origin=op.origin), plain.ops[:3]) is None


def test_what_each_fusion_stands_for():
    plain = _plain(_config(_STACKS["convolutions"]))
    graph = rewritten(plain, LIBRARY_REWRITES)
    replaced = replacements(plain, graph)
    found = [
        (op.name, op.origin[0].layer, _names(replaced[op])) for op in graph.ops if op in replaced
    ]
    fused = ["Conv2d", "BiasAdd", "Activation"]
    assert found == [
        ("Conv2d", "conv2d_1", fused),
        ("Conv2d", "conv2d_2", fused),
        ("MatMul", "dense_1", ["MatMul", "BiasAdd"]),
        ("SoftmaxCrossEntropy", "loss", ["Softmax", "CrossEntropy"]),
        ("SoftmaxCrossEntropyBackward", "loss", ["CrossEntropyBackward", "SoftmaxBackward"]),
        ("MatMul", "dense_1", ["MatMul", "BiasGrad"]),
        ("Conv2dBackwardFilter", "conv2d_2", ["Conv2dBackwardFilter", "BiasGrad"]),
        ("ActivationBackward", "relu_1", ["ActivationBackward"]),
        ("Pool2dBackward", "max_pool2d_1", ["Pool2dBackward"]),
        ("Conv2dBackwardFilter", "conv2d_1", ["Conv2dBackwardFilter", "BiasGrad"]),
    ]


def test_nothing_is_replaced_where_nothing_was_rewritten(tiny):
    plain = _plain(tiny())
    assert replacements(plain, rewritten(plain, {})) == {}
