"""The results of known convolutions, against the reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.backends.known import numbers, product, result
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter

GEOMETRIES = [
    ((2, 4, 7, 5), (6, 4, 3, 3), Window((3, 3), (1, 1), (1, 1, 1, 1))),
    ((3, 1, 4, 5), (16, 1, 4, 4), Window((4, 4), (2, 3), (1, 1, 2, 3), (1, 2))),
    ((5, 9, 4, 4), (9, 3, 2, 2), Window((2, 2), (3, 3), (0, 1, 0, 1))),
    ((1, 8, 6, 9), (8, 1, 1, 2), Window((1, 2), (2, 1), (0, 0, 0, 0), (1, 3))),
]


@pytest.mark.parametrize(("x", "w", "window"), GEOMETRIES, ids=str)
def test_known_results(x, w, window):
    y = (x[0], w[0], *window.output(x[2], x[3]))
    values = {
        "x": np.broadcast_to(product(numbers(x[1:])), x).astype(np.float64),
        "w": product(numbers(w)).astype(np.float64),
        "y": np.broadcast_to(product(numbers(y[1:])), y).astype(np.float64),
    }
    tensors = {name: Tensor(name, value.shape) for name, value in values.items()}
    rest: dict[str, Any] = {"window": window, "groups": x[1] // w[1]}
    forward = Conv2d(x=tensors["x"], w=tensors["w"], y=tensors["y"], **rest)
    data = Conv2dBackwardData(dy=tensors["y"], w=tensors["w"], dx=tensors["x"], **rest)
    filters = Conv2dBackwardFilter(x=tensors["x"], dy=tensors["y"], dw=tensors["w"], **rest)
    for kind, op, given in (
        ("forward", forward, forward.inputs),
        ("data", data, data.inputs),
        ("filter", filters, filters.inputs),
    ):
        tensors_in = [getattr(op, name) for name in given]
        arrays = [None if t is None else values[t.name] for t in tensors_in]
        found = KERNELS[type(op)].compute(op, *arrays)
        found = found[0] if isinstance(found, tuple) else found
        want = product(result(kind, x, w, y, window))  # type: ignore[arg-type]
        np.testing.assert_array_equal(found, np.broadcast_to(want, found.shape), kind)
