"""Weights of dense layers that are updated beside the rest of backward; where there is no GPU."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.early_updates import EarlyUpdate
from dnnstack.backends.cuda.operations import sgd
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ...support import composed

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "3", "early": "weights"}
SHAPE = (1, 28, 28)


def dense(*units, clip_norm=None, **rule):
    """A step of a network of dense layers alone."""
    specs = [LayerSpec("flatten")]
    for count in units:
        specs += [LayerSpec("dense", options={"units": count}), LayerSpec("relu")]
    specs.append(LayerSpec("dense", options={"units": 10}))
    network = Network(build_layers(specs, SHAPE), CrossEntropyLoss(), SHAPE, 10)
    scaling = Preprocessing.standardize([0.5], [0.2])
    chosen = Composition(Sgd(**{"momentum": 0.9, **rule}), clip_norm=clip_norm)
    graph = composed.train_graph(network, 64, "data", 640, 10, 20, scaling, chosen)
    return {"train": rewritten(graph, CudaBackend.rewrites)}


def moved(executable):
    """The weights that launches of their own update, in order."""
    calls = executable.calls("train")
    return [call.arguments["updates"] for call in calls if "updates" in call.arguments]


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_weights_move_behind_all_that_reads_them_and_beside_the_rest(bound, sections, precision):
    executable, _ = bound(sections("lenet"), precision, CHOICES)
    assert moved(executable) == ["dense_1.weight"]
    binder = executable.binders()[0]
    ops = [*binder._ops]
    at = next(i for i, op in enumerate(ops) if isinstance(op, EarlyUpdate))
    weight = ops[at].weight
    readers = [i for i, op in enumerate(ops[:-2]) if weight in op.reads() and i != at]
    assert max(readers) == at - 1
    steps = [step for step in binder.steps if step.call is not None]
    own = next(step for step in steps if "updates" in step.call.arguments)
    # On a stream of its own, and something long runs beside it.
    assert own.stream
    behind = [step.call.op.name for step in steps[steps.index(own) + 1 :] if step.stream == 0]
    assert "Conv2dBackwardData" in behind
    executable.close()


def test_what_remains_is_all_else(bound, sections, monkeypatch):
    tables, kept = {}, sgd._table

    def table(b, op, start, stop, others):
        tables[len(tables)] = kept(b, op, start, stop, others)
        return tables[len(tables) - 1]

    monkeypatch.setattr(sgd, "_table", table)
    early = {key: value for key, value in CHOICES.items() if key != "early"}
    spans = []
    for choices in (early, CHOICES):
        executable, _ = bound(sections("lenet"), "tf32", choices)
        binder = executable.binders()[0]
        update = binder.graph.ops[-2]
        weight = next(p for p in update.parameters if p.name == "dense_1.weight")
        start = min(binder.store.spans[p][1] for p in update.parameters)
        _, first, last = binder.store.spans[weight]
        spans.append(slice((first - start) // 32, (last - start) // 32))
        executable.close()
    whole, rest = tables.values()
    own = spans[0]
    assert (whole[own, 0] == 1).all()
    assert not rest[own].any()
    rest[own] = whole[own]
    np.testing.assert_array_equal(rest, whole)


def test_only_where_something_long_follows(bound):
    """Of two hidden layers the second one's weights; of one none, for backward ends with them."""
    for units, names in (((72,), []), ((72, 64), ["dense_2.weight"])):
        executable, _ = bound(dense(*units), "tf32", CHOICES)
        assert moved(executable) == names
        executable.close()


@pytest.mark.parametrize("rule", [{"clip_norm": 1.0}, {}])
def test_only_where_an_update_by_sgd_alone_follows(bound, rule):
    executable, _ = bound(dense(72, 64, **rule), "tf32", CHOICES)
    assert bool(moved(executable)) == (not rule)
    executable.close()


def test_not_without_fusion_and_not_what_another_kernel_moves(bound, sections):
    executable, _ = bound(sections("lenet", fusion=False), "tf32", CHOICES, fusion=False)
    assert not moved(executable)
    executable.close()
    key = "train/dense_1/filter/gemm"
    executable, _ = bound(sections("lenet"), "tf32", CHOICES | {key: "u1-1-4-1"})
    calls = [c.function for c in executable.calls("train") if "updates" in c.arguments]
    assert calls == ["dense_update"]
    executable.close()
