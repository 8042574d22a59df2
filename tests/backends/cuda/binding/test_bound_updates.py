"""Augmentation and optimizers bound on the stand-in: memory as planned, addresses as meant."""

from __future__ import annotations

import pytest
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.memory_plan import FURTHEST, plan_memory
from dnnstack.graph.augmentations import Cutout, Elastic, RandomCrop, Rotate
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.losses.distill import DistillLoss
from dnnstack.optimizers.adam import Adam
from dnnstack.optimizers.groups import Group, stretches
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.average import evaluated
from dnnstack.training.augmentation import views_of
from dnnstack.training.network import Network, Teacher
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.formats.provenance import BegunFrom
from dnnstack.training.renewal import RENEW, make_renewal
from dnnstack.training.sections import Composition

from ....support import composed
from ....support.update_formulas import FORMULAS, ByFormula

COUNT, EPOCH, TOTAL = 640, 10, 20
LATE = Group(kinds=("bias",), freeze_until=1.0)
RULES = {
    "adam": Composition(Adam(), (LATE,), clip_norm=1.0, averages=("ema",)),
    "adagrad": Composition(ByFormula(chosen=FORMULAS["adagrad"]), (LATE,)),
    "lion": Composition(ByFormula(chosen=FORMULAS["lion"])),
    "rmsprop": Composition(ByFormula(chosen=FORMULAS["rmsprop-options"]), (LATE,)),
    "sign": Composition(ByFormula(chosen=FORMULAS["sign"]), averages=("ema",)),
    "muon": Composition(Muon(rest=Sgd(momentum=0.9)), averages=("lookahead",)),
    "parts": Composition(Sgd(momentum=0.9), (LATE,), averages=("lookahead", "ema"), parts=4),
}
AUGMENT = (RandomCrop(2), Rotate(10.0), Elastic(3.0, 1.0), Cutout(4))


@pytest.fixture
def graphs(sections):
    """Makes the sections of the small net for CIFAR with everything around it."""
    network = sections.network("cifar")
    scaling = Preprocessing.standardize([0.5] * 3, [0.2] * 3)

    def make(rule, augment=AUGMENT):
        given = (network, 64, "data", COUNT, EPOCH, TOTAL, scaling, rule)
        step = composed.step_of(*given, augment=augment)
        every = (step.graphs(first) for first in stretches(rule.groups, EPOCH, TOTAL))
        found = [graph for graphs in every for graph in graphs if graph is not None]
        views = views_of("mirror+translate", 0.25)
        evaluate = network.evaluate_graph(64, "data", COUNT, EPOCH, scaling, views)
        found.append(evaluate.substituted(evaluated(found)))
        return {graph.name: rewritten(graph, CudaBackend.rewrites) for graph in found}

    return make


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("rule", list(RULES))
def test_what_is_counted_is_what_is_bound(bound, graphs, rule, precision, streamed):
    made = graphs(RULES[rule])
    executable, taken = bound(made, precision, FURTHEST, streamed)
    executable.close()
    plan = plan_memory(made, precision, streamed, choices=FURTHEST)
    assert plan.total - plan.libraries == taken
    assert plan.total <= plan_memory(made, precision, streamed).total


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_teacher_is_bound_in_the_step(bound, sections, precision):
    """Beside a student of the same layers, with weights of its own that no gradient reaches."""
    deep = sections.network("deep")
    network = Network(deep.layers, DistillLoss(), deep.input_shape, deep.classes)
    scaling = Preprocessing.standardize([0.5] * 3, [0.2] * 3)
    network.teacher = Teacher(deep, {}, BegunFrom("x", "0" * 64, "dnnstack", 1), scaling)
    given = (network, 64, "data", COUNT, EPOCH, TOTAL, scaling, Composition(Sgd(momentum=0.9)))
    (train, _) = composed.step_of(*given).graphs(0)
    made = {"train": rewritten(train, CudaBackend.rewrites)}
    names = {t.name for t in made["train"].tensors() if t.role in ("parameter", "gradient")}
    assert {"teacher:conv2d_1.weight", "conv2d_1.weight.grad"} <= names
    assert "teacher:conv2d_1.weight.grad" not in names
    executable, taken = bound(made, precision, FURTHEST, False)
    executable.close()
    plan = plan_memory(made, precision, choices=FURTHEST)
    assert plan.total - plan.libraries == taken


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_what_measures_statistics_for_averages_is_bound(bound, sections, precision):
    """Its weights are the averages, which lie as the weights do; its counter is its own."""
    network, rule = sections.network("deep"), Composition(Sgd(momentum=0.9), averages=("swa",))
    scaling = Preprocessing.standardize([0.5] * 3, [0.2] * 3)
    given = (network, 64, "data", COUNT, EPOCH, TOTAL, scaling, rule)
    step = composed.step_of(*given, augment=AUGMENT)
    train, _ = step.graphs(0)
    renewal = make_renewal(step.plain_graph(RENEW, network), evaluated([train]), "sgd", EPOCH, 1)
    made = {g.name: rewritten(g, CudaBackend.rewrites) for g in (train, renewal.graph)}
    read = {t.name for t in made["renew"].tensors() if t.role in ("parameter", "state")}
    names = ["conv2d_1.weight", "conv2d_1.bias", "conv2d_2.weight", "conv2d_2.bias"]
    names += [f"batch_norm_{n}.{name}" for n in (1, 2) for name in ("weight", "bias")]
    assert read == {*(f"swa/{name}" for name in names), "renew.step", "renew.statistics"}
    executable, taken = bound(made, precision, FURTHEST, False)
    held = executable._store.buffers
    for average, value in _averages({"train": made["train"]}):
        assert held[average].layout.same(held[value].layout), average.name
    executable.close()
    plan = plan_memory(made, precision, False, choices=FURTHEST)
    assert plan.total - plan.libraries == taken


def _averages(graphs):
    ops = [op for graph in graphs.values() for op in graph.ops if hasattr(op, "averages")]
    return [pair for op in ops for pair in zip(op.averages, op.values, strict=True)]
