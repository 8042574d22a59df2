"""Pictures that are on the device already are not copied again, with a stand-in for CuPy."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda.binding.pictures import Pictures
from dnnstack.graph.graph import Tensor

from ..conftest import FakeArray

COUNT = 640


@pytest.fixture
def copied(monkeypatch):
    """The arrays that were copied to the device, as long as they are pictures."""
    found, copy = [], FakeArray.set

    def counted(array, values, stream=None):
        if array.dtype == np.uint8:
            found.append(values)
        copy(array, values)

    monkeypatch.setattr(FakeArray, "set", counted)
    return found


def data_set(seed, fixed=True, count=COUNT):
    images = np.random.default_rng(seed).integers(0, 256, (count, 1, 28, 28), dtype=np.uint8)
    images.setflags(write=not fixed)
    return images


def test_they_go_from_one_executable_to_the_next(bound, sections, copied):
    held, graphs = Pictures(), sections("lenet", count=COUNT)
    tensor, images, other = graphs["train"]["images"], data_set(1), data_set(2)
    first, taken = bound(graphs, pictures=held)
    assert held.reserve(graphs.values()) == 0
    first.write(tensor, images)
    first.write(tensor, images)
    assert len(copied) == 1
    # Two at a time have two.
    beside, as_much = bound(graphs, pictures=held)
    assert as_much == taken
    first.close()
    assert held.reserve(graphs.values()) == images.nbytes
    momentum = sections("lenet", count=COUNT, momentum=0.5)
    second, less = bound(momentum, pictures=held)
    assert less == taken - images.nbytes
    assert held.reserve(graphs.values()) == 0
    second.write(tensor, images)
    assert len(copied) == 1
    np.testing.assert_array_equal(second.read(tensor), images)
    second.write(tensor, other)
    assert len(copied) == 2
    np.testing.assert_array_equal(second.read(tensor), other)
    assert not beside.read(tensor).any()
    # One that was never written has nothing to leave.
    second.close()
    beside.close()
    assert held.take(tensor)[0] is other


def test_numbers_are_held_as_bytes_are(sections):
    plain = sections("lenet", count=COUNT)["train"]["images"]
    kinds = [Tensor("x", plain.shape, kind, "data") for kind in ("float32", "uint8")]
    for kind, other in (kinds, kinds[::-1]):
        held, host = Pictures(), np.zeros(plain.shape, kind.dtype)
        held.give(kind, host, host.copy())
        held.give(Tensor("labels", (COUNT, 3), "float32", "data"), host, host)
        assert held.take(other) is None
        assert held.take(kind)[0] is host


def test_what_can_be_changed_is_copied_again(bound, sections, copied):
    held, graphs = Pictures(), sections("lenet", count=COUNT)
    tensor, images = graphs["train"]["images"], data_set(1, fixed=False)
    executable, _ = bound(graphs, pictures=held)
    executable.write(tensor, data_set(3))
    executable.write(tensor, images)
    images[...] = 7
    executable.write(tensor, images)
    assert len(copied) == 3
    assert (executable.read(tensor) == 7).all()
    thawed = data_set(4)
    executable.write(tensor, thawed)
    thawed.setflags(write=True)
    thawed[...] = 8
    executable.write(tensor, thawed)
    assert len(copied) == 5
    assert (executable.read(tensor) == 8).all()
    executable.close()
    assert held.take(tensor) is None


def test_what_nobody_can_take_is_freed(bound, sections):
    held, graphs = Pictures(), sections("lenet", count=COUNT)
    executable, _ = bound(graphs, pictures=held)
    executable.write(graphs["train"]["images"], data_set(1))
    executable.close()
    assert held.reserve(sections("lenet", count=COUNT + 64).values()) == 0
    assert held.take(graphs["train"]["images"]) is None


def test_a_longer_data_set_moves_and_is_left_too(bound, sections, copied):
    held, graphs = Pictures(), sections("lenet", count=COUNT)
    executable, _ = bound(graphs, pictures=held)
    longer = data_set(1, count=COUNT + 64)
    before = executable._store.generation
    executable.write(graphs["train"]["images"], longer)
    assert executable._store.generation == before + 1
    executable.write(graphs["train"]["images"], longer)
    assert executable._store.generation == before + 1
    executable.close()
    assert held.reserve(sections("lenet", count=COUNT + 64).values()) == longer.nbytes


def test_renewed_all_but_data_is_zero(bound, sections):
    graphs = sections("deep", count=COUNT)
    executable, _ = bound(graphs, precision="bf16")
    store = executable._store
    for arena in store.arenas.values():
        arena.view(np.uint8).fill(0xFF)
    for _, buffer in store.alone():
        buffer.array.view(np.uint8).fill(0xFF)
    rates = store.data[graphs["train"]["rates"]]
    rates.set(np.full(rates.shape, 3, rates.dtype))
    executable.renew()
    assert len(store.arenas) > 2
    assert not any(arena.view(np.uint8).any() for arena in store.arenas.values())
    assert not any(buffer.array.view(np.uint8).any() for _, buffer in store.alone())
    assert (store.data[graphs["train"]["rates"]] == 3).all()
