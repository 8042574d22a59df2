"""Batch norm, local response normalisation and dropout as layers."""

from __future__ import annotations

import pytest
from dnnstack.common import random
from dnnstack.common.errors import ShapeError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Dropout
from dnnstack.layers.batch_norm import BatchNormLayer
from dnnstack.layers.dropout import DropoutLayer
from dnnstack.layers.lrn import LcnLayer, LrnLayer

PICTURE = (3, 8, 6)


def test_batch_norm_of_one_value_a_channel_says_what_to_do():
    layer = BatchNormLayer("bn", (4,))
    graph = Graph("train", 1, training=True)
    message = (
        r"layer 'bn' \(batch_norm\): a batch of 1 gives one value per channel, .*; raise "
        r"data.batch_size, or lower train.accumulate, which cuts a batch into parts"
    )
    with pytest.raises(ShapeError, match=message):
        layer.forward(graph, graph.tensor("x", (1, 4), role="input"))
    # Outside training one sample is enough, and in training one picture of several pixels.
    layer.forward(other := Graph("infer", 1), other.tensor("x", (1, 4), role="input"))
    graph = Graph("train", 1, training=True)
    BatchNormLayer("bn", PICTURE).forward(graph, graph.tensor("x", (1, *PICTURE), role="input"))


@pytest.mark.parametrize("kind", [LrnLayer, LcnLayer])
def test_local_response_wants_pictures(kind):
    with pytest.raises(ShapeError, match="expects a picture"):
        kind("name", (7,))


def test_dropout_is_nothing_outside_training_and_for_a_rate_of_0():
    for rate, training in ((0.5, False), (0.0, True)):
        graph = Graph("g", 2, training=training)
        layer = DropoutLayer("d", (4,), rate=rate)
        x = graph.tensor("x", (2, 4), role="input")
        assert layer.forward(graph, x) is x
        assert layer.backward(graph, x) is x
        assert graph.ops == []


def test_the_key_of_dropout_is_of_seed_and_layer():
    keys = set()
    for seed, name in ((1, "d"), (2, "d"), (1, "e")):
        graph = Graph("g", 2, training=True, seed=seed)
        x = graph.tensor("x", (2, 4), role="input")
        DropoutLayer(name, (4,), rate=0.25).forward(graph, x)
        op = graph.ops[-1]
        assert isinstance(op, Dropout)
        assert (op.threshold, op.scale) == (1 << 30, 4 / 3)
        assert op.key == random.key(seed, "dropout", name)
        keys.add(op.key)
    assert len(keys) == 3


def test_the_largest_word_is_never_dropped():
    layer = DropoutLayer("d", (4,), rate=1.0 - 2.0**-40)
    assert layer.threshold == 2**32 - 1
