"""Shape rules: which of many small changes of an operation are refused, and what else is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph import ops
from dnnstack.graph.graph import Op, Tensor
from dnnstack.graph.ops.augment import View

from ...support.frozen import retold
from ...support.op_cases import CASES

X, ONE = Tensor("x", (2, 3)), Tensor("x", (1, 3, 1, 1))
PICTURE, CHANNELS = Tensor("x", (2, 3, 4, 4)), Tensor("c", (3,))
CLASSES, SCALAR = Tensor("t", (2,), "int32"), Tensor("l", (1,))
NUMBERS = Tensor("t", (2, 3), "float32")
# Two of the six connections of two filters with three maps.
FILTERS = {"weights": Tensor("w", (2, 5, 5)), "filters": Tensor("f", (2, 3, 5, 5))}
REST = {"eps": 0.1, "momentum": 0.1}
NORM = {"dy": PICTURE, "dx": PICTURE, "mean": CHANNELS, "inverse_std": CHANNELS, "eps": 0.1}
MISFITS: list[tuple[type[Op], dict[str, Any]]] = [
    (ops.BatchNorm, {"x": ONE, "y": ONE, "mean": CHANNELS, "inverse_std": CHANNELS, **REST}),
    (ops.BatchNormBackward, {**NORM, "x": PICTURE, "activation": "relu"}),
    *(
        (ops.ConnectFilters, {**FILTERS, "pairs": ((0, 0), pair)})
        for pair in ((2, 2), (1, 3), (-1, 2), (1, -1), (0, 0))
    ),
    (ops.Concat, {"parts": (X,), "y": X}),
    (ops.SoftmaxCrossEntropy, {"x": X, "target": NUMBERS, "log_p": X, "loss": SCALAR}),
    (ops.SoftmaxCrossEntropyBackward, {"log_p": X, "target": NUMBERS, "dx": X}),
    *(
        (ops.Views, {"x": PICTURE, "y": PICTURE, "views": (View(**{way: by}),)})
        for way in ("down", "right")
        for by in (4, -4)
    ),
    (
        ops.LeastSure,
        {"scores": Tensor("s", (2, 1)), "target": CLASSES, "place": CLASSES, "rows": CLASSES}
        | {"share": 1.0},
    ),
    (
        ops.Fused,
        {"kind": "k", "parts": (ops.Softmax(x=X, y=PICTURE),), "sources": (X,), "results": (X,)},
    ),
    (
        ops.MuonUpdate,
        {"gradients": (SCALAR,), "parameters": (SCALAR,), "buffers": (SCALAR,), "rates": SCALAR}
        | {"step": SCALAR, "weight_decay": (0.0,)},
    ),
]


@pytest.mark.parametrize(("kind", "fields"), MISFITS)
def test_what_does_not_fit(kind, fields):
    with pytest.raises(ShapeError, match=rf"{kind.__name__}\(|Softmax\("):
        kind(**fields).check()


def test_what_fits_at_its_bounds():
    ops.ConnectFilters(**FILTERS, pairs=((0, 0), (1, 2))).check()
    # Its slope follows from what is normalised.
    ops.BatchNormBackward(**NORM, x=PICTURE, activation="gelu").check()
    views = (View(down=3, right=-3), View(down=-3, right=3))
    ops.Views(x=PICTURE, y=Tensor("y", (4, 3, 4, 4)), views=views).check()


def _altered(value: Any) -> Iterator[tuple[str, Any]]:
    """What may stand in a field instead, with a word for each."""
    if isinstance(value, Tensor):
        for axis, size in enumerate(value.shape):
            shape = (*value.shape[:axis], size + 1, *value.shape[axis + 1 :])
            yield f"[{axis}]", replace(value, shape=shape)
        yield "[new]", replace(value, shape=(*value.shape, 1))
        yield ".dtype", replace(value, dtype="float32" if value.dtype == "int32" else "int32")
        yield "=None", None
    elif isinstance(value, tuple) and value:
        yield "=()", ()
        yield "[:-1]", value[:-1]
        yield from ((f"[-1]{word}", (*value[:-1], each)) for word, each in _altered(value[-1]))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((f"{by:+}", value + by) for by in (-1, 1))
        yield "=0", 0
    elif isinstance(value, float):
        yield from ((f"={number:g}", number) for number in (0.0, 1.0, 1.5))
    elif isinstance(value, str):
        yield "=other", "other"


def _refused(op: Op) -> Iterator[tuple[str, bool]]:
    for field in fields(op)[1:]:
        for word, value in _altered(getattr(op, field.name)):
            try:
                replace(op, **{field.name: value}).check()
            except ShapeError:
                yield field.name + word, True
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                # Nothing that a layer could make, and no rule speaks of it.
                continue
            else:
                yield field.name + word, False


def test_what_an_operation_refuses_and_what_it_takes():
    """A change that only some graphs with the operation bear stands in both lines."""
    lines: dict[str, set[str]] = defaultdict(set)
    for name, draw in CASES.items():
        for op in draw(np.random.default_rng(len(name)), "normal").graph.ops:
            for change, refused in _refused(op):
                lines[f"{type(op).__name__} {'refuses' if refused else 'takes'}"].add(change)
    text = "".join(f"{begin} {' '.join(sorted(lines[begin]))}\n" for begin in sorted(lines))
    assert retold(__file__, text) == []
