"""Convolutions by cuDNN's graphs, in the layout and with the plans of the choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ....common.errors import CudnnError
from ....graph.geometry import Window
from ....graph.graph import Tensor
from ....graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter, Pool2d, Pool2dBackward
from ...known import Kind
from ..binding.bind import PREPARATIONS, Binder, binds
from ..binding.decisions import Ending, Rotated
from ..binding.layouts import FEWEST_CHANNELS
from ..binding.store import Buffer
from ..fused.direct_conv import DIRECT, DirectConv, takes
from ..libraries.conv_graph import ConvGraph
from ..libraries.kernels import i32, linear_grid
from ..libraries.layout import FLOAT, Layout
from ..libraries.operand import Operand
from ..libraries.runtime import captured_seconds
from .linear import column_sums, finish
from .pool import indexed

# What a choice of plan begins with where the data gradient runs as a forward convolution.
AS_FORWARD = "f"
# The same where a forward convolution leaves bias and ReLU to the max-pool behind it.
BARE = "b"
Convolution = Conv2d | Conv2dBackwardData | Conv2dBackwardFilter


def _picture(b: Binder, op: Convolution, tensor: Tensor, dtype: str) -> Layout:
    """How a picture must lie: grouped convolutions take no padded channels."""
    return b.geometry.picture(tensor.shape, dtype, compact=op.groups > 1)


def _operand_type(b: Binder) -> str:
    return b.arithmetic.dtype


def _left_to_pool(b: Binder, op: Conv2d, y: Layout) -> bool:
    """Whether bias and ReLU may wait until a max-pool has chosen: nothing else reads y."""
    readers = b.graph.consumers(op.y)
    pools = [reader for reader in readers if isinstance(reader, Pool2d)]
    return (
        len(pools) == 1
        and op.activation in (None, "relu")
        and indexed(b, pools[0], y)
        and all(
            isinstance(r, Pool2dBackward) and r.y == pools[0].y for r in readers if r != pools[0]
        )
        and op.y not in b.graph.results.values()
    )


def _bare(b: Binder, op: Conv2d, ends: Mapping[str, Buffer]) -> ConvGraph:
    """The convolution alone, bound to real pictures."""
    bare = {name: ends[name] for name in ("x", "w", "y")}
    graph = _candidates(b, op, "forward", bare)
    graph.bind({name: end.pointer for name, end in bare.items()}, 0)
    return graph


@binds(Conv2d)
def conv2d(b: Binder, op: Conv2d) -> None:
    """cudnnBackendExecute of forward with its bias and ReLU; other activations follow.

    For few channels a kernel of ours with all of that, where the choices say so.
    """
    number = _operand_type(b)
    relu = op.activation == "relu"
    x = b.want(op.x, _picture(b, op, op.x, number))
    w = b.want(op.w, b.geometry.filters(op.w.shape, op.groups > 1, number))
    y = b.output(op.y, _picture(b, op, op.y, number))
    ends, key = {"x": x, "w": w, "y": y}, _key(b, op, "forward")
    if b.arithmetic.fusion and takes(op, y.layout):
        direct = DirectConv(b, op, x, w, y)
        b.variants[key].append((DIRECT, lambda: direct))
        if b.choices.get(key, "").startswith(DIRECT):
            direct.choose(int(b.choices[key].removeprefix(DIRECT)))
            return direct.add()
    if (op.bias is not None or relu) and _left_to_pool(b, op, y.layout):
        b.variants[key].append((BARE, partial(_bare, b, op, ends)))
        chosen = b.choices.get(key, "")
        if chosen.startswith(BARE):
            bias = 0 if op.bias is None else b.home(op.bias).array
            b.decisions.endings[op.y] = Ending(bias, relu)
            graph = _bare(b, op, ends)
            graph.choose(int(chosen.removeprefix(BARE)))
            return _launch(b, op, graph, ends, key)
    if op.bias is not None:
        channels = y.layout.stored[1]
        shape = (1, channels, 1, 1)
        ends["bias"] = Buffer(b.home(op.bias).array, Layout(shape, shape, y.layout.nhwc))
    try:
        graph = _graph(b, op, "forward", ends, relu=relu)
    except CudnnError:
        if op.bias is None and not relu:
            raise
        # No engine with this tail: the bare convolution, then a kernel of ours.
        bare = {name: end for name, end in ends.items() if name != "bias"}
        _launch(b, op, _graph(b, op, "forward", bare), bare, key)
        return _finish(b, op, y, op.bias, key)
    _launch(b, op, graph, ends, key)
    if op.activation is not None and not relu:
        _finish(b, op, y, None, key)
    return None


def _finish(b: Binder, op: Conv2d, y: Buffer, bias: Tensor | None, key: str) -> None:
    """What the plan leaves to do, in place; a search counts its time to the plan's."""
    finish(b, op, y, bias)
    b.tails[key] = partial(captured_seconds, b.steps[-1].launch, b.stream.cuda)


