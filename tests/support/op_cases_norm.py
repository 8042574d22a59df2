"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dnnstack.graph import ops
from dnnstack.graph.graph import Tensor

from .op_cases_combine import laid_out
from .op_draft import ALPHA, Draft, case
from .stored import tuples

# ---------------------------------------------------------------- batch norm


def affine(d: Draft, channels: int, scale: bool, shift: bool) -> dict[str, Tensor | None]:
    return {
        "weight": d.floats("weight", channels, role="parameter") if scale else None,
        "bias": d.floats("bias", channels, role="parameter") if shift else None,
    }


def forward(
    d: Draft, shape: Sequence[int], scale: bool, shift: bool, kind: str | None, part: bool = False
) -> tuple[ops.BatchNorm, Tensor]:
    x = d.floats("x", *shape)
    d.length = x.size // shape[1]
    return norm_of(d, x, scale, shift, kind, part), x


def norm_of(
    d: Draft, x: Tensor, scale: bool, shift: bool, kind: str | None, part: bool = False
) -> ops.BatchNorm:
    shape, channels = x.shape, x.shape[1]
    left: dict[str, Tensor] = {}
    if part:
        left["var"] = d.out("var", channels)
    else:
        left["running_mean"] = d.given("running_mean", d.drawn((channels,)), "state")
        positive = np.abs(d.drawn((channels,))) + 0.5
        left["running_var"] = d.given("running_var", positive, "state")
    op = ops.BatchNorm(
        x=x,
        y=d.out("y", *shape),
        mean=d.out("mean", channels),
        inverse_std=d.out("inverse_std", channels),
        momentum=0.3,
        # Values that are all alike make inverse_std as large as 1 / sqrt(eps).
        eps=1e-2,
        activation=kind,
        activation_alpha=ALPHA.get(kind or "", 0.0),
        **affine(d, channels, scale, shift),
        **left,
    )
    d.graph.add(op)
    return op


def batch_norm(d: Draft, shape: Sequence[int], scale: bool, shift: bool, kind: str | None) -> None:
    forward(d, shape, scale, shift, kind)
    d.steps = 2


def batch_norm_of_a_part(
    d: Draft, shape: Sequence[int], scale: bool, shift: bool, kind: str | None
) -> None:
    """The running statistics are left to the update of all parts."""
    op, _ = forward(d, shape, scale, shift, kind, part=True)
    assert op.var is not None
    kept = d.given("kept", d.drawn((3, 2 * shape[1])), "state")
    step = d.given("step", np.array([4], np.int64), "state")
    values = (op.mean, op.var)
    d.graph.add(ops.KeepStatistics(values=values, step=step, kept=kept, parts=3))
    running = (
        d.given("running_mean", d.drawn((shape[1],)), "state"),
        d.given("running_var", np.abs(d.drawn((shape[1],))) + 0.5, "state"),
    )
    rule = {"momentum": (0.1, 0.3), "weight": (0.1, 0.35)}
    d.graph.add(ops.MoveStatistics(kept=kept, running=running, **rule))


def batch_norm_inference(
    d: Draft, shape: Sequence[int], scale: bool, shift: bool, kind: str | None
) -> None:
    x, channels = d.floats("x", *shape), shape[1]
    d.graph.add(
        ops.BatchNormInference(
            x=x,
            y=d.out("y", *shape),
            running_mean=d.given("running_mean", d.drawn((channels,)), "state"),
            running_var=d.given("running_var", np.abs(d.drawn((channels,))), "state"),
            eps=1e-2,
            activation=kind,
            activation_alpha=ALPHA.get(kind or "", 0.0),
            **affine(d, channels, scale, shift),
        )
    )


def outputs(d: Draft, channels: int, scale: bool, shift: bool) -> dict[str, Tensor | None]:
    return {
        "dw": d.gradient("weight", channels) if scale else None,
        "db": d.gradient("bias", channels) if shift else None,
    }


def activated(op: ops.BatchNorm, kind: str | None) -> dict[str, Any]:
    """What backward needs of forward's activation."""
    needed = {"y": op.y} if kind in ops.FROM_OUTPUT else {"bias": op.bias} if kind else {}
    return {**needed, "activation": kind, "activation_alpha": op.activation_alpha}


def batch_norm_both(
    d: Draft, shape: Sequence[int], scale: bool, shift: bool, kind: str | None
) -> None:
    """Backward beside its forward, as in training."""
    op, x = forward(d, shape, scale, shift, kind)
    d.graph.add(
        ops.BatchNormBackward(
            x=x,
            dy=d.floats("dy", *shape),
            mean=op.mean,
            inverse_std=op.inverse_std,
            dx=d.out("dx", *shape),
            eps=op.eps,
            weight=op.weight,
            **activated(op, kind),
            **outputs(d, shape[1], scale, shift),
        )
    )


