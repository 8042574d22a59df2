"""What is closed, or could not be bound, leaves no memory to the next collection of garbage."""

from __future__ import annotations

import random

import pytest
from dnnstack.backends.cuda.libraries.driver import ALLOCATION
from dnnstack.common.errors import LibraryError, ShapeError

from .test_bound_nets import LAYOUTS, SHAPES, any_net, sections

pytestmark = pytest.mark.usefixtures("no_collection")


def drawn(seed):
    draw = random.Random(seed)
    while True:
        try:
            return sections(any_net(draw), draw.choice(SHAPES)), draw.choice(LAYOUTS)
        except ShapeError:
            continue


def make_candidates(executable):
    """As a search does."""
    for binder in executable.binders():
        for variants in binder.variants.values():
            for _, make in variants:
                make()


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("seed", range(20))
def test_a_closed_network_holds_no_memory(bound, fake_cuda, seed, precision):
    graphs, choices = drawn(seed)
    executable, taken = bound(graphs, precision, choices)
    make_candidates(executable)
    assert fake_cuda.held > taken // 2 > 0
    executable.close()
    assert fake_cuda.held == 0


@pytest.mark.parametrize("allocations", [1, 5, 20, 40])
def test_what_does_not_fit_leaves_nothing(bound, fake_cuda, monkeypatch, allocations):
    graphs, choices = drawn(1)
    empty, left = fake_cuda.empty, [allocations]

    def full(*given):
        left[0] -= 1
        if left[0] < 0:
            raise MemoryError("full")
        return empty(*given)

    monkeypatch.setattr(fake_cuda, "empty", full)
    monkeypatch.setattr(fake_cuda, "zeros", full)
    # As long as the error is held, so is all that its traceback refers to.
    with pytest.raises(LibraryError, match=ALLOCATION) as caught:
        bound(graphs, "tf32", choices)
    assert left == [-1]
    assert fake_cuda.held == 0
    assert caught.traceback


def test_a_network_that_is_bound_anew_holds_as_much_as_before(bound, fake_cuda):
    graphs, choices = drawn(1)
    executable, _ = bound(graphs, "tf32", choices)
    before = fake_cuda.held
    executable._bind()
    assert fake_cuda.held == before
    executable.close()
