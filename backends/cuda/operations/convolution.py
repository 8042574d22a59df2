"""Convolutions by cuDNN's graphs, in the layout and with the plans of the choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from ....common.errors import CudnnError
from ....graph.geometry import Window
from ....graph.graph import Tensor
from ....graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter, Pool2d, Pool2dBackward
from ...known import Kind
from ..binding import choices
from ..binding.bind import PREPARATIONS, Binder, binds
from ..binding.buffer import Buffer
from ..binding.decisions import Spread, Together
from ..binding.layouts import FEWEST_CHANNELS
from ..fused import tensor_conv
from ..fused.direct_conv import DirectConv, takes
from ..fused.pattern import halves
from ..fused.strided import strided
from ..fused.tensor_conv import TensorConv, TensorCores, WarpgroupConv
from ..fused.tensor_filter import TensorFilter, WarpgroupFilter, filter_ways, sloped
from ..libraries.candidates import Candidates
from ..libraries.conv_graph import ConvGraph
from ..libraries.layout import FLOAT, Layout, ceil_div
from ..libraries.operand import Operand
from ..libraries.timing import captured_seconds
from .linear import column_sums, finish
from .pointwise import spread_of
from .pool import indexed, kept

# TURNED of elementwise.cu: filters and channels of which a block rotates one tap.
TURNED = 32
# Kernels of ours, and those whose products are of warpgroups.
CONVS, FILTERS = (TensorConv, WarpgroupConv), (TensorFilter, WarpgroupFilter)
Convolution = Conv2d | Conv2dBackwardData | Conv2dBackwardFilter


def _picture(b: Binder, op: Convolution, tensor: Tensor) -> Layout:
    """How a picture must lie: grouped convolutions take no padded channels."""
    return b.geometry.picture(tensor.shape, b.arithmetic.dtype, compact=op.groups > 1)


def _filters(b: Binder, op: Conv2d | Conv2dBackwardData) -> Buffer:
    return b.want(op.w, b.geometry.filters(op.w.shape, op.groups > 1, b.arithmetic.dtype))


def _pool_behind(b: Binder, op: Conv2d, y: Layout) -> Pool2d | None:
    """The max-pool that nothing else reads y beside, so that bias and ReLU may wait until it has
    chosen; None if there is none such."""
    readers = b.graph.consumers(op.y)
    pools = [reader for reader in readers if isinstance(reader, Pool2d)]
    alone = (
        len(pools) == 1
        and op.activation in (None, "relu")
        and indexed(b, pools[0], y)
        and all(
            isinstance(r, Pool2dBackward) and r.y == pools[0].y for r in readers if r != pools[0]
        )
        and op.y not in b.graph.results.values()
    )
    return pools[0] if alone else None


def _bound(
    b: Binder, kind: Kind, window: Window, ends: Mapping[str, Buffer], relu: bool = False
) -> ConvGraph:
    """A convolution's candidates, bound to real pictures."""
    graph = b.stream.convolution(
        b.stream.cudnn,
        kind,
        {name: Operand.of(end.layout) for name, end in ends.items()},
        window,
        relu=relu,
        exact=b.arithmetic.exact,
        deterministic=b.arithmetic.deterministic,
    )
    graph.bind({name: end.pointer for name, end in ends.items()}, 0)
    return graph


@binds(Conv2d)
def conv2d(b: Binder, op: Conv2d) -> None:
    """cudnnBackendExecute of forward with its bias and ReLU; other activations follow.

    For few channels kernels of ours with all of that, where the choices say so; in a section that
    was not timed, where they say so of the layer in training.
    """
    key = b.choice(op, "forward")
    chosen, text = b.chosen(key), b.in_training(op, "forward")
    if chosen is None and text:
        try:
            trained = choices.parsed(key, text)
            if isinstance(
                trained, choices.Direct | choices.Tiled | choices.Warpgroups | choices.Through
            ):
                return _conv2d(b, op, key, trained)
        except ValueError:
            # The table is of another device: here the default does.
            pass
    return _conv2d(b, op, key, chosen)