def _data_ends(b: Binder, op: Conv2dBackwardData) -> dict[str, Buffer]:
    number = _operand_type(b)
    return {
        "y": b.want(op.dy, _picture(b, op, op.dy, number)),
        "w": b.want(op.w, b.geometry.filters(op.w.shape, op.groups > 1, number)),
        "x": b.output(op.dx, _picture(b, op, op.dx, number)),
    }


def rotate_filters(b: Binder, op: Conv2dBackwardData) -> None:
    """Filters turned by half a circle, inputs and outputs exchanged, for a gradient that is
    computed as a forward convolution: they depend on no other operation of the step."""
    if not b.choices.get(_key(b, op, "data"), "").startswith(AS_FORWARD):
        return
    w = b.want(op.w, b.geometry.filters(op.w.shape, False, _operand_type(b)))
    turned = _turned(b, op, w)
    outer, inner, height, width = w.layout.stored
    numbers = (i32(outer), i32(inner), i32(height), i32(width))
    kernel = ("elementwise.cu", "rotate_filters", w.dtype)
    b.kernel(op, kernel, linear_grid(w.layout.size), (w.array, turned.array, *numbers))
    b.decisions.rotated[op.w] = Rotated(turned, b.mark() if b.current else None)


PREPARATIONS[Conv2dBackwardData] = rotate_filters


def _turned(b: Binder, op: Conv2dBackwardData, w: Buffer) -> Buffer:
    outer, inner, height, width = w.layout.stored
    shape = (inner, outer, height, width)
    return b.store.zeros(Layout(shape, shape, True, dtype=w.layout.dtype))


def _as_forward(b: Binder, op: Conv2dBackwardData, turned: Buffer | None = None) -> ConvGraph:
    """The gradient as a forward convolution of dy, bound to real pictures."""
    ends = _data_ends(b, op)
    if turned is None:
        turned = b.keep(_turned(b, op, ends["w"]))
    forward = {"x": ends["y"], "w": turned, "y": ends["x"]}
    height, width = op.window.kernel
    top, bottom, left, right = op.window.padding
    edges = (height - 1 - top, height - 1 - bottom, width - 1 - left, width - 1 - right)
    around = replace(op, window=replace(op.window, padding=edges))
    graph = _candidates(b, around, "forward", forward)
    graph.bind({name: end.pointer for name, end in forward.items()}, 0)
    return graph


def _can_be_forward(b: Binder, op: Conv2dBackwardData) -> bool:
    w, window = op.w.shape, op.window
    return (
        b.geometry.nhwc
        and op.groups == 1
        and window.stride == window.dilation == (1, 1)
        and max(window.padding) < min(window.kernel)
        and w[1] >= FEWEST_CHANNELS
    )


@binds(Conv2dBackwardData)
def conv2d_backward_data(b: Binder, op: Conv2dBackwardData) -> None:
    key = _key(b, op, "data")
    chosen = b.choices.get(key, "")
    if chosen.startswith(AS_FORWARD):
        turned, mark = b.decisions.rotated[op.w]
        if mark is not None:
            b.wait_for_mark(mark)
        graph = _as_forward(b, op, turned)
        graph.choose(int(chosen.removeprefix(AS_FORWARD)))
        ends = _data_ends(b, op)
        return _launch(b, op, graph, {"x": ends["y"], "w": turned, "y": ends["x"]}, key)
    ends = _data_ends(b, op)
    if _can_be_forward(b, op):
        b.variants[key].append((AS_FORWARD, partial(_as_forward, b, op)))
    return _launch(b, op, _graph(b, op, "data", ends), ends, key)


