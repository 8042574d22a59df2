"""Sections that differ in numbers alone take the place of others without being bound again."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.slices import SEGMENT
from dnnstack.backends.cuda.operations.augment import _ACT
from dnnstack.backends.cuda.operations.muon import _FILTER
from dnnstack.backends.cuda.operations.optimizers import _ADAM, segment
from dnnstack.graph.augmentations import RandomCrop, RandomFlip
from dnnstack.graph.mixing import MixUp
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.adam import Adam
from dnnstack.optimizers.groups import Group
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ...support import composed
from ...support.update_formulas import FORMULAS, ByFormula
from .conftest import FakeKernel

COUNT, EPOCH, TOTAL = 640, 10, 20
# What the bytes are that kernels are given, beside addresses.
STRUCTURES = {
    "adam_update": _ADAM,
    "elementwise_update": segment(1),
    "gather_augmented": _ACT,
    "muon_momentum": _FILTER,
    "muon_normalize": _FILTER,
    "muon_update": _FILTER,
    "sgd_update": np.dtype(SEGMENT),
    "sum_slices": np.dtype(SEGMENT),
}


def biases(factor, decay):
    return (Group(kinds=("bias",), lr_factor=factor, weight_decay=decay),)


def muon(factor, momentum=0.9, decay=0.1):
    return Composition(Muon(Sgd(), momentum=momentum, weight_decay=decay, rest_factor=factor))


# A net, and two ways to train it: the optimizer, the label smoothing, the seed.
PAIRS = {
    "muon-lr": ("cifar", (muon(0.5), 0.0, 1), (muon(0.7), 0.0, 1)),
    "muon-momentum": ("cifar", (muon(0.5), 0.0, 1), (muon(0.5, 0.8), 0.0, 1)),
    "muon-decay": ("cifar", (muon(0.5), 0.0, 1), (muon(0.5, decay=0.2), 0.0, 1)),
    "groups": (
        "lenet",
        (Composition(Sgd(momentum=0.9), biases(0.5, 0.1)), 0.0, 1),
        (Composition(Sgd(momentum=0.8), biases(0.7, 0.2)), 0.0, 1),
    ),
    "plain": (
        "lenet",
        (Composition(Sgd(weight_decay=0.1)), 0.0, 1),
        (Composition(Sgd(weight_decay=0.2)), 0.0, 1),
    ),
    "adam": (
        "deep",
        (Composition(Adam(), biases(0.5, 0.1)), 0.0, 1),
        (Composition(Adam(betas=(0.8, 0.9), eps=1e-6), biases(0.7, 0.2)), 0.0, 1),
    ),
    "adagrad": (
        "deep",
        (Composition(ByFormula(chosen=FORMULAS["adagrad"]), biases(0.5, 0.1)), 0.0, 1),
        (Composition(ByFormula(chosen=FORMULAS["adagrad"]), biases(0.7, 0.2)), 0.0, 1),
    ),
    "smoothing": ("cifar", (Composition(Sgd()), 0.1, 1), (Composition(Sgd()), 0.2, 1)),
    "smoothing-tail": ("lenet", (Composition(Sgd()), 0.1, 1), (Composition(Sgd()), 0.2, 1)),
    "seed": ("deep", (Composition(Sgd()), 0.0, 1), (Composition(Sgd()), 0.0, 2)),
}


@pytest.fixture
def graphs(sections):
    def make(net, rule, smoothing, seed, fusion=True):
        network = sections.network(net)
        network.loss = CrossEntropyLoss(label_smoothing=smoothing)
        channels = network.input_shape[0]
        scaling = Preprocessing.standardize([0.5] * channels, [0.2] * channels)
        given = (64, "data", COUNT, EPOCH, TOTAL, scaling, rule)
        # Of mixed targets the loss is a formula.
        augment = (RandomCrop(2), RandomFlip(), *([] if smoothing else [MixUp()]))
        graph = composed.train_graph(network, *given, augment=augment, seed=seed)
        return {"train": rewritten(graph, CudaBackend.rewrites if fusion else {})}

    return make


@pytest.fixture
def launched(monkeypatch):
    """Runs a section; gives the name and the arguments of every launch, with no addresses."""
    found = []

    def seen(kernel, stream, grid, block, arguments, shared):
        def run():
            shown = [plain(kernel.name, each) for each in arguments if not isinstance(each, int)]
            found.append((kernel.name, grid, block, shown, shared))

        return run

    def plain(name, value):
        array = np.array(value)
        kind = STRUCTURES.get(name)
        if array.dtype != "uint8" or array.ndim != 1 or kind is None:
            return array
        rows = array.view(kind)
        return [rows[field] for field in kind.names if kind[field].base != np.dtype("u8")]

    def run(executable):
        found.clear()
        executable.run("train")
        return [*found]

    monkeypatch.setattr(FakeKernel, "launch", seen)
    return run


def unequal(ones, others):
    """The kernels that were given other numbers."""
    assert [one[:3] for one in ones] == [other[:3] for other in others]
    found = []
    for one, other in zip(ones, others, strict=True):
        try:
            np.testing.assert_equal(one[3:], other[3:])
        except AssertionError:
            found.append(one[0])
    return found


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("fusion", [True, False])
def test_launches_have_the_numbers_of_a_fresh_binding(bound, graphs, launched, case, fusion):
    net, *ways = PAIRS[case]
    first, second = (graphs(net, *way, fusion) for way in ways)
    kept, other = (bound(made, fusion=fusion)[0] for made in (first, second))
    before, wanted = launched(kept), launched(other)
    if case.startswith("smoothing") and not fusion:
        # The loss is a formula, whose numbers are part of a kernel's code.
        assert not kept.renumber(second)
        return
    # Without a difference here the test would show nothing.
    assert unequal(before, wanted)
    assert kept.renumber(second)
    assert not unequal(launched(kept), wanted)
    assert kept.graphs is second
    assert kept.renumber(first)
    assert not unequal(launched(kept), before)


def test_what_cannot_become_another_stays_as_it_was(bound, graphs, launched):
    """A number that is 0 now, another kind of update, one that is part of a kernel's code."""
    made = graphs("lenet", Composition(Sgd(momentum=0.9), biases(0.5, 0.1)), 0.1, 1)
    kept, _ = bound(made)
    before = launched(kept)
    others = (
        (Composition(Sgd(momentum=0.9), biases(0.5, 0.0)), 0.1, 1),
        (Composition(Sgd(momentum=0.9, nesterov=True), biases(0.5, 0.1)), 0.1, 1),
        (Composition(Sgd(momentum=0.8), biases(0.5, 0.1)), 0.0, 1),
        (Composition(Adam(), biases(0.5, 0.1)), 0.1, 1),
    )
    for way in others:
        assert not kept.renumber(graphs("lenet", *way))
        assert not unequal(launched(kept), before)
    assert kept.graphs is made


def test_captured_graphs_go_where_launches_have_other_arguments(bound, graphs):
    """Tables are written in place: graphs of launches that read them stay."""
    made = [
        graphs("lenet", Composition(Sgd(momentum=momentum), biases(factor, 0.1)), 0.0, 1)
        for momentum, factor in ((0.9, 0.5), (0.9, 0.7), (0.8, 0.7), (0.8, 0.5))
    ]
    kept, _ = bound(made[0])
    left = []
    for each in made[1:]:
        kept._captured[("train",), 1] = ["a graph"]
        assert kept.renumber(each)
        left.append(len(kept._captured))
    assert left == [1, 0, 1]