def _conv2d(b: Binder, op: Conv2d, key: str, chosen: choices.Choice | None) -> None:
    relu = op.activation == "relu"
    x, w = b.want(op.x, _picture(b, op, op.x)), _filters(b, op)
    layout = _picture(b, op, op.y)
    pool = _pool_behind(b, op, layout)
    if isinstance(chosen, choices.Through) and pool is not None:
        return _pooled(b, op, {"x": x, "w": w, "y": Buffer(None, layout)}, pool, chosen).add()
    if b.arithmetic.fusion and takes(op, layout):
        direct = DirectConv(b, op, x, w, layout)
        b.offer(key, choices.Direct, lambda: direct)
        if isinstance(chosen, choices.Direct):
            direct.choose(chosen.number)
            return direct.add()
    y = b.output(op.y, layout)
    bare = {"x": x, "w": w, "y": y}
    if tensor_conv.takes(op, bare, b.arithmetic):
        if isinstance(chosen, choices.Tiled | choices.Warpgroups):
            return _ours(b, op, bare, chosen).add()
        ways = tensor_conv.ways(b, op, bare)
        for way in ways:
            b.offer(key, way.alone, partial(way, b, op, bare))
        if pool is not None and halves(pool):
            for way in ways:
                through = partial(_with_pool, b, op, bare, pool, way)
                b.offer(key, way.through, through)
            b.together.append(Together((key,), partial(b.seconds_of, pool)))
    if (op.bias is not None or relu) and pool is not None:
        alone = partial(_bound, b, "forward", op.window, bare)
        b.offer(key, choices.Bare, alone)
        if isinstance(chosen, choices.Bare):
            return _launch(b, op, alone(), bare, key, chosen)
    ends = dict(bare)
    if op.bias is not None:
        shape = (1, y.layout.columns, 1, 1)
        ends["bias"] = Buffer(b.home(op.bias).array, Layout(shape, shape, y.layout.nhwc))
    try:
        _launch(b, op, _bound(b, "forward", op.window, ends, relu), ends, key)
    except CudnnError:
        if op.bias is None and not relu:
            raise
        # No engine with this tail: the bare convolution, then a kernel of ours.
        _launch(b, op, _bound(b, "forward", op.window, bare), bare, key)
        return _finish(b, op, y, op.bias, key)
    if op.activation is not None and not relu:
        _finish(b, op, y, None, key)
    return None


def _pooled(
    b: Binder, op: Conv2d, ends: Mapping[str, Buffer], pool: Pool2d, chosen: choices.Choice
) -> TensorCores[Any]:
    """Forward with the max-pool behind it. Raises ValueError for a choice that cannot be had."""
    if not (tensor_conv.takes(op, ends, b.arithmetic) and halves(pool)):
        raise ValueError(f"{op.label()}: the tuning's max-pool in one kernel with it cannot be had")
    behind = (pool, *kept(b, pool, ends["y"].layout))
    return _ours(b, op, ends, chosen, behind=behind)


def _with_pool(
    b: Binder, op: Conv2d, ends: Mapping[str, Buffer], pool: Pool2d, make: Callable[..., Candidates]
) -> Candidates:
    """The candidates for that."""
    return make(b, op, ends, behind=(pool, *kept(b, pool, ends["y"].layout)))


def _finish(b: Binder, op: Conv2d, y: Buffer, bias: Tensor | None, key: str) -> None:
    """What the plan leaves to do, in place; a search counts its time to the plan's."""
    finish(b, op, y, bias)
    b.tails[key] = partial(_seconds, [b.steps[-1].launch], b.stream.cuda)


def rotate_filters(b: Binder, op: Conv2dBackwardData) -> None:
    """Filters turned by half a circle, inputs and outputs exchanged, for a gradient that is
    computed as a forward convolution: they depend on no other operation of the step."""
    if not isinstance(b.chosen(b.choice(op, "data")), choices.AsForward):
        return
    w = _filters(b, op)
    turned = _turned(b, w)
    kernel, (outer, inner, *taps) = ("elementwise.cu", "rotate_filters", w.dtype), w.layout.stored
    grid = (ceil_div(outer, TURNED), ceil_div(inner, TURNED), prod(taps))
    b.kernel(op, kernel, grid, (w, turned, outer, inner, *taps))
    b.decisions.rotated[op.w] = turned, b.mark() if b.current else None


PREPARATIONS[Conv2dBackwardData] = rotate_filters


