"""A network that finds too little memory is refused, not killed when it begins to use it."""

from __future__ import annotations

import resource
import threading

import pytest
from dnnstack.backends.onednn import host_memory
from dnnstack.backends.onednn.memory import aligned, allowance
from dnnstack.common.errors import ConfigError, DnnlError


def test_what_is_free_is_the_least_of_machine_container_and_process(tmp_path, monkeypatch):
    monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(host_memory, "STATM", tmp_path / "statm")
    of_groups, limit = (1 << 62, 1 << 62), resource.RLIM_INFINITY
    monkeypatch.setattr(host_memory.limits, "memory", lambda: of_groups)
    monkeypatch.setattr(host_memory.resource, "getrlimit", lambda kind: (limit, limit))
    assert host_memory.free_bytes() == 1 << 62
    text = "MemTotal: 900 kB\nMemAvailable:   800 kB\nSwapFree: 100 kB\nHugePages: 0\n"
    (tmp_path / "meminfo").write_text(text)
    assert host_memory.free_bytes() == 900 << 10
    of_groups = 700_000, 600_000
    assert host_memory.free_bytes() == 600_000
    (tmp_path / "statm").write_text("10 5 1 1 0 1 0\n")
    limit = 500_000
    assert host_memory.free_bytes() == 500_000 - 10 * resource.getpagesize()


def test_it_is_refused_before_more_is_asked_for_than_is_free(make, monkeypatch):
    # Its activations alone are about half a megabyte.
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 10_000_000)
    make()
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 300_000)
    with pytest.raises(ConfigError) as caught:
        make()
    text = str(caught.value)
    assert "device 'cpu': the network needs more memory than is free, 0.00 GB" in text
    assert "data.batch_size of " in text
    # Outside there is no limit.
    assert allowance.left > 1 << 61


def test_threads_that_compile_networks_do_not_count_for_each_other(make, monkeypatch):
    """Each has what was free when it began, and afterwards no limit, whichever ends first."""
    _, graphs, _ = make()
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 1000)
    found, inside, ended = [], threading.Event(), threading.Event()

    def other():
        with host_memory.enough_for(graphs):
            inside.set()
            assert ended.wait(10)
            aligned(600)
        found.append(allowance.left)

    thread = threading.Thread(target=other)
    with host_memory.enough_for(graphs):
        thread.start()
        assert inside.wait(10)
        aligned(600)
    ended.set()
    thread.join(10)
    assert min(*found, allowance.left) > 1 << 61


def test_what_the_library_cannot_get_is_said_in_the_same_way(make):
    _, graphs, _ = make()
    with (
        pytest.raises(ConfigError, match="needs more memory than is free"),
        host_memory.enough_for(graphs),
    ):
        raise DnnlError("oneDNN", "dnnl_primitive_create", "out_of_memory")
    with pytest.raises(DnnlError, match="unimplemented"), host_memory.enough_for(graphs):
        raise DnnlError("oneDNN", "dnnl_primitive_create", "unimplemented")


def test_the_batch_that_is_named_is_of_the_section_that_needs_most(make, monkeypatch):
    _, graphs, _ = make()
    graph = graphs["train"]
    own = host_memory._bytes(graph)
    monkeypatch.setattr(host_memory, "free_bytes", lambda: own)
    with pytest.raises(ConfigError) as caught, host_memory.enough_for({"train": graph}):
        raise MemoryError
    most = int(host_memory.SHARE * graph.batch_size)
    assert str(caught.value).endswith(
        f"the most is needed by 'train' with a batch of {graph.batch_size}; data.batch_size of "
        f"{most} should fit: --set data.batch_size={most}"
    )
