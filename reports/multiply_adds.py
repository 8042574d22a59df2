"""Multiply-adds of a picture's forward pass, by the parameter that they multiply by."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..graph.ops import Conv2d, MatMul, Reshape

if TYPE_CHECKING:
    from ..graph.graph import Tensor
    from ..training.network import Network


def uses_of_weights(network: Network) -> dict[str, int]:
    """How often each weight of a parameter is used for a picture.

    Once in a dense layer; in a convolution for every pixel of its output, those at which it meets
    padding included. A zero among the weights saves as many multiply-adds.
    """
    found: dict[str, int] = {}
    whole: dict[Tensor, Tensor] = {}
    for op in network.infer_graph(1).ops:
        if isinstance(op, Reshape):
            whole[op.y] = whole.get(op.x, op.x)
        elif isinstance(op, Conv2d):
            _add(found, op.w, prod(op.y.shape[2:]))
        elif isinstance(op, MatMul):
            m, n, k = op.mnk
            for side in (op.a, op.b):
                tensor = whole.get(side, side)
                if tensor.role == "parameter":
                    _add(found, tensor, m * n * k // tensor.size)
    return found


def _add(found: dict[str, int], tensor: Tensor, uses: int) -> None:
    if tensor.role == "parameter":
        found[tensor.name] = found.get(tensor.name, 0) + uses
