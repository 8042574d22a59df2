"""Shape rules, floating-point operations and bytes."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Op, Tensor

X = Tensor("x", (2, 3, 4, 4))
NORM = {"x": X, "dy": X, "dx": X, "mean": Tensor("m", (3,)), "inverse_std": Tensor("s", (3,))}
NORM |= {"eps": 0.1}
# Two of the six connections of two filters with three maps.
FILTERS = {"weights": Tensor("w", (2, 5, 5)), "filters": Tensor("f", (2, 3, 5, 5))}
MISFITS: list[tuple[type[Op], dict[str, Any]]] = [
    (ops.MatMul, {"a": Tensor("a", (2, 3)), "b": Tensor("b", (2, 4)), "c": Tensor("c", (2, 4))}),
    (ops.BiasAdd, {"x": X, "b": Tensor("b", (4,)), "y": X}),
    (ops.BiasGrad, {"dy": X, "db": Tensor("b", (4,))}),
    (ops.Conv2d, {"x": X, "w": Tensor("w", (5, 3, 2, 2)), "y": X, "window": Window((2, 2))}),
    (ops.Pool2d, {"x": X, "y": X, "window": Window((2, 2)), "kind": "max"}),
    (ops.Pool2dBackward, {"dy": X, "dx": X, "window": Window((1, 1)), "kind": "max"}),
    (ops.Activation, {"x": X, "y": Tensor("y", (2, 3, 4, 5)), "kind": "relu"}),
    (ops.Activation, {"x": X, "y": X, "kind": "swoosh"}),
    (ops.BatchNormBackward, {**NORM, "activation": "relu"}),
    (ops.Reshape, {"x": X, "y": Tensor("y", (2, 49))}),
    (ops.ConnectFilters, {**FILTERS, "pairs": ((0, 0), (2, 2))}),
    (ops.ConnectFilters, {**FILTERS, "pairs": ((0, 0), (1, 3))}),
    (ops.ConnectFilters, {**FILTERS, "pairs": ((0, 0), (-1, 2))}),
    (ops.ConnectFilters, {**FILTERS, "pairs": ((0, 0), (1, -1))}),
    (ops.ConnectFilters, {**FILTERS, "pairs": ((0, 0), (0, 0))}),
    (ops.ConnectFilters, {**FILTERS, "pairs": ((0, 0),)}),
    (ops.Softmax, {"x": X, "y": Tensor("y", (2, 48))}),
    (
        ops.SoftmaxCrossEntropy,
        {"x": X, "target": Tensor("t", (2,)), "log_p": X, "loss": Tensor("l", (1,))},
    ),
    (
        ops.SgdUpdate,
        {
            "gradients": (X,),
            "rates": Tensor("r", (9,)),
            "step": Tensor("s", (1,)),
            "parameters": (X,),
            "buffers": (),
            "weight_decay": (0.0,),
            "momentum": 0.9,
        },
    ),
]


@pytest.mark.parametrize(("kind", "fields"), MISFITS)
def test_shapes_that_do_not_fit(kind, fields):
    with pytest.raises(ShapeError, match=rf"{kind.__name__}\(.*\): shapes"):
        kind(**fields).check()


def test_shapes_that_fit_at_their_bounds():
    ops.ConnectFilters(**FILTERS, pairs=((0, 0), (1, 2))).check()
    ops.BatchNormBackward(**NORM, activation="relu", y=X).check()
    # Its slope follows from what is normalised.
    ops.BatchNormBackward(**NORM, activation="gelu").check()
