"""Arrays, streams, events and graphs on a GPU, and that a start needs no more of CuPy."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.runtime import captured, cuda_api, cupy_on, device

pytestmark = pytest.mark.cuda


@pytest.fixture
def api(cuda):
    with device().stream:
        yield cuda_api()


def drawn(shape, dtype):
    return np.random.default_rng(1).integers(0, 200, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 3, 2, 2), (0,), (0, 3)])
def test_what_is_written_is_read(api, shape, dtype):
    values = drawn(shape, dtype)
    array = api.asarray(values)
    assert (array.shape, array.dtype, array.nbytes) == (values.shape, values.dtype, values.nbytes)
    np.testing.assert_array_equal(array.get(), values)
    np.testing.assert_array_equal(array.copy().get(), values)
    np.testing.assert_array_equal(api.zeros_like(array).get(), np.zeros_like(values))
    np.testing.assert_array_equal(api.ones(shape, dtype).get(), np.ones_like(values))


def test_rows_views_and_shapes_share_memory(api):
    values = drawn((6, 4), "int32")
    array = api.asarray(values)
    np.testing.assert_array_equal(array[2:5].get(), values[2:5])
    np.testing.assert_array_equal(array[4:].get(), values[4:])
    assert len(array[5:2]) == 0
    array[1:3].set(values[3:5])
    values[1:3] = values[3:5]
    np.testing.assert_array_equal(array.reshape((2, 3, 4)).get(), values.reshape(2, 3, 4))
    np.testing.assert_array_equal(array.view("uint8").get(), values.view("uint8").ravel())
    array[:1].fill(0xFF)
    assert (array[:1].get() == -1).all()
    assert array.data.ptr == array[:1].data.ptr


@pytest.mark.parametrize(
    "wrong",
    [
        lambda array: array[::2],
        lambda array: array.view("uint64"),
        lambda array: array.reshape((4, 4)),
        lambda array: array.set(np.zeros(15, "float32")),
        lambda array: array.set(np.zeros(14, "int32")),
    ],
)
def test_what_does_not_fit_is_refused(api, wrong):
    with pytest.raises(ValueError, match=r"array|bytes|device"):
        wrong(api.zeros(15, "int32"))


def test_a_host_array_may_change_once_it_is_written(api):
    values = drawn(1 << 20, "float32")
    array, kept = api.asarray(values), values.copy()
    values[:] = 0
    np.testing.assert_array_equal(array.get(), kept)


def test_cupy_shares_the_memory(api):
    array = api.asarray(np.arange(5, dtype="float32"))
    with cupy_on(device().stream) as cupy:
        seen = cupy.asarray(array)
        seen += 1
        assert seen.data.ptr == array.ptr
    np.testing.assert_array_equal(array.get(), np.arange(1, 6))


def test_too_much_is_a_memory_error(api):
    with pytest.raises(MemoryError, match="asked for 1,125,899,906,842,624 bytes"):
        api.empty(1 << 50, "uint8")
    # The error leaves nothing behind.
    assert api.zeros(3, "int32").get().sum() == 0


def test_a_graph_launches_what_was_captured(api):
    stream = device().stream
    source, target = api.asarray(np.arange(100, dtype="int32")), api.zeros(100, "int32")
    runtime = api.runtime
    copy = (target.ptr, source.ptr, 400, runtime.memcpyDeviceToDevice, stream.ptr)
    graph = captured([lambda: runtime.memcpyAsync(*copy)], stream)
    assert target.get().sum() == 0
    graph.launch(stream)
    np.testing.assert_array_equal(target.get(), np.arange(100))


def test_events_order_streams_and_tell_the_time(api):
    other, stream = api.Stream(), device().stream
    begin, end = api.Event(timing=True), api.Event(timing=True)
    array = api.zeros(1 << 24, "uint8")
    begin.record(stream)
    array.fill(3)
    end.record(stream)
    other.wait_event(end)
    with other:
        found = array.get()
    assert (found == 3).all()
    assert 0 < begin.seconds_until(end) < 10


def test_a_block_of_a_stream_ends_with_it(api):
    inner = api.Stream()
    with inner:
        first = api.zeros(1000, "uint8")
        address = first.ptr
        del first
        assert api.zeros(1000, "uint8").ptr == address
    assert api.zeros(1000, "uint8").ptr != address


def test_pinned_memory_is_seen_by_numpy(api):
    seen = np.asarray(api.Pinned(4096))
    seen[...] = 7
    array = api.empty(4096, "uint8")
    array.set(seen)
    assert (array.get() == 7).all()


def test_a_thread_gets_the_context_with_its_stream(api):
    found = []

    def work():
        with api.Stream():
            found.append(api.asarray(np.arange(3)).get().tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[0, 1, 2]]


EXPLAINED = """
import sys
from dnnstack.cli import run
sys.argv[1:] = ["explain", "--config", "lenet.yaml", "--device", "cuda", "--set", "run.tune=false"]
status = run()
print(f"{status}: {'cupy' in sys.modules}", file=sys.stderr)
"""


def test_a_warm_start_imports_the_bindings_alone(cuda, tmp_path):
    """CuPy takes as long as all else that is imported. The first start tries plans with it."""
    ways = []
    for _ in range(2):
        environment = {**os.environ, "DNNSTACK_CACHE": str(tmp_path)}
        command = [sys.executable, "-c", EXPLAINED]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        ways.append(done.stderr.splitlines()[-1])
    assert ways == ["0: True", "0: False"], done.stderr
