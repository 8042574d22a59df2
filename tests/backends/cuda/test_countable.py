"""Tensors with more elements than can be counted are refused before anything is bound."""

from __future__ import annotations

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.memory_plan import MOST_ELEMENTS, plan_memory
from dnnstack.common.errors import ConfigError
from dnnstack.layers.build import LayerSpec
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ...support import composed
from ...support.specs import network_of

SCALING = Preprocessing.standardize([0.5], [0.2])
# 40 channels of 64 x 64, which are padded to 64.
MOST = MOST_ELEMENTS // (64 * 64 * 64)


def network(units: int = 10) -> Network:
    specs = [
        LayerSpec("conv2d", options={"filters": 40, "kernel_size": 3, "padding": 1}),
        LayerSpec("global_avg_pool2d"),
        LayerSpec("dense", options={"units": units}),
        LayerSpec("dense", options={"units": 10}),
        LayerSpec("softmax"),
    ]
    return network_of(specs, (1, 64, 64))


def train(batch: int, parts: int = 1, units: int = 10):
    rule = Composition(Sgd(), parts=parts)
    return composed.train_graph(network(units), batch, "data", 10**6, 10, 20, SCALING, rule)


def test_the_largest_batch_that_is_named_does():
    plan_memory({"train": train(MOST)})
    with pytest.raises(ConfigError) as caught:
        plan_memory({"train": train(MOST + 1)})
    text = str(caught.value)
    assert text.startswith("device 'cuda': ")
    assert "(conv2d_1) of 'train' with a batch of 8192: " in text
    assert "has up to 2,147,483,648 elements with its padding" in text
    assert text.endswith(f"--set data.batch_size={MOST}; or raise train.accumulate")


def test_a_batch_in_parts_counts_by_its_parts():
    plan_memory({"train": train(4 * MOST, parts=4)})
    with pytest.raises(ConfigError, match=rf"data\.batch_size can be at most {4 * MOST}"):
        plan_memory({"train": train(4 * MOST + 4, parts=4)})


def test_evaluation_has_a_key_of_its_own():
    graph = network().evaluate_graph(2 * MOST, "data", 10**6, 5, SCALING)
    with pytest.raises(ConfigError, match=rf"--set data\.evaluation_batch_size={MOST}$"):
        plan_memory({"evaluate": graph})


def test_no_batch_helps_a_parameter():
    plan_memory({"infer": network(1 << 25).infer_graph(2)})
    with pytest.raises(ConfigError, match=r"weight' .* elements .*fewer channels or units"):
        plan_memory({"train": train(2, units=1 << 28)})


def test_it_is_asked_before_any_memory_is(fake_cuda, monkeypatch):
    backend = CudaBackend()
    monkeypatch.setattr(CudaBackend, "precision", lambda self, wanted: "tf32")
    with pytest.raises(ConfigError, match="in one tensor"):
        backend.compile({"train": train(MOST + 1)}, Options())
    assert fake_cuda.allocated == 0
