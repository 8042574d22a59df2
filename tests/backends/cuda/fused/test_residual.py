"""The ends of residual blocks in the kernels of batch norm: which form, and the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.fused import REWRITES
from dnnstack.backends.cuda.fused.residual import GRADIENT, NORM_ADD
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.ops import ActivationBackward, Add, BatchNormBackward, Fused
from dnnstack.graph.rewrites import rewritten
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed
from ....support.feeding import feed
from ....support.specs import network_of, spec

BATCH, COUNT, CLASSES, STEPS = 6, 24, 5, 3


def conv(filters, **options):
    return spec("conv2d", **{"filters": filters, "kernel_size": 3, "padding": "same", **options})


def block(filters, act="relu", shortcut=None, **options):
    body = [
        *(conv(filters, use_bias=False, **options), spec("batch_norm"), spec("relu")),
        *(conv(filters, use_bias=False), spec("batch_norm")),
    ]
    given = {} if shortcut is None else {"shortcut": shortcut}
    return [spec("residual", body=body, **given), *([] if act is None else [spec(act)])]


BEGIN = [conv(8, use_bias=False), spec("batch_norm"), spec("relu")]
END = [spec("global_avg_pool2d"), spec("dense", units=CLASSES), spec("softmax")]
PROJECTED = [conv(16, stride=2, use_bias=False), spec("batch_norm")]
# How many sums a batch norm takes along, how many of its gradients take something along; and how
# many sums, slopes of activations and gradients of batch norm are left as they were.
CASES = {
    "two blocks": ([*BEGIN, *block(8), *block(8)], (2, 3), (0, 0, 2)),
    "fewer rows": (
        [*BEGIN, *block(16, stride=2, shortcut="padding"), *block(16)],
        (2, 3),
        (0, 0, 2),
    ),
    # The sum has two batch norms, and its gradient goes to both.
    "a shortcut with batch norm": (
        [*BEGIN, *block(16, stride=2, shortcut=PROJECTED), *block(16)],
        (2, 3),
        (0, 0, 3),
    ),
    "tanh": ([*BEGIN, *block(8, "tanh"), *block(8, "tanh")], (2, 3), (0, 0, 2)),
    # Its slope is taken of its input, which the sum leaves.
    "gelu": ([*BEGIN, *block(8, "gelu"), *block(8, "gelu")], (2, 1), (1, 2, 4)),
    # Of a norm's own activation other than ReLU nothing is stored that could be left rounded.
    "tanh in front": (
        [conv(8, use_bias=False), spec("batch_norm"), spec("tanh"), *block(8), *block(8)],
        (2, 2),
        (1, 0, 3),
    ),
    "nothing behind": ([*BEGIN, *block(8, None), *block(8, None)], (2, 2), (0, 0, 3)),
}


def network(specs):
    shape = (3, 8, 8)
    return network_of([*specs, *END], shape, CLASSES)


def train_graph(net):
    pixels = Preprocessing((1 / 64,) * 3, (-2.0,) * 3)
    rule = Sgd(momentum=0.9, weight_decay=0.01)
    return composed.train_graph(net, BATCH, "toy", COUNT, COUNT // BATCH, STEPS, pixels, rule)


def trained(backend, net, options):
    """What a few steps leave behind, by the tensor's name; and the calls of a step."""
    graph = train_graph(net)
    executable = backend.compile({"train": graph}, options)
    feed(executable, net, graph, 0.05, shuffled=True)
    executable.run("train", STEPS)
    updated = [tensor for op in graph.ops for tensor in op.tensors(op.updates)]
    values = {each.name: executable.read(each) for each in (*updated, graph["loss"])}
    calls = [call.function for call in executable.calls("train")]
    executable.close()
    return values, calls


def counted(graph, *kinds):
    return tuple(sum(isinstance(op, kind) for op in graph.ops) for kind in kinds)


class Fusing(ReferenceBackend):
    """The reference, which computes a fused operation part by part."""

    rewrites = REWRITES


@pytest.mark.parametrize("name", CASES)
def test_which_form_and_that_its_parts_are_those_of_the_network(name):
    specs, forms, left = CASES[name]
    net = network(specs)
    graph = rewritten(train_graph(net), REWRITES)
    kinds = [op.kind for op in graph.ops if isinstance(op, Fused)]
    assert (kinds.count(NORM_ADD), kinds.count(GRADIENT)) == forms
    assert counted(graph, Add, ActivationBackward, BatchNormBackward) == left
    fused, _ = trained(Fusing(1), net, Options("fp64"))
    plain, _ = trained(Fusing(1), net, Options("fp64", fusion=False))
    for tensor, values in plain.items():
        np.testing.assert_allclose(fused[tensor], values, rtol=1e-9, atol=1e-12, err_msg=tensor)


def test_what_somebody_looks_at_is_kept():
    graph = train_graph(network(CASES["two blocks"][0]))
    known = rewritten(graph, {k: v for k, v in REWRITES.items() if k != "residual"})
    sums = [op for op in known.ops if isinstance(op, Add)]
    graph.results["between"] = sums[0].terms[0]
    graph.results["gradient"] = sums[-1].y
    kinds = [op.kind for op in rewritten(graph, REWRITES).ops if isinstance(op, Fused)]
    assert (kinds.count(NORM_ADD), kinds.count(GRADIENT)) == (1, 2)


@pytest.mark.parametrize("places", [(0, 0, 1), (0, 1, 1), (0, 0)])
def test_a_sum_with_a_term_twice_stays(places):
    graph = train_graph(network([*BEGIN, *block(8)]))
    found = rewritten(graph, {k: v for k, v in REWRITES.items() if k != "residual"})
    ops = list(found.ops)
    at = next(i for i, op in enumerate(ops) if isinstance(op, Add) and op.activation)
    terms = tuple(ops[at].terms[place] for place in places)
    ops[at] = replace(ops[at], terms=terms, activation=None)
    fused = REWRITES["residual"](found.with_ops(ops))
    assert NORM_ADD not in [op.kind for op in fused.ops if isinstance(op, Fused)]


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_the_operations_one_by_one(cuda, monkeypatch, name, precision):
    net, options = network(CASES[name][0]), Options(precision, tune=False)
    found, calls = trained(cuda, net, options)
    apart = {key: rewrite for key, rewrite in REWRITES.items() if key != "residual"}
    monkeypatch.setattr(type(cuda), "rewrites", apart)
    wanted, others = trained(cuda, net, options)
    assert len(calls) < len(others)
    for tensor, values in wanted.items():
        np.testing.assert_array_equal(found[tensor], values, err_msg=tensor)
