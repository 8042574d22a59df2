"""Muon's iterations on the stand-in for a device: on several streams, by algorithms chosen."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.cublas_lt import Stack, StackProduct
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.common.errors import CublasError
from dnnstack.graph.ops import MuonUpdate
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed


def steps_of_muon(bound, sections, streams, choices=None):
    """The network's filters are of two heights, so of two groups."""
    network, scaling = sections.network("cifar"), Preprocessing.standardize([0.5] * 3, [0.2] * 3)
    graph = composed.train_graph(
        network, 16, "data", 64, 4, 8, scaling, Muon(rest=Sgd(), iterations=2)
    )
    plain = {"layout": "nhwc", "streams": streams}
    executable, _ = bound({"train": graph}, choices=plain | (choices or {}))
    (binder,) = executable.binders()
    ours = [s for s in binder.steps if s.call is not None and isinstance(s.call.op, MuonUpdate)]
    return binder, ours


def test_an_algorithm_is_chosen_for_all_iterations(bound, sections):
    """By a name for each of the three products of filters of one height."""
    binder, ours = steps_of_muon(bound, sections, "1")
    names = [name for name in binder.products if "newton-schulz" in name]
    assert len(names) == 2 * 3
    assert {step.call.implementation for step in ours if "Matmul" in step.call.function} == {""}
    for turn, name in enumerate(names):
        choices = {f"{name}/gemm": str(turn)}
        _, ours = steps_of_muon(bound, sections, "1", choices)
        chosen = [step.call for step in ours if step.call.implementation == f"algorithm {turn}"]
        assert len(chosen) == 2
        role, shown = name.rpartition("/")[2], chosen[0].arguments
        short, long = name.split("/")[-2].split("x")
        sizes = {"gram": (short, short, long), "power": (short, short, short)}
        assert sizes.get(role, (short, long, short)) == tuple(shown[side] for side in "mnk")


class Library:
    """cublasLt with two algorithms, of which the second adds what is in D already."""

    def new(self, *_):
        return 0

    set = matrix = new

    def algorithms(self, descriptors, places):
        return [0, 1]

    def matmul(self, descriptors, places, algorithm, *_):
        def run():
            b, a, _, d = (self.held[pointer] for pointer in places)
            values = self.layout.unpack(a.get()) + self.layout.unpack(b.get())
            assert np.abs(values).min() > 0
            d.set(self.layout.pack(values + algorithm * self.layout.unpack(d.get())))

        return run


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
def test_an_algorithm_is_verified_on_numbers_and_not_on_zeros(fake_cuda, dtype):
    library, size = Library(), 3 * 8 * 8
    library.layout = Layout((size,), (size,), dtype=dtype)
    arrays = [fake_cuda.zeros(size, library.layout.item) for _ in range(3)]
    library.held = {array.data.ptr: array for array in arrays}
    stacks = tuple(Stack(pointer, 3, 8, 8) for pointer in library.held)
    product = StackProduct(library, fake_cuda.Stream(), None, dtype, stacks)
    assert product.count() == 2
    assert product.verified(0)
    assert not product.verified(1)
    with pytest.raises(CublasError, match="no algorithm 2"):
        product.launch(2)