def _turned(b: Binder, w: Buffer) -> Buffer:
    outer, inner, *kernel = w.layout.stored
    shape = (inner, outer, *kernel)
    return b.store.zeros(Layout(shape, shape, True, dtype=w.layout.dtype))


def _as_forward(b: Binder, op: Conv2dBackwardData, ends: Mapping[str, Buffer]) -> ConvGraph:
    """The gradient as a forward convolution of dy."""
    height, width = op.window.kernel
    top, bottom, left, right = op.window.padding
    edges = (height - 1 - top, height - 1 - bottom, width - 1 - left, width - 1 - right)
    return _bound(b, "forward", replace(op.window, padding=edges), ends)


def _can_be_forward(b: Binder, op: Conv2dBackwardData) -> bool:
    w, window = op.w.shape, op.window
    return (
        b.geometry.nhwc
        and op.groups == 1
        and window.stride == window.dilation == (1, 1)
        and max(window.padding) < min(window.kernel)
        and w[1] >= FEWEST_CHANNELS
    )


def _ours(
    b: Binder, op: Convolution, ends: Mapping[str, Buffer], chosen: choices.Choice, **more: Any
) -> TensorCores[Any]:
    """The kernel of ours with the tiling chosen. Raises ValueError where that cannot be had."""
    filters = isinstance(op, Conv2dBackwardFilter)
    every: Sequence[type[Any]] = FILTERS if filters else CONVS
    make = every[isinstance(chosen, choices.Warpgroups | choices.WarpgroupsThrough)]
    kernel: TensorCores[Any] = make(b, op, ends, chosen.numbers, **more)
    return kernel


def _by_ours(
    b: Binder,
    op: Conv2dBackwardData | Conv2dBackwardFilter,
    ends: Mapping[str, Buffer],
    key: str,
    spread: Spread | None,
) -> bool:
    """Whether a kernel of ours is chosen for a gradient, whose launch is appended then; if not, a
    search may try them. ``spread``: what some of them can compute dy from."""
    chosen, filters = b.chosen(key), isinstance(op, Conv2dBackwardFilter)
    if tensor_conv.takes(op, ends, b.arithmetic):
        if isinstance(chosen, choices.Tiled | choices.Warpgroups):
            _ours(b, op, ends, chosen).add()
            return True
        every: Sequence[Any] = (
            filter_ways(b, ends)
            if isinstance(op, Conv2dBackwardFilter)
            else tensor_conv.ways(b, op, ends)
        )
        for way in every:
            b.offer(key, way.alone, partial(way, b, op, ends))
            if spread is not None and (way.slopes or not sloped(spread)):
                b.offer(key, way.through, partial(way, b, op, ends, spread=spread))
    wide = strided(b, op, ends)
    if wide is not None:
        if isinstance(chosen, choices.Tiled):
            _ours(b, op, wide[0], chosen, spread=wide[1]).add()
            return True
        make: Callable[..., Candidates] = TensorFilter if filters else TensorConv
        b.offer(key, choices.Tiled, partial(make, b, op, wide[0], spread=wide[1]))
    return False


@binds(Conv2dBackwardData)
def conv2d_backward_data(b: Binder, op: Conv2dBackwardData) -> None:
    key = b.choice(op, "data")
    chosen = b.chosen(key)
    if isinstance(chosen, choices.AsForward):
        turned, mark = b.decisions.rotated[op.w]
        if mark is not None:
            b.wait_for_mark(mark)
    w, spread = _filters(b, op), spread_of(b, op.dy)
    dx = b.output(op.dx, _picture(b, op, op.dx))
    if spread is not None and isinstance(chosen, choices.Through):
        ends = {"y": Buffer(None, _picture(b, op, op.dy)), "w": w, "x": dx}
        return _ours(b, op, ends, chosen, spread=spread).add()
    dy = b.want(op.dy, _picture(b, op, op.dy))
    if isinstance(chosen, choices.AsForward):
        ends = {"x": dy, "w": turned, "y": dx}
        return _launch(b, op, _as_forward(b, op, ends), ends, key, chosen)
    ends = {"y": dy, "w": w, "x": dx}
    if _by_ours(b, op, ends, key, spread):
        return None
    if _can_be_forward(b, op):

        def other() -> ConvGraph:
            return _as_forward(b, op, {"x": dy, "w": b.keep(_turned(b, w)), "y": dx})

        b.offer(key, choices.AsForward, other)
    return _launch(b, op, _bound(b, "data", op.window, ends), ends, key)


