"""Local response normalisation by oneDNN's primitive, whose formula is ours."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ...graph.graph import Tensor
from ...graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from .bind import BOTH, Binder, binds
from .constants import FORWARD_INFERENCE, FORWARD_TRAINING, LRN_ACROSS_CHANNELS, LRN_WITHIN_CHANNEL
from .convolution import candidate_layouts
from .memory import Descriptor, Memory
from .primitive import NoFastKernel, PrimitiveDesc, first_fast

Forward = Lrn | DivisiveNorm
Backward = LrnBackward | DivisiveNormBackward


def _arguments(op: Forward | Backward, layout: Descriptor, count: int) -> tuple[Any, ...]:
    """The algorithm, this layout for so many tensors, and the formula's numbers."""
    across = isinstance(op, (Lrn, LrnBackward))
    algorithm = LRN_ACROSS_CHANNELS if across else LRN_WITHIN_CHANNEL
    return (algorithm, *[layout] * count, op.size, op.alpha, op.beta, op.k)


def _layouts(b: Binder, x: Tensor, size: int) -> list[Descriptor]:
    """The layout that x has, else the library's favourites; none for a window of one value.

    oneDNN 3.2 crashes when it makes the backward primitive of that.
    """
    if size == 1:
        return []
    names = (*candidate_layouts(), "nchw")
    return [b.source(x).descriptor, *(b.layout(x.shape, name) for name in names)]


def _forward_desc(
    op: Forward | Backward, prop: int, layouts: Iterable[Descriptor]
) -> PrimitiveDesc:
    candidates = [(prop, *_arguments(op, layout, 2), None) for layout in layouts]
    return first_fast("lrn_forward", candidates, {"size": op.size})


def _pair(b: Binder, op: Backward) -> tuple[PrimitiveDesc, PrimitiveDesc]:
    """Forward and backward in the first layout for which both are fast and right."""
    for layout in _layouts(b, op.x, op.size):
        if isinstance(op, LrnBackward) and _is_wrong(op, layout):
            continue
        with suppress(NoFastKernel):
            hint = _forward_desc(op, FORWARD_TRAINING, [layout])
            backward = (*_arguments(op, hint.descriptor("src"), 3), hint, None)
            return hint, first_fast("lrn_backward", [backward], {"size": op.size})
    raise NoFastKernel


def _is_wrong(op: LrnBackward, layout: Descriptor) -> bool:
    """Whether oneDNN 3.2 computes a wrong gradient across channels; found by trying 1 to 256.

    NHWC alone: beyond 16 channels it is right where two of the three below hold.
    """
    alike = [Descriptor.of(op.x.shape, name, layout.dtype) == layout for name in ("nhwc", "nchw")]
    if alike != [True, False] or op.x.shape[1] <= 16:
        return False
    holds = (op.size <= 5, op.x.shape[1] % 16 == 0, layout.dtype == "float32")
    return sum(holds) < 2


@binds(DivisiveNorm, dtypes=BOTH)
@binds(Lrn, dtypes=BOTH)
def lrn(b: Binder, op: Forward) -> None:
    # Of this one: the next normalisation's backward reads y too, as its x.
    readers = [r for r in b.graph.consumers(op.y) if isinstance(r, Backward) and r.y == op.y]
    workspace = None
    if readers:
        desc, _ = _pair(b, readers[0])
        workspace = _workspace(b, desc)
        b.forwards[op.y] = (desc, workspace)
    else:
        desc = _forward_desc(op, FORWARD_INFERENCE, _layouts(b, op.x, op.size))
    b.tensors(op, desc, {"src": op.x}, {"dst": op.y}, {"size": op.size}, {"workspace": workspace})


@binds(DivisiveNormBackward, dtypes=BOTH)
@binds(LrnBackward, dtypes=BOTH)
def lrn_backward(b: Binder, op: Backward) -> None:
    hint, desc = _pair(b, op)
    known = b.forwards.get(op.y)
    further = {"workspace": known[1] if known is not None else _forward_again(b, op, hint)}
    inputs = {"src": op.x, "diff_dst": op.dy}
    b.tensors(op, desc, inputs, {"diff_src": op.dx}, {"size": op.size}, further)


def _workspace(b: Binder, desc: PrimitiveDesc) -> Memory | None:
    layout = desc.descriptor("workspace")
    return b.scratch(layout) if layout.nbytes else None


def _forward_again(b: Binder, op: Backward, hint: PrimitiveDesc) -> Memory | None:
    """Forward's workspace where this section has no forward: computed anew."""
    b.home(op.y)  # what was written is held, needed or not
    workspace = _workspace(b, hint)
    if workspace is not None:
        layout = hint.descriptor("src")
        arguments = {"src": b.want(op.x, layout), "dst": b.scratch(layout), "workspace": workspace}
        b.primitive(op, hint, arguments, {"size": op.size})
    return workspace
