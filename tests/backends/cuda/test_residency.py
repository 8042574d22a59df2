"""On a GPU: data in host memory gives the bits of data on the device; memory is as planned."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.libraries.runtime import cuda_api
from dnnstack.backends.cuda.memory_plan import plan_memory
from dnnstack.common.errors import ConfigError

pytestmark = pytest.mark.cuda

COUNT, STEPS = 640, 10


def feed(executable, graphs, network, shape):
    """Write data, orders, rates and parameters; 7 samples of the evaluation are masked."""
    draw = np.random.default_rng(3)
    train, evaluate = graphs["train"], graphs["evaluate"]
    executable.write(train["images"], draw.integers(0, 256, (COUNT, *shape), dtype=np.uint8))
    executable.write(train["labels"], draw.integers(0, 10, COUNT).astype(np.int32))
    executable.write(train["rates"], np.full(train["rates"].shape, 0.01, np.float32))
    held = np.arange(COUNT, dtype=np.int32)
    held[-7:] = -1
    executable.write(evaluate["order"], held)
    for tensor, values in network.initial_values(1).items():
        executable.write(tensor, values)


def trained(backend, sections, name, residency, precision):
    """Losses, parameters and the sums of an evaluation after an epoch and some steps."""
    graphs = sections(name, count=COUNT, fusion=False)
    network = sections.network(name)
    options = Options(precision, tune=False, residency=residency)
    executable = backend.compile(graphs, options)
    train, evaluate = graphs["train"], graphs["evaluate"]
    feed(executable, graphs, network, network.input_shape)
    losses = []
    for epoch in range(2):
        order = np.random.default_rng(epoch).permutation(COUNT).astype(np.int32)
        executable.write(train["order"], order)
        for count in (1, 3, 4):
            executable.run("train", count)
            losses.append(executable.read(train["loss"])[0])
        executable.write(evaluate["step"], np.zeros(1, np.int64))
        executable.write(evaluate["sums"], np.zeros(3))
        executable.run("evaluate", 5)
        losses += list(executable.read(evaluate["sums"]))
    values = [executable.read(p.tensor) for p in network.parameters()]
    where = executable._store.data
    executable.close()
    return losses, values, train["images"] in where


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("name", ["lenet", "cifar"])
def test_streamed_data_gives_equal_bits(cuda, sections, name, precision, capture):
    backend = cuda if capture else CudaBackend(capture=False)
    losses, values, on_device = trained(cuda, sections, name, "device", precision)
    streamed, others, there = trained(backend, sections, name, "stream", precision)
    assert (on_device, there) == (True, False)
    assert streamed == losses
    for mine, theirs in zip(others, values, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("name", ["lenet", "cifar"])
def test_memory_stays_within_the_plan(cuda, sections, name, precision):
    pool = cuda_api().pool
    graphs = sections(name, batch=256, count=COUNT, fusion=False)
    pool.release()
    before = pool.used_bytes()
    executable = cuda.compile(graphs, Options(precision, fusion=False, tune=False))
    for section in graphs:
        executable.run(section)
    taken = pool.used_bytes() - before
    executable.close()
    assert taken <= plan_memory(graphs, precision, fusion=False).total


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_what_a_search_and_a_network_took_is_free_at_once(
    cuda, sections, no_collection, monkeypatch, tmp_path, precision
):
    """Not at the next collection of garbage, before which the next network may need it."""
    pool, graphs, used = cuda_api().pool, sections("lenet", batch=48, count=COUNT), []
    for attempt in ("first", "second"):
        monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / attempt))
        executable = cuda.compile(graphs, Options(precision, tune_seconds=0.5))
        executable.run("train", 10)
        executable.run("evaluate")
        executable.close()
        used.append(pool.used_bytes())
    # What a process keeps is there behind the first.
    assert used[1] == used[0]


def test_what_does_not_fit_is_refused_before_it_is_allocated(cuda, sections, monkeypatch):
    graphs = sections("cifar", batch=4096)
    monkeypatch.setattr(cuda, "free_bytes", lambda: 4 << 30)
    before = cuda_api().pool.held_bytes()
    with pytest.raises(ConfigError, match=r"data\.batch_size of at most \d+ fits"):
        cuda.compile(graphs, Options(tune=False))
    assert cuda_api().pool.held_bytes() == before