@binds(Conv2dBackwardFilter)
def conv2d_backward_filter(b: Binder, op: Conv2dBackwardFilter) -> None:
    """cudnnBackendExecute, and the sum of the bias's gradient; or a kernel of ours for both."""
    planned = b.planned(op.dw) or b.geometry.filters(op.dw.shape, op.groups > 1)
    x, key = b.want(op.x, _picture(b, op, op.x)), b.choice(op, "filter")
    chosen = b.chosen(key)
    dw, spread = b.output(op.dw, planned), spread_of(b, op.dy)
    if spread is not None and isinstance(chosen, choices.Through):
        ends = {"x": x, "y": Buffer(None, _picture(b, op, op.dy)), "w": dw}
        return _ours(b, op, ends, chosen, spread=spread).add()
    dy = b.want(op.dy, _picture(b, op, op.dy))
    own = {"x": x, "y": dy, "w": dw}
    if _by_ours(b, op, own, key, spread):
        return None
    window = op.window
    if window.is_lopsided:
        x, window = _bordered(b, op, x)
    # cuDNN's fast engines leave their float32 sums in bfloat16: widened behind them.
    widened = b.arithmetic.dtype != FLOAT
    near = b.store.zeros(replace(dw.layout, dtype=b.arithmetic.dtype)) if widened else dw
    ends = {"x": x, "y": dy, "w": near}
    _launch(b, op, _bound(b, "filter", window, ends), ends, key)
    behind = len(b.steps)
    if widened:
        b.convert(near, dw, op.dw.name)
    if op.bias_grad is not None and not b.summed(op, op.bias_grad):
        column_sums(b, op, op.dy, op.bias_grad)
    if len(b.steps) > behind:
        b.tails[key] = partial(_seconds, [step.launch for step in b.steps[behind:]], b.stream.cuda)
    return None


def _seconds(launches: Sequence[Callable[[], None]], stream: Any, repeats: int) -> float:
    """Of these launches together."""
    return sum(captured_seconds(launch, stream, repeats) for launch in launches)


def _bordered(b: Binder, op: Conv2dBackwardFilter, x: Buffer) -> tuple[Buffer, Window]:
    """The picture in a border of zeros, and the window without padding.

    For a filter gradient whose padding differs between the sides cuDNN 9.19 has plans in float32
    that compute wrong sums, and looking for plans may end the process.
    """
    n, c, h, w = x.layout.shape
    top, bottom, left, right = op.window.padding
    shape, stored = (n, c, h + top + bottom, w + left + right), x.layout.columns
    whole = Layout(shape, (n, stored, *shape[2:]), x.layout.nhwc, dtype=x.layout.dtype)
    # Its border is written here alone; nothing else has this memory.
    bordered = b.keep(b.store.zeros(whole))
    _, _, down, across = whole.strides
    corner = bordered.array[top * down + left * across :]
    inner = Buffer(corner, Layout(x.layout.shape, whole.stored, whole.nhwc, dtype=whole.dtype))
    b.convert(x, inner, op.x.name)
    return bordered, Window(op.window.kernel, op.window.stride, dilation=op.window.dilation)


def _launch(
    b: Binder,
    op: Convolution,
    graph: ConvGraph,
    ends: Mapping[str, Buffer],
    key: str,
    chosen: choices.Counted | None = None,
) -> None:
    """Choose a plan, by default that of the choices, and append its launch."""
    plan = chosen or choices.plan_of(key, b.chosen(key))
    graph.choose(None if plan is None else plan.number, b.in_training(op, "forward/plan"))
    b.convolutions[key] = graph
    pointers = {name: end.pointer for name, end in ends.items()}
    b.workspace(graph.workspace_bytes, partial(graph.bind, pointers))
    details = dict(graph.shown) | {"workspace": graph.workspace_bytes}
    b.add(op, "cuDNN", "cudnnBackendExecute", graph.run, details, graph.plan_name)
    b.keep(ends)
