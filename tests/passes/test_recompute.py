"""Activations that backward computes again: what is kept, what comes twice, and when."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import DatasetInfo
from dnnstack.graph.graph import Origin, Tensor
from dnnstack.graph.ops import Activation, AllReduce, BatchNorm, Dropout
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.recompute import most_bytes, recomputed
from dnnstack.passes.section import Section, lowered
from dnnstack.training.assemble import build_network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition, Step

CONV = {"conv2d": {"filters": 4, "kernel_size": 3, "padding": "same", "use_bias": False}}
BODY = [CONV, "batch_norm", "relu", CONV, "batch_norm"]
INFO = DatasetInfo("drawn", (4, 6, 6), ("a", "b", "c"), 10, None)


def section(blocks: int, *more: object) -> Section:
    """Residual blocks, further layers, and as many blocks again."""
    stack = [{"residual": {"body": BODY}}, "relu"] * blocks
    layers = [*stack, *more, *stack, "flatten", {"dense": {"units": 3}}]
    rest = {"data": {"dataset": "strokes"}, "optimizer": {"type": "sgd", "lr": 0.1}}
    text = json.dumps({"name": "x", "layers": layers, "train": {"epochs": 1}, **rest})
    config: RunConfig = parse_config(text, "x.yaml")
    network, scaling = build_network(config, INFO), Preprocessing((1.0,) * 4, (0.0,) * 4)
    step = Step(network, 5, "toy", 10, 2, 2, scaling, Composition(Sgd()), 3)
    graph = step.plain_graph("train", network)
    return step.composition.plain(graph, network.parameters(), 2, 2)


def again(found: Section) -> list[str]:
    """The layers that are computed again, in order."""
    made = [op for op in found.body if any(t.name.endswith(".again") for t in op.writes())]
    return [op.origin[0].layer for op in made]


def test_a_deep_network_needs_less_than_half_at_a_time() -> None:
    before = section(5)
    after = recomputed(before)
    assert most_bytes(after.body) < 0.5 * most_bytes(before.body)
    assert after.body[: len(before.body) // 3] == before.body[: len(before.body) // 3]
    # The last block first, and none twice.
    order = again(after)
    assert len(order) == len(set(order)) > 9
    begins = [int(name.split(".")[0].removeprefix("residual_")) for name in order if "." in name]
    assert begins[0] > begins[-1]
    # Of the norm at the end of a block backward reads the statistics alone, which are kept.
    assert "residual_2.batch_norm_3" in order
    assert "residual_2.batch_norm_4" not in order
    # The last block is not computed again.
    assert "flatten_1" not in order
    assert {op.origin[0].phase for op in after.body if op.origin[0].layer in order} == {
        "forward",
        "backward",
    }
    lowered(after)


def test_a_shallow_network_stays_as_it_is() -> None:
    """Nothing is saved by computing again what is needed at once."""
    before = section(0, CONV, "relu")
    assert recomputed(before) == before
    empty = replace(before, body=())
    assert recomputed(empty) == empty


def test_statistics_and_exchanges_happen_once() -> None:
    before = section(5)
    mean = next(op.mean for op in before.body if isinstance(op, BatchNorm))
    exchange = AllReduce(values=(mean,), ranks=2, origin=(Origin("residual_1", "forward"),))
    at = next(i for i, op in enumerate(before.body) if mean in op.writes()) + 1
    before = replace(before, body=(*before.body[:at], exchange, *before.body[at:]))
    after = recomputed(before)
    moving = [op for op in after.body if isinstance(op, BatchNorm) and op.running_mean is not None]
    assert len(moving) == 20
    twice = [op for op in after.body if isinstance(op, BatchNorm) and op.running_mean is None]
    assert twice
    for op in twice:
        assert op.running_var is None
        assert op.var is not None
        assert op.var.name == op.mean.name.removesuffix("mean.again") + "var.again"
        assert op.var.shape == op.mean.shape
    assert Counter(isinstance(op, AllReduce) for op in after.body)[True] == 1


def test_what_ranks_share_out_happens_once(monkeypatch) -> None:
    monkeypatch.setattr(Activation, "shared_out", True)
    after = recomputed(section(5))
    made = [op for op in after.body if any(t.name.endswith(".again") for t in op.writes())]
    assert made
    assert not any(isinstance(op, Activation) for op in made)


def test_dropout_draws_the_same_again() -> None:
    before = section(4, {"dropout": {"rate": 0.5}})
    drawn = [op for op in recomputed(before).body if isinstance(op, Dropout)]
    assert len({(op.key, op.threshold, op.step) for op in drawn}) == 1


def op(reads: str, writes: str) -> Activation:
    def tensor(name: str) -> Tensor:
        role = "gradient" if name == "g" else "activation"
        return Tensor(name, (ord(name) - ord("a") + 1,), role=role)  # type: ignore[arg-type]

    return Activation(x=tensor(reads), y=tensor(writes), kind="relu")


@pytest.mark.parametrize(
    ("ops", "most"),
    [
        # a is outside: not made here. b: 8 bytes, c: 12, d: 16.
        ([op("a", "b")], 8),
        ([op("a", "b"), op("b", "c")], 20),
        ([op("a", "b"), op("b", "c"), op("c", "d")], 28),
        ([op("a", "b"), op("b", "c"), op("b", "d")], 24),
        ([op("a", "d"), op("a", "b"), op("b", "c")], 20),
        # Gradients lie in an arena of their own.
        ([op("a", "b"), op("b", "g")], 8),
    ],
)
def test_the_most_bytes_at_a_time(ops, most) -> None:
    assert most_bytes(ops) == most


def test_bytes_are_those_of_the_planned_tensors() -> None:
    body = section(1).body
    made = {t for op in body for t in op.tensors(op.outputs) if t.role == "activation"}
    assert 0 < most_bytes(body) < np.sum([t.nbytes for t in made])
