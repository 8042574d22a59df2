"""Activations that are computed again: less memory, and not one bit is another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.backends.cuda.memory_plan import plan_memory
from dnnstack.backends.onednn.memory import Places
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError

from ..support.random_nets import Training, pictures
from .test_random_nets import onednn, session_of

CONV = {"conv2d": {"filters": 16, "kernel_size": 3, "padding": "same", "use_bias": False}}
BLOCK = {"residual": {"body": [CONV, "batch_norm", "relu", CONV, "batch_norm"]}}
DEEP = {
    "name": "deep",
    "data": {"dataset": "strokes", "batch_size": 32, "validation": 0},
    "layers": [
        *(CONV, *[BLOCK, "relu"] * 3, "max_pool2d", {"dropout": {"rate": 0.2}}),
        *([BLOCK, "gelu"] * 3),
        *("max_pool2d", "flatten", {"dense": {"units": 32}}, "relu", {"dense": {"units": 10}}),
    ],
    "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9},
}
STEPS = 6


def session(backend: Any, again: bool, **run: Any):
    config = {**DEEP, "train": {"max_steps": STEPS, "recompute": again}}
    config["run"] = {"tune": False, **run}
    info, data = pictures((1, 28, 28), 10, 256, 7)
    return session_of(Training(config, info, data, 2, 7), backend)


def trained(backend: Any, again: bool, **run: Any) -> dict[str, Any]:
    found = session(backend, again, **run)
    for _ in range(STEPS):
        found.executable.poison()
        found.run(1)
    arrays = dict(found.snapshot().arrays)
    found.close()
    return arrays


def assert_same_bits(backend: Any, **run: Any) -> None:
    once, twice = (trained(backend, again, **run) for again in (False, True))
    assert all(np.isfinite(array).all() for array in once.values())
    for name, array in once.items():
        np.testing.assert_array_equal(array, twice[name], name)


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_the_same_bits(backend, fusion, monkeypatch):
    # Networks this small would leave all batch norms to NumPy.
    monkeypatch.setattr("dnnstack.backends.onednn.norm.FEW", 0)
    assert_same_bits(
        ReferenceBackend(1) if backend == "numpy" else onednn()._backend, fusion=fusion
    )


def test_a_step_takes_less_than_half_of_the_memory(monkeypatch):
    most: list[Places] = []
    made = Places.__init__
    monkeypatch.setattr(
        Places, "__init__", lambda self, graph: (made(self, graph), most.append(self))[0]
    )
    found = session(onednn()._backend, again=True)
    graph = found.graph("train")
    assert found.executable.graphs["train"].ops
    activations = {t for op in graph.ops for t in op.tensors(op.outputs) if t.role == "activation"}
    found.close()
    plain = session(onednn()._backend, again=False)
    assert len(most) == 1
    whole = {t for t in plain.graph("train").tensors() if t.role == "activation"}
    plain.close()
    assert len(activations) > len(whole)
    assert 0 < most[0]._most < 0.4 * sum(t.nbytes for t in whole)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_gpu_needs_less_by_its_plan(precision):
    needs = []
    for again in (False, True):
        found = session(ReferenceBackend(1), again)
        graphs = {"train": found.graph("train")}
        needs.append(plan_memory(graphs, precision, share=again).sections["train"].activations)
        assert plan_memory(graphs, precision).sections["train"].activations >= needs[0]
        found.close()
    assert needs[1] < 0.6 * needs[0]


@pytest.mark.cuda
@pytest.mark.parametrize("streams", ["1", "2"])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_the_same_bits_on_a_gpu(cuda, precision, streams, monkeypatch):
    from dnnstack.backends.cuda.backend import DEFAULT_CHOICES

    choices = {**DEFAULT_CHOICES[precision], "streams": streams}
    monkeypatch.setitem(DEFAULT_CHOICES, precision, choices)
    assert_same_bits(cuda, precision=precision)


@pytest.mark.cuda
def test_bfloat16_on_a_gpu_is_refused(cuda):
    with pytest.raises(ConfigError, match=r"train\.recompute: .*use run\.precision: tf32"):
        trained(cuda, True, precision="bf16")
