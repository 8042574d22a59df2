"""Matrix products on tensor cores on a device: results, bits, and a network that learns by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import DEFAULT_CHOICES
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.rewrites import rewritten
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed
from ....support.feeding import feed, losses_of
from ....support.specs import layers_of, network_of
from ....support.tensor_convs import close_to_the_reference, right_in_every_way
from ....support.tensor_products import TRANSPOSED, any_way, chosen, functions, offered, section


@pytest.mark.cuda
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("kind", TRANSPOSED)
def test_they_compute_what_the_reference_does(cuda, kind, precision, seed):
    draft, found = section(seed, kind)
    table = {**DEFAULT_CHOICES[precision], "pad": "8"}
    options = Options(precision, tuning=Tuning("cuda", choices=table))
    executable = cuda.compile({"one": draft.graph}, options)
    ways = {name: any_way(seed, each) for name, each in offered(executable).items()}
    executable.close()
    assert ways
    options = Options(precision, tuning=Tuning("cuda", choices=table | ways))
    # Operands lose nothing: only sums, and a result in bfloat16, are rounded.
    limit = 2e-5 if precision == "tf32" else 2.0**-8
    assert "tensor_dense" in close_to_the_reference(cuda, draft, found, options, limit)


NET = layers_of(
    "[flatten, dense: {units: 72}, relu, dense: {units: 100}, tanh, dense: {units: 10}, softmax]"
)
SHAPE, COUNT, BATCH = (1, 12, 12), 64, 32


def network():
    found = network_of(NET, SHAPE)
    scaling = Preprocessing.standardize([0.5], [0.25])
    rule = Sgd(momentum=0.9)
    return found, composed.train_graph(found, BATCH, "train", COUNT, 2, 500, scaling, rule)


def compiled_with(backend, graphs, precision, choices):
    """Bound to just these choices: a table of another network would be searched for anew."""
    plain = Options(precision, tune=False)
    trial = backend.compile(graphs, plain)
    fitting = replace(trial.tuning, choices=choices)
    trial.close()
    return backend.compile(graphs, replace(plain, tuning=fitting))


def losses(backend, precision, choices):
    """Of eight steps of a small network, its launches, and a choice of every candidate."""
    made, graph = network()
    train = {"train": rewritten(graph, backend.rewrites)}
    executable = compiled_with(backend, train, precision, choices)
    feed(executable, made, graph, 0.02)
    found = losses_of(executable, graph, 8)
    names, choices = functions(executable, "train"), chosen(offered(executable))
    executable.close()
    return found, names, choices


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_network_learns_with_them_as_with_the_library(cuda, precision):
    table = {**DEFAULT_CHOICES[precision], "pad": "8"}
    want, _, choices = losses(cuda, precision, table)
    # Of the hidden layers: forward, filters, and data of the second.
    assert len(choices) >= 5
    ours = table | choices
    got, names, _ = losses(cuda, precision, ours)
    assert names.count("tensor_dense") == len(choices)
    np.testing.assert_allclose(got, want, rtol=2e-3 if precision == "tf32" else 2e-2)
    assert losses(cuda, precision, ours)[0] == got


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("name", ["lenet", "deep"])
def test_every_way_that_a_search_times_is_right(cuda, sections, name, precision):
    """On operands whose result is known, as a search finds out before it takes one."""
    table = {**DEFAULT_CHOICES[precision], "pad": "8"}
    executable = compiled_with(cuda, sections(name), precision, table)
    found = offered(executable)
    assert found
    for candidates in found.values():
        right_in_every_way(candidates)
    executable.close()
