"""Swish, as an activation."""

from typing import Annotated

import numpy as np
from dnnstack.plugins import In, Op, Out, Positive, SingleLayer, kernel


class SwishOp(Op):
    x: In
    y: Out
    beta: float


class SwishBackward(Op):
    x: In
    dy: In
    dx: Out
    beta: float


@kernel(SwishOp, "exp")
def forward(op, x):
    return x / (1 + np.exp(-op.beta * x))


@kernel(SwishBackward, "exp")
def backward(op, x, dy):
    s = 1 / (1 + np.exp(-op.beta * x))
    return dy * (s + op.beta * x * s * (1 - s))


class Swish(SingleLayer):
    """x / (1 + exp(-beta x)). Source: Ramachandran et al. 2017."""

    kind = "swish"
    op, backward_op, keeps = SwishOp, SwishBackward, ("x",)
    beta: Annotated[Positive, "How sharply it bends."] = 1.0
