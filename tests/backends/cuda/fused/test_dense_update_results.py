"""Weights updated by the kernel of their gradient, on a device: sums, bits, networks that learn."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.graph.rewrites import rewritten

from ....support.feeding import feed, losses_of
from ....support.tensor_convs import right_in_every_way
from .test_tensor_dense_results import BATCH, COUNT, compiled_with, network

pytestmark = pytest.mark.cuda


def offered(executable):
    return {key: make() for b in executable.binders() for key, make in b.at_once.items()}


def table_of(precision, **more):
    return {**DEFAULT_CHOICES[precision], "pad": "8", **more}


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_every_way_that_a_search_times_is_right(cuda, sections, precision):
    """On operands whose result is known, as a search finds out before it takes one."""
    executable = compiled_with(cuda, sections("lenet"), precision, table_of(precision))
    found = offered(executable)
    assert found
    for candidates in found.values():
        right_in_every_way(candidates)
    executable.close()


def learned(backend, precision, choices, steps=8):
    """The losses of a small network's steps, what it has learned, its launches, candidates."""
    made, graph = network()
    train = {"train": rewritten(graph, backend.rewrites)}
    executable = compiled_with(backend, train, precision, choices)
    feed(executable, made, graph, 0.02)
    losses = losses_of(executable, graph, steps)
    # Several steps of one graph, with the next batch beside the update where that is chosen.
    executable.run("train", 16)
    weights = [executable.read(p.tensor) for p in made.parameters()]
    names = [call.function for call in executable.calls("train")]
    ways = {
        key: [f"e{each.choice(index)}" for index in range(each.plans())]
        for key, each in offered(executable).items()
    }
    executable.close()
    return losses, weights, names, ways


@pytest.mark.parametrize("more", [{}, {"streams": "2"}, {"overlap": "joins", "ending": "batch"}])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_network_learns_with_them_as_with_the_library(cuda, layer, precision, more):
    """Those of the first layer too, whose inputs the next batch takes the place of."""
    assert COUNT == 2 * BATCH
    table = table_of(precision, **more)
    want, weights, names, ways = learned(cuda, precision, table)
    assert (names[-1] == "step_end") == ("ending" in more)
    name = sorted(ways)[layer]
    taken = {name: ways[name][0]}
    got, moved, names, _ = learned(cuda, precision, table | taken)
    assert names[-1] == "step_end"
    tolerance = 2e-3 if precision == "tf32" else 2e-2
    np.testing.assert_allclose(got, want, rtol=tolerance)
    for ours, theirs in zip(moved, weights, strict=True):
        assert np.linalg.norm(ours - theirs) <= 10 * tolerance * np.linalg.norm(theirs)
    again, same, _, _ = learned(cuda, precision, table | taken)
    assert again == got
    for one, other in zip(moved, same, strict=True):
        np.testing.assert_array_equal(one, other)
