"""Operations of LeNet-5, the perceptron, and convolution by im2col."""

from __future__ import annotations

import numpy as np
from dnnstack.graph import ops
from dnnstack.layers.connections import LENET5

from .op_cases_windows import CONVOLUTIONS, Geometry
from .op_draft import Draft, case

# ---------------------------------------------------------------- im2col


def columns_of(g: Geometry) -> tuple[int, int]:
    n, c, h, w = g.picture
    rows, across = g.window.output(h, w)
    return n * rows * across, c * g.window.area


def im2col(d: Draft, g: Geometry) -> None:
    d.graph.add(
        ops.Im2col(
            x=d.floats("x", *g.picture), columns=d.out("columns", *columns_of(g)), window=g.window
        )
    )


def col2im(d: Draft, g: Geometry) -> None:
    d.length = g.window.area
    d.graph.add(
        ops.Col2im(
            columns=d.floats("columns", *columns_of(g)), x=d.out("x", *g.picture), window=g.window
        )
    )


for name, geometry in CONVOLUTIONS.items():
    if geometry.groups == 1:
        case(f"im2col-{name}", im2col, geometry)
        case(f"col2im-{name}", col2im, geometry)


# ---------------------------------------------------------------- LeNet-5


def pad2d(d: Draft, padding: tuple[int, int, int, int], value: float, backward: bool) -> None:
    top, bottom, left, right = padding
    inner, outer = (2, 3, 4, 5), (2, 3, 4 + top + bottom, 5 + left + right)
    if backward:
        dy, dx = d.floats("dy", *outer), d.out("dx", *inner)
        d.graph.add(ops.Pad2dBackward(dy=dy, dx=dx, padding=padding))
    else:
        x, y = d.floats("x", *inner), d.out("y", *outer)
        d.graph.add(ops.Pad2d(x=x, y=y, padding=padding, value=value))


for backward in (False, True):
    case(f"pad2d-even-{backward:d}", pad2d, (2, 2, 2, 2), -0.1, backward)
    case(f"pad2d-uneven-{backward:d}", pad2d, (0, 1, 3, 2), 0.5, backward)
    case(f"pad2d-rows-{backward:d}", pad2d, (1, 1, 0, 0), -0.5, backward)
    case(f"pad2d-columns-{backward:d}", pad2d, (0, 0, 3, 3), 0.25, backward)
    case(f"pad2d-none-{backward:d}", pad2d, (0, 0, 0, 0), 7.0, backward)


def channel_scale(d: Draft, factor: float, *shape: int) -> None:
    x, s = d.floats("x", *shape), d.floats("s", shape[1], role="parameter")
    d.graph.add(ops.ChannelScale(x=x, s=s, y=d.out("y", *shape), factor=factor))


def gate_channels(d: Draft, *shape: int) -> None:
    x, mean, s = d.floats("x", *shape), d.floats("mean", 1, shape[1]), d.out("s", shape[1])
    d.graph.add(ops.Reshape(x=mean, y=s))
    d.graph.add(ops.GateChannels(x=x, s=s, y=d.out("y", *shape)))


def channel_scale_backward(d: Draft, factor: float, *shape: int) -> None:
    x, s = d.floats("x", *shape), d.floats("s", shape[1], role="parameter")
    d.length = int(np.prod(shape)) // shape[1]
    d.graph.add(
        ops.ChannelScaleBackward(
            x=x,
            s=s,
            dy=d.floats("dy", *shape),
            dx=d.out("dx", *shape),
            ds=d.gradient("s", shape[1]),
            factor=factor,
        )
    )


for shape in ((3, 6, 4, 5), (2, 16, 3, 3), (1, 1, 1, 1)):
    for factor in (1.0, 4.0):
        case(f"channel_scale-{shape}-{factor}", channel_scale, factor, *shape)
        case(f"channel_scale_backward-{shape}-{factor}", channel_scale_backward, factor, *shape)

case("gate_channels", gate_channels, 1, 20, 4, 5)

LENET5_PAIRS = tuple((o, c) for o, maps in enumerate(LENET5) for c in maps)
CONNECTIONS = {
    "lenet5": ((16, 6, 5, 5), LENET5_PAIRS),
    "few": ((3, 4, 1, 2), ((2, 3), (0, 0), (2, 1))),
    "all": ((2, 2, 3, 3), ((0, 0), (0, 1), (1, 0), (1, 1))),
}


def connect(d: Draft, name: str, backward: bool) -> None:
    shape, pairs = CONNECTIONS[name]
    kernel = shape[2:]
    if backward:
        filters, weights = d.floats("dfilters", *shape), d.gradient("w", len(pairs), *kernel)
        d.graph.add(ops.ConnectFiltersBackward(dfilters=filters, dweights=weights, pairs=pairs))
    else:
        weights = d.floats("w", len(pairs), *kernel, role="parameter")
        filters = d.out("filters", *shape)
        d.graph.add(ops.ConnectFilters(weights=weights, filters=filters, pairs=pairs))


for name in CONNECTIONS:
    case(f"connect_filters-{name}", connect, name, False)
    case(f"connect_filters_backward-{name}", connect, name, True)


def rbf(d: Draft, n: int, inputs: int, classes: int, backward: bool) -> None:
    d.length = 4 * inputs
    signs = np.random.default_rng(3).choice([-1.0, 1.0], (classes, inputs))
    centres = tuple(tuple(float(v) for v in row) for row in signs)
    x = d.floats("x", n, inputs)
    if backward:
        dy, dx = d.floats("dy", n, classes), d.out("dx", n, inputs)
        d.graph.add(ops.RbfBackward(x=x, dy=dy, dx=dx, centres=centres))
    else:
        d.graph.add(ops.Rbf(x=x, y=d.out("y", n, classes), centres=centres))


for backward in (False, True):
    case(f"rbf-digits-{backward:d}", rbf, 5, 84, 10, backward)
    case(f"rbf-small-{backward:d}", rbf, 1, 3, 2, backward)


def heaviside(d: Draft, *shape: int) -> None:
    d.graph.add(ops.Heaviside(x=d.floats("x", *shape), y=d.out("y", *shape)))


case("heaviside-flat", heaviside, 5, 3)
case("heaviside-picture", heaviside, 2, 3, 4, 5)
