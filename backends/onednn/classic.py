"""What LeNet-5 needs: one scale per channel and its tanh by oneDNN, the border by NumPy."""

from __future__ import annotations

from ...graph.ops import Activation, ActivationBackward, ChannelScale, GateChannels, Pad2d
from .bind import Binder, binds
from .constants import BINARY, ELTWISE_ABS, ELTWISE_LINEAR, SCALED_TANH
from .memory import Descriptor, channel_shape
from .primitive import Attributes, first_fast


@binds(GateChannels)
@binds(ChannelScale)
def channel_scale(b: Binder, op: ChannelScale) -> None:
    spread = Descriptor.of(channel_shape(op.x))
    layout = b.home(op.x).descriptor
    factor = b.constant(Descriptor.of((1,)), op.factor)
    arguments = (BINARY["mul"], layout, spread, layout, Attributes(scales=("src",)))
    desc = first_fast("binary", [arguments], {"src": layout})
    memories = {
        "src": b.home(op.x),
        "src_1": b.home(op.s).view(spread),
        "dst": b.output(op.y, layout),
        "scale_src": factor,
    }
    b.primitive(op, desc, memories, {"factor": op.factor})


@binds(Pad2d)
def pad2d(b: Binder, op: Pad2d) -> None:
    top, bottom, left, right = op.padding
    h, w = op.x.shape[2:]
    x = b.plain(op.x).array(op.x.shape)
    y = b.output(op.y).array(op.y.shape)
    rows = y[:, :, top : top + h]
    inner = rows[..., left : left + w]
    # In every run: the output's memory may be given to a later tensor.
    border = [y[:, :, :top], y[:, :, top + h :], rows[..., :left], rows[..., left + w :]]

    def run() -> None:
        inner[...] = x
        for side in border:
            side[...] = op.value

    b.host(op, run, "copy", {"border": f"{op.padding} of {op.value:g}"})


def scaled_tanh(b: Binder, op: Activation) -> None:
    """x times 2/3, then tanh and times 1.7159 in the same call."""
    (_, slope, _), *rest = SCALED_TANH
    layout, single = b.home(op.x).descriptor, Descriptor.of((1,) * len(op.x.shape))
    arguments = (BINARY["mul"], layout, single, layout, Attributes(chain=rest))
    desc = first_fast("binary", [arguments], {"src": layout})
    factor = b.constant(single, slope)
    memories = {"src": b.home(op.x), "src_1": factor, "dst": b.output(op.y, layout)}
    b.primitive(op, desc, memories, {"kind": op.kind})


def scaled_tanh_backward(b: Binder, op: ActivationBackward) -> None:
    """With y = a tanh(s x): dx = (s / a) (a - |y|) (a + |y|) dy, in two calls.

    The difference is exact where the function is near its ends; a s - (s / a) y^2 is not.
    """
    slope, size = SCALED_TANH[0][1], SCALED_TANH[2][1]
    layout, single = b.home(op.value).descriptor, Descriptor.of((1,) * len(op.value.shape))
    absolute = (ELTWISE_ABS, 0.0, 0.0)
    plus = Attributes(chain=(absolute, (ELTWISE_LINEAR, 1.0, size)))
    minus = Attributes(
        chain=(
            absolute,
            (ELTWISE_LINEAR, -1.0, size),
            (BINARY["mul"], layout),
            (BINARY["mul"], layout),
            (ELTWISE_LINEAR, slope / size, 0.0),
        )
    )
    both = (BINARY["add"], layout, single, layout)
    first, second = (
        first_fast("binary", [(*both, attributes)], {"src": layout}) for attributes in (plus, minus)
    )
    y, dx, sums = b.home(op.value), b.output(op.dx, layout), b.scratch(layout)
    dy, zero = b.want(op.dy, layout), b.constant(single, 0.0)
    b.primitive(op, first, {"src": y, "src_1": zero, "dst": sums}, {"kind": op.kind})
    factors = {"post_op_2_src_1": sums, "post_op_3_src_1": dy}
    memories = {"src": y, "src_1": zero, **factors, "dst": dx}
    b.primitive(op, second, memories, {"kind": op.kind})