@binds(Conv2dBackwardFilter)
def conv2d_backward_filter(b: Binder, op: Conv2dBackwardFilter) -> None:
    number = _operand_type(b)
    planned = b.planned(op.dw) or b.geometry.filters(op.dw.shape, op.groups > 1)
    x = b.want(op.x, _picture(b, op, op.x, number))
    if op.window.is_lopsided:
        x, op = _bordered(b, op, x)
    ends = {
        "x": x,
        "y": b.want(op.dy, _picture(b, op, op.dy, number)),
        "w": b.output(op.dw, planned),
    }
    if number == FLOAT:
        _launch(b, op, _graph(b, op, "filter", ends), ends, _key(b, op, "filter"))
    else:
        # cuDNN's fast engines leave their float32 sums in bfloat16: widened behind them.
        target, layout = ends["w"], ends["w"].layout
        near = b.store.zeros(Layout(layout.shape, layout.stored, layout.nhwc, dtype=number))
        through = ends | {"w": near}
        _launch(b, op, _graph(b, op, "filter", through), through, _key(b, op, "filter"))
        b.convert(near, target, op.dw.name)
    if op.bias_grad is not None and op not in b.decisions.summed:
        column_sums(b, op, op.dy, op.bias_grad)


def _bordered(
    b: Binder, op: Conv2dBackwardFilter, x: Buffer
) -> tuple[Buffer, Conv2dBackwardFilter]:
    """The picture in a border of zeros, and the gradient without padding.

    For a filter gradient whose padding differs between the sides cuDNN 9.19 has plans in float32
    that compute wrong sums, and looking for plans may end the process.
    """
    n, c, h, w = x.layout.shape
    top, bottom, left, right = op.window.padding
    shape, stored = (n, c, h + top + bottom, w + left + right), x.layout.stored[1]
    whole = Layout(shape, (n, stored, *shape[2:]), x.layout.nhwc, dtype=x.layout.dtype)
    # Its border is written here alone; nothing else has this memory.
    bordered = b.keep(b.store.zeros(whole))
    _, _, down, across = whole.strides
    corner = bordered.array[top * down + left * across :]
    inner = Buffer(corner, Layout(x.layout.shape, whole.stored, whole.nhwc, dtype=whole.dtype))
    b.convert(x, inner, op.x.name)
    window = Window(op.window.kernel, op.window.stride, dilation=op.window.dilation)
    return bordered, replace(op, window=window)


def _candidates(
    b: Binder, op: Convolution, kind: Kind, ends: Mapping[str, Buffer], relu: bool = False
) -> ConvGraph:
    return b.stream.convolution(
        b.stream.cudnn,
        kind,
        {name: Operand.of(end.layout) for name, end in ends.items()},
        op.window,
        relu=relu,
        exact=b.arithmetic.exact,
        deterministic=b.arithmetic.deterministic,
    )


def _graph(
    b: Binder, op: Convolution, kind: Kind, ends: Mapping[str, Buffer], relu: bool = False
) -> ConvGraph:
    graph = _candidates(b, op, kind, ends, relu)
    chosen = b.choices.get(_key(b, op, kind))
    graph.choose(None if chosen is None else int(chosen))
    return graph


def _key(b: Binder, op: Convolution, kind: str) -> str:
    """The name of a convolution's plan among the choices: plans depend on the batch size."""
    layer = op.origin[0].layer if op.origin else ""
    return f"{b.graph.name}/{layer}/{kind}"


def _launch(
    b: Binder, op: Convolution, graph: ConvGraph, ends: Mapping[str, Buffer], key: str
) -> None:
    b.convolutions[key] = graph
    pointers = {name: end.pointer for name, end in ends.items()}
    b.workspace(graph.workspace_bytes, partial(graph.bind, pointers))
    details = dict(graph.shown) | {"workspace": graph.workspace_bytes}
    b.add(op, "cuDNN", "cudnnBackendExecute", graph.run, details, graph.plan_name)
    for name, end in ends.items():
        b.keep((name, end))
