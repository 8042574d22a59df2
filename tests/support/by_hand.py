"""One operation on values small enough to check by hand, on the reference backend in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from dnnstack.backends.base import Array, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.graph import Graph, Op, Tensor

FLOATS, TARGET = np.float64, np.int32


def compute(kind: type[Op], outputs: dict[str, Any], /, **fields: Any) -> dict[str, Array]:
    """Run one operation in float64. ``fields``: nested lists are inputs, the rest attributes;
    ``outputs``: the shape of each; state comes back under its own name."""
    graph = Graph("hand", 1)
    values: dict[Tensor, Array] = {}
    given: dict[str, Any] = {}
    for name, value in fields.items():
        if not isinstance(value, (list, np.ndarray)):
            given[name] = value
            continue
        array = np.asarray(value, FLOATS) if isinstance(value, list) else value
        dtype: Any = "float32" if array.dtype == FLOATS else str(array.dtype)
        given[name] = graph.tensor(name, array.shape, dtype, "state")
        values[given[name]] = array
    for name, shape in outputs.items():
        given[name] = graph.tensor(name, shape, "int32" if name == "target" else "float32")
    op = kind(**given)
    graph.add(op)
    executable = ReferenceBackend(1).compile({"hand": graph}, Options("fp64"))
    for tensor, array in values.items():
        executable.write(tensor, array)
    executable.run("hand")
    return {tensor.name: executable.read(tensor) for tensor in op.writes()}


def check(got: Array, want: Any) -> None:
    """Equal but for the last bits of float64."""
    np.testing.assert_allclose(got, np.asarray(want), rtol=1e-13, atol=1e-15)


# A picture of 3 x 3
NINE = [[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]]
