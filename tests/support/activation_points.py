"""Activations and their slopes where a comparison or a quotient decides, as PyTorch has them."""

from __future__ import annotations

import numpy as np
from dnnstack.backends.base import Array

POINTS = np.array([0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40], np.float32)
TINY = float(POINTS[4])
_END = 1.7159
# Values and slopes at the points, for the alpha that op_draft has.
RIGHT: dict[str, tuple[list[float], list[float]]] = {
    "relu": ([0, 0, np.inf, 0, TINY, 0], [0, 0, 1, 0, 1, 0]),
    "leaky_relu": ([0, 0, np.inf, -np.inf, TINY, -0.3 * TINY], [0.3, 0.3, 1, 0.3, 1, 0.3]),
    "sigmoid": ([0.5, 0.5, 1, 0, 0.5, 0.5], [0.25, 0.25, 0, 0, 0.25, 0.25]),
    "tanh": ([0, 0, 1, -1, TINY, -TINY], [1, 1, 0, 0, 1, 1]),
    "elu": ([0, 0, np.inf, -0.7, TINY, -0.7 * TINY], [0.7, 0.7, 1, 0, 1, 0.7]),
    "softplus": (
        [0.6931472, 0.6931472, np.inf, 0, 0.6931472, 0.6931472],
        [0.5, 0.5, 1, 0, 0.5, 0.5],
    ),
    "silu": ([0, 0, np.inf, 0, TINY / 2, -TINY / 2], [0.5, 0.5, 1, 0, 0.5, 0.5]),
    "gelu": ([0, 0, np.inf, 0, TINY / 2, -TINY / 2], [0.5, 0.5, 1, 0, 0.5, 0.5]),
    "gelu_tanh": ([0, 0, np.inf, 0, TINY / 2, -TINY / 2], [0.5, 0.5, 1, 0, 0.5, 0.5]),
    "relu6": ([0, 0, 6, 0, TINY, 0], [0, 0, 0, 0, 1, 0]),
    "hardsigmoid": ([0.5, 0.5, 1, 0, 0.5, 0.5], [1 / 6, 1 / 6, 0, 0, 1 / 6, 1 / 6]),
    "hardswish": ([0, 0, np.inf, 0, TINY / 2, -TINY / 2], [0.5, 0.5, 1, 0, 0.5, 0.5]),
    "mish": ([0, 0, np.inf, 0, 0.6 * TINY, -0.6 * TINY], [0.6, 0.6, 1, 0, 0.6, 0.6]),
    "scaled_tanh": (
        [0, 0, _END, -_END, 1.1439333 * TINY, -1.1439333 * TINY],
        [1.1439333, 1.1439333, 0, 0, 1.1439333, 1.1439333],
    ),
}
# Products of an infinity and 0, in PyTorch too: NaN or the limit.
PRODUCTS = ("silu", "gelu", "gelu_tanh", "hardswish", "mish")


def assert_right(kind: str, y: Array, slope: Array, flushed: bool = False) -> None:
    """flushed: subnormal numbers may count as 0, as they do on a GPU."""
    for name, got, want in zip(("y", "slope"), (y, slope), RIGHT[kind], strict=True):
        wanted = np.array(want, np.float64)
        if flushed:
            as_zero = np.isclose(got[4:], wanted[:2], 3e-7, 1e-37)
            wanted[4:] = np.where(as_zero, got[4:], wanted[4:])
        if kind in PRODUCTS:
            wanted = np.where(np.isinf(POINTS) & np.isnan(got), np.nan, wanted)
        # One bit of a subnormal; some libraries' tanh and e^x are a few last places off at 0.
        np.testing.assert_allclose(got, wanted, rtol=3e-7, atol=1e-44, err_msg=f"{kind} {name}")
