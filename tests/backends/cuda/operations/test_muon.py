"""Trials of algorithms for Muon's iterations, without the library."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.cuda.libraries.cublas_lt import Stack, StackProduct
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT, Layout
from dnnstack.common.errors import CublasError


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
