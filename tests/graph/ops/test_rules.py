"""Shape rules, floating-point operations and bytes."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Op, Tensor

X = Tensor("x", (2, 3, 4, 4))
MISFITS: list[tuple[type[Op], dict[str, Any]]] = [
    (ops.MatMul, {"a": Tensor("a", (2, 3)), "b": Tensor("b", (2, 4)), "c": Tensor("c", (2, 4))}),
    (ops.BiasAdd, {"x": X, "b": Tensor("b", (4,)), "y": X}),
    (ops.BiasGrad, {"dy": X, "db": Tensor("b", (4,))}),
    (ops.Conv2d, {"x": X, "w": Tensor("w", (5, 3, 2, 2)), "y": X, "window": Window((2, 2))}),
    (ops.Pool2d, {"x": X, "y": X, "window": Window((2, 2)), "kind": "max"}),
    (ops.Pool2dBackward, {"dy": X, "dx": X, "window": Window((1, 1)), "kind": "max"}),
    (ops.Activation, {"x": X, "y": Tensor("y", (2, 3, 4, 5)), "kind": "relu"}),
    (ops.Activation, {"x": X, "y": X, "kind": "swoosh"}),
    (ops.Reshape, {"x": X, "y": Tensor("y", (2, 49))}),
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