def batch_norm_backward(
    d: Draft, shape: Sequence[int], scale: bool, shift: bool, kind: str | None
) -> None:
    """Backward alone, its statistics given."""
    channels = shape[1]
    x = d.floats("x", *shape)
    d.length = x.size // channels
    reads_bias = kind is not None and kind not in ops.FROM_OUTPUT
    # No activation has an output beyond the ends of 1.7159 tanh, where a kernel may say anything.
    y = d.given("y", np.clip(d.drawn(shape), -1.7, 1.7)) if kind in ops.FROM_OUTPUT else None
    d.graph.add(
        ops.BatchNormBackward(
            x=x,
            dy=d.floats("dy", *shape),
            mean=d.floats("mean", channels),
            inverse_std=d.given("inverse_std", 0.5 + 0.1 * np.abs(d.drawn((channels,)))),
            dx=d.out("dx", *shape),
            eps=1e-3,
            weight=d.floats("weight", channels, role="parameter") if scale else None,
            bias=d.floats("bias", channels, role="parameter") if shift and reads_bias else None,
            y=y,
            activation=kind,
            activation_alpha=ALPHA.get(kind or "", 0.0),
            **outputs(d, channels, scale, shift),
        )
    )


SHAPES = tuples(__file__, "shapes")
DESCRIBED = (batch_norm, batch_norm_of_a_part, batch_norm_inference, batch_norm_both)
for describe in (*DESCRIBED, batch_norm_backward):
    for shape_name, shape in SHAPES.items():
        case(f"{describe.__name__}-{shape_name}", describe, shape, True, True, None)
        case(f"{describe.__name__}-{shape_name}-relu", describe, shape, True, True, "relu")
    for scale, shift in ((True, False), (False, True), (False, False)):
        named = f"{describe.__name__}-scale{scale:d}-shift{shift:d}"
        case(named, describe, (3, 16, 4, 4), scale, shift, None)
        for kind in ("relu", "gelu"):
            case(f"{named}-{kind}", describe, (3, 16, 4, 4), scale, shift, kind)
    for kind in ops.ACTIVATIONS:
        if kind != "relu":
            case(f"{describe.__name__}-picture-{kind}", describe, (3, 5, 4, 6), True, True, kind)


def frozen_backward(d: Draft, shape: Sequence[int], scale: bool) -> None:
    channels = shape[1]
    d.graph.add(
        ops.BatchNormInferenceBackward(
            dy=d.floats("dy", *shape),
            dx=d.out("dx", *shape),
            running_var=d.given("running_var", np.abs(d.drawn((channels,))), "state"),
            eps=1e-2,
            weight=d.floats("weight", channels, role="parameter") if scale else None,
        )
    )


def frozen_between(d: Draft, channels: int) -> None:
    """In a convolution's layout, and read by another operation too."""
    dy = laid_out(d, "behind", channels)
    dx = d.out("dx", *dy.shape)
    var = d.given("running_var", np.abs(d.drawn((channels,))) + 0.5, "state")
    d.graph.add(ops.BatchNormInferenceBackward(dy=dy, dx=dx, running_var=var, eps=1e-2))
    d.graph.add(ops.Scale(x=dy, y=d.out("twice", *dy.shape), factor=2.0))


for shape_name, shape in SHAPES.items():
    for scale in (False, True):
        named = f"batch_norm-frozen_backward-{shape_name}-scale{scale:d}"
        case(named, frozen_backward, shape, scale)
for channels in (5, 33, 64):
    case(f"batch_norm-frozen_between-{channels}", frozen_between, channels)


def after_convolution(d: Draft, channels: int, kind: str | None) -> None:
    """In a convolution's layout, forward and backward, with channels that fill no block."""
    x = laid_out(d, "before", channels)
    shape = x.shape
    d.length = 10 * x.size // channels
    op = norm_of(d, x, True, True, kind)
    dy = laid_out(d, "behind", channels)
    d.graph.add(
        ops.BatchNormBackward(
            x=x,
            dy=dy,
            mean=op.mean,
            inverse_std=op.inverse_std,
            dx=d.out("dx", *shape),
            eps=op.eps,
            weight=op.weight,
            **activated(op, kind),
            **outputs(d, channels, True, True),
        )
    )


