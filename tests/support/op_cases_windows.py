"""Operations with windows: convolution and pooling over many geometries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Shape

from .op_draft import ALPHA, Draft, case

# ---------------------------------------------------------------- convolution


@dataclass(frozen=True)
class Geometry:
    """A picture (n, c, h, w), a window over it, and for convolutions filters and groups."""

    picture: tuple[int, int, int, int]
    window: Window
    filters: int = 0
    groups: int = 1

    def output(self, channels: int) -> Shape:
        n, _, h, w = self.picture
        return (n, channels, *self.window.output(h, w))

    @property
    def weights(self) -> Shape:
        return (self.filters, self.picture[1] // self.groups, *self.window.kernel)


CONVOLUTIONS = {
    "one_channel": Geometry((3, 1, 12, 12), Window((5, 5)), 20),
    "lenet_2": Geometry((3, 20, 12, 12), Window((5, 5)), 50),
    "wide": Geometry((2, 32, 6, 6), Window((3, 3), padding=(1, 1, 1, 1)), 16),
    "1x1": Geometry((2, 5, 4, 3), Window((1, 1)), 7),
    "whole": Geometry((2, 3, 4, 5), Window((4, 5)), 6),
    "stride": Geometry((2, 3, 9, 8), Window((3, 2), (2, 3)), 4),
    "uneven": Geometry((2, 3, 5, 6), Window((3, 4), (1, 2), (2, 0, 1, 3)), 4),
    "dilation": Geometry((2, 2, 9, 10), Window((3, 2), (1, 2), (1, 1, 0, 2), (2, 3)), 3),
    "groups": Geometry((2, 6, 5, 5), Window((3, 3), padding=(1, 1, 1, 1)), 9, 3),
    "depthwise": Geometry((2, 8, 6, 5), Window((3, 3), (2, 1)), 8, 8),
    "wide_groups": Geometry((1, 32, 5, 5), Window((3, 3)), 32, 2),
    "unused_pixels": Geometry((1, 2, 8, 8), Window((3, 3), (3, 3)), 2),
    "row": Geometry((2, 3, 1, 7), Window((1, 3), (1, 2), (0, 0, 2, 1)), 2),
    # Filter gradients for which a plan of cuDNN 9.19 computes wrong sums.
    "lopsided": Geometry((3, 1, 4, 5), Window((4, 4), (2, 3), (1, 1, 2, 3), (1, 2)), 16),
    "lopsided_groups": Geometry((5, 9, 4, 4), Window((2, 2), (3, 3), (0, 1, 0, 1)), 9, 3),
}


def conv2d(d: Draft, g: Geometry, bias: bool, f: str | None) -> None:
    x, w = d.floats("x", *g.picture), d.floats("w", *g.weights, role="parameter")
    d.length = int(np.prod(g.weights[1:]))
    d.graph.add(
        ops.Conv2d(
            x=x,
            w=w,
            y=d.out("y", *g.output(g.filters)),
            window=g.window,
            groups=g.groups,
            bias=d.floats("bias", g.filters, role="parameter") if bias else None,
            activation=f,
            activation_alpha=ALPHA.get(f or "", 0.0),
        )
    )


def conv2d_backward_data(d: Draft, g: Geometry) -> None:
    dy, w = d.floats("dy", *g.output(g.filters)), d.floats("w", *g.weights, role="parameter")
    d.length = g.filters // g.groups * g.window.area
    dx = d.out("dx", *g.picture)
    d.graph.add(ops.Conv2dBackwardData(dy=dy, w=w, dx=dx, window=g.window, groups=g.groups))


def conv2d_backward_filter(d: Draft, g: Geometry, bias_grad: bool) -> None:
    x, dy = d.floats("x", *g.picture), d.floats("dy", *g.output(g.filters))
    dw = d.gradient("w", *g.weights)
    db = d.gradient("b", g.filters) if bias_grad else None
    d.length = dy.size // g.filters
    d.graph.add(
        ops.Conv2dBackwardFilter(x=x, dy=dy, dw=dw, window=g.window, groups=g.groups, bias_grad=db)
    )


for name, geometry in CONVOLUTIONS.items():
    case(f"conv2d-{name}", conv2d, geometry, False, None)
    case(f"conv2d-{name}-bias", conv2d, geometry, True, None)
    case(f"conv2d-{name}-bias-relu", conv2d, geometry, True, "relu")
    case(f"conv2d_backward_data-{name}", conv2d_backward_data, geometry)
    case(f"conv2d_backward_filter-{name}", conv2d_backward_filter, geometry, False)
    case(f"conv2d_backward_filter-{name}-bias", conv2d_backward_filter, geometry, True)
for activation in ops.ACTIVATIONS:
    case(f"conv2d-bias-{activation}", conv2d, CONVOLUTIONS["one_channel"], True, activation)
case("conv2d-tanh", conv2d, CONVOLUTIONS["wide"], False, "tanh")


# ---------------------------------------------------------------- pooling

POOLS = {
    "2x2": Geometry((3, 5, 8, 8), Window((2, 2), (2, 2))),
    "wide": Geometry((2, 16, 8, 8), Window((2, 2), (2, 2))),
    "overlap": Geometry((2, 3, 7, 7), Window((3, 3), (2, 2))),
    "every_pixel": Geometry((2, 3, 5, 5), Window((3, 3), (1, 1), (1, 1, 1, 1))),
    "uneven": Geometry((2, 3, 6, 5), Window((3, 2), (2, 1), (1, 0, 0, 1))),
    "ceil": Geometry((2, 3, 6, 6), Window((3, 3), (2, 2), (0, 1, 0, 1))),
    "ceil_padded": Geometry((2, 3, 6, 6), Window((3, 3), (2, 2), (1, 2, 1, 2))),
    "ceil_gaps": Geometry((2, 16, 7, 7), Window((2, 2), (3, 3), (0, 1, 0, 1))),
    "gaps": Geometry((2, 3, 9, 8), Window((2, 2), (3, 4))),
    "whole": Geometry((2, 4, 5, 3), Window((5, 3), (5, 3))),
    "1x1": Geometry((2, 3, 4, 4), Window((1, 1), (2, 2))),
    "rest": Geometry((2, 12, 9, 7), Window((2, 1), (4, 3))),
    "global": Geometry((3, 24, 8, 7), Window((8, 7), (8, 7))),
    "row": Geometry((2, 3, 1, 9), Window((1, 3), (1, 2), (0, 0, 1, 1))),
}


def pool2d(d: Draft, g: Geometry, kind: ops.PoolKind) -> None:
    d.length = g.window.area
    x, y = d.floats("x", *g.picture), d.out("y", *g.output(g.picture[1]))
    d.graph.add(ops.Pool2d(x=x, y=y, window=g.window, kind=kind))


def pool2d_backward(d: Draft, g: Geometry, kind: ops.PoolKind) -> None:
    """Max-pooling's backward follows its forward: the two share a workspace in some libraries."""
    d.length = g.window.area
    dy, dx = d.floats("dy", *g.output(g.picture[1])), d.out("dx", *g.picture)
    x = y = None
    if kind == "max":
        x, y = d.floats("x", *g.picture), d.out("y", *g.output(g.picture[1]))
        d.graph.add(ops.Pool2d(x=x, y=y, window=g.window, kind=kind))
    d.graph.add(ops.Pool2dBackward(x=x, y=y, dy=dy, dx=dx, window=g.window, kind=kind))


for name, geometry in POOLS.items():
    for kind in ("max", "avg"):
        case(f"pool2d-{kind}-{name}", pool2d, geometry, kind)
        case(f"pool2d_backward-{kind}-{name}", pool2d_backward, geometry, kind)


def activated_in_blocks(d: Draft, kind: str) -> None:
    """Channels that fill no block, activated by the convolution; another reads what it wrote."""
    x, w = d.floats("x", 2, 8, 5, 4), d.floats("w", 20, 8, 1, 1, role="parameter")
    y, alpha = d.out("y", 2, 20, 5, 4), ALPHA.get(kind, 0.0)
    window = Window((1, 1))
    d.graph.add(ops.Conv2d(x=x, w=w, y=y, window=window, activation=kind, activation_alpha=alpha))
    v = d.floats("v", 9, 20, 1, 1, role="parameter")
    d.graph.add(ops.Conv2d(x=y, w=v, y=d.out("z", 2, 9, 5, 4), window=window))
    d.length = 160


for activation in ops.ACTIVATIONS:
    case(f"conv2d-blocks-{activation}", activated_in_blocks, activation)