def after_flattening(d: Draft, channels: int) -> None:
    """Rows that a convolution's pictures became, whose order on a device may be another."""
    x = laid_out(d, "before", channels)
    rows = d.out("rows", x.shape[0], x.size // x.shape[0])
    d.graph.add(ops.Reshape(x=x, y=rows))
    # Two rows a column: they come close to each other, and their distance loses digits.
    d.length = 1000
    norm_of(d, rows, True, True, None)


for channels in (5, 20, 33, 64, 260):
    case(f"batch_norm-convolved-{channels}", after_convolution, channels, None)
for kind in ("gelu", "sigmoid", "softplus", "relu"):
    case(f"batch_norm-convolved-20-{kind}", after_convolution, 20, kind)
# More rows than a few blocks sum, and more channels than one covers.
case("batch_norm-many_rows-gelu", batch_norm_both, (9, 130, 19, 21), True, True, "gelu")
for channels in (5, 33):
    case(f"batch_norm-flattened-{channels}", after_flattening, channels)

# ---------------------------------------------------------------- local response

NUMBERS: dict[str, dict[str, Any]] = {
    "default": {"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 2.0},
    "strong": {"size": 3, "alpha": 1.5, "beta": 0.75, "k": 1.0},
    "root": {"size": 5, "alpha": 2.0, "beta": 0.5, "k": 0.5},
    "wide": {"size": 9, "alpha": 1.0, "beta": 0.75, "k": 1.0},
    "one": {"size": 1, "alpha": 1.0, "beta": 1.0, "k": 1.0},
}


def local(
    d: Draft, kind: type[ops.Lrn | ops.DivisiveNorm], shape: Sequence[int], numbers: str
) -> None:
    x, y = d.floats("x", *shape), d.out("y", *shape)
    d.graph.add(kind(x=x, y=y, **NUMBERS[numbers]))


def local_both(
    d: Draft,
    kind: type[ops.Lrn | ops.DivisiveNorm],
    back: type[ops.LrnBackward | ops.DivisiveNormBackward],
    shape: Sequence[int],
    numbers: str,
    alone: bool,
) -> None:
    """Backward beside its forward, or alone with forward's output given."""
    x = d.floats("x", *shape)
    if alone:
        value = _normalised(kind, d.values[x], **NUMBERS[numbers])
        y = d.given("y", value)
    else:
        y = d.out("y", *shape)
        d.graph.add(kind(x=x, y=y, **NUMBERS[numbers]))
    dy, dx = d.floats("dy", *shape), d.out("dx", *shape)
    d.graph.add(back(x=x, y=y, dy=dy, dx=dx, **NUMBERS[numbers]))


def local_twice(
    d: Draft,
    kind: type[ops.Lrn | ops.DivisiveNorm],
    back: type[ops.LrnBackward | ops.DivisiveNormBackward],
    shape: Sequence[int],
    first: type[ops.Lrn | ops.DivisiveNorm],
) -> None:
    """A normalisation of what another, with other numbers, gave: both read that."""
    # What is rounded in between goes through the derivative of the other.
    d.length = 4
    x, y = d.floats("x", *shape), d.out("y", *shape)
    d.graph.add(first(x=x, y=y, **NUMBERS["strong"]))
    z, dz = d.out("z", *shape), d.floats("dz", *shape)
    d.graph.add(kind(x=y, y=z, **NUMBERS["wide"]))
    dy, dx = d.out("dy", *shape), d.out("dx", *shape)
    d.graph.add(back(x=y, y=z, dy=dz, dx=dy, **NUMBERS["wide"]))
    both = {ops.Lrn: ops.LrnBackward, ops.DivisiveNorm: ops.DivisiveNormBackward}
    d.graph.add(both[first](x=x, y=y, dy=dy, dx=dx, **NUMBERS["strong"]))


def _normalised(
    kind: type[ops.Lrn | ops.DivisiveNorm], x: Any, size: int, alpha: float, beta: float, k: float
) -> Any:
    """The formula, written out once more: sums over windows by loops."""
    squares, reach = np.square(x, dtype=np.float64), size // 2
    total = np.zeros_like(squares)
    _, channels, height, width = x.shape
    for c, i, j in np.ndindex(channels, height, width):
        if kind is ops.Lrn:
            near = squares[:, max(c - reach, 0) : c + reach + 1, i, j].sum(1)
        else:
            rows = slice(max(i - reach, 0), i + reach + 1)
            near = squares[:, c, rows, max(j - reach, 0) : j + reach + 1].sum((1, 2))
        total[:, c, i, j] = near
    window = size if kind is ops.Lrn else size**2
    return (x / (k + alpha / window * total) ** beta).astype(np.float32)


PICTURES = {"grey": (2, 1, 5, 4), "colour": (2, 3, 4, 7), "blocks": (2, 32, 4, 6)}
for kind, back in ((ops.Lrn, ops.LrnBackward), (ops.DivisiveNorm, ops.DivisiveNormBackward)):
    for shape_name, shape in PICTURES.items():
        for numbers in NUMBERS:
            named = f"{kind.__name__}-{shape_name}-{numbers}"
            case(named, local, kind, shape, numbers)
            case(f"{named}-both", local_both, kind, back, shape, numbers, False)
            case(f"{named}-backward", local_both, kind, back, shape, numbers, True)
        for first in (ops.Lrn, ops.DivisiveNorm):
            named = f"{kind.__name__}-{shape_name}-after_{first.__name__}"
            case(named, local_twice, kind, back, shape, first)
    for first in (ops.Lrn, ops.DivisiveNorm):
        named = f"{kind.__name__}-1x1-after_{first.__name__}"
        case(named, local_twice, kind, back, (3, 4, 1, 1), first)
