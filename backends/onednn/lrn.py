"""Local response normalisation by oneDNN's primitive, whose formula is ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...graph.graph import Tensor
from ...graph.ops import DivisiveNorm, DivisiveNormBackward, Lrn, LrnBackward
from .bind import Binder, attempt, binds
from .constants import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    LRN_ACROSS_CHANNELS,
    LRN_WITHIN_CHANNEL,
    SRC,
    WORKSPACE,
)
from .convolution import candidate_layouts
from .fallback import reference
from .memory import Descriptor, Memory
from .primitive import PrimitiveDesc

Forward = Lrn | DivisiveNorm
Backward = LrnBackward | DivisiveNormBackward


def _algorithm(op: Forward | Backward) -> int:
    across = isinstance(op, (Lrn, LrnBackward))
    return LRN_ACROSS_CHANNELS if across else LRN_WITHIN_CHANNEL


def _numbers(op: Forward | Backward) -> tuple[int, float, float, float]:
    return op.size, op.alpha, op.beta, op.k


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
) -> PrimitiveDesc | None:
    def candidate(layout: Descriptor) -> Callable[[], tuple[Any, ...]]:
        return lambda: (prop, _algorithm(op), layout, layout, *_numbers(op), None)

    candidates = [candidate(layout) for layout in layouts]
    return attempt("lrn_forward", candidates, {"size": op.size})


def _backward_desc(op: Backward, hint: PrimitiveDesc) -> PrimitiveDesc | None:
    layout = hint.descriptor(SRC)
    backward = (_algorithm(op), layout, layout, layout, *_numbers(op), hint, None)
    return attempt("lrn_backward", [lambda: backward], {"size": op.size})


def _pair(b: Binder, op: Backward) -> tuple[PrimitiveDesc, PrimitiveDesc] | None:
    """Forward and backward in the first layout for which both are fast and right."""
    for layout in _layouts(b, op.x, op.size):
        if isinstance(op, LrnBackward) and _is_wrong(op, layout):
            continue
        hint = _forward_desc(op, FORWARD_TRAINING, [layout])
        desc = _backward_desc(op, hint) if hint is not None else None
        if hint is not None and desc is not None:
            return hint, desc
    return None


def _is_wrong(op: LrnBackward, layout: Descriptor) -> bool:
    """Whether oneDNN 3.2 computes a wrong gradient across channels; found by trying 1 to 256.

    NHWC alone: beyond 16 channels it is right where two of the three below hold.
    """
    alike = [Descriptor.of(op.x.shape, name, layout.dtype) == layout for name in ("nhwc", "nchw")]
    if alike != [True, False] or op.x.shape[1] <= 16:
        return False
    holds = (op.size <= 5, op.x.shape[1] % 16 == 0, layout.dtype == "float32")
    return sum(holds) < 2


@binds(DivisiveNorm, narrow=True)
@binds(Lrn, narrow=True)
def lrn(b: Binder, op: Forward) -> None:
    # Of this one: the next normalisation's backward reads y too, as its x.
    readers = [r for r in b.graph.consumers(op.y) if isinstance(r, Backward) and r.y == op.y]
    if readers:
        found = _pair(b, readers[0])
        desc = found[0] if found is not None else None
    else:
        desc = _forward_desc(op, FORWARD_INFERENCE, _layouts(b, op.x, op.size))
    if desc is None:
        return reference(b, op)
    layout = desc.descriptor(SRC)
    arguments = {SRC: b.want(op.x, layout), DST: b.output(op.y, layout)}
    if readers:
        workspace = _workspace(b, desc)
        if workspace is not None:
            arguments[WORKSPACE] = workspace
        b.forwards[op.y] = (desc, workspace)
    return b.primitive(op, desc, arguments, {"size": op.size})


@binds(DivisiveNormBackward, narrow=True)
@binds(LrnBackward, narrow=True)
def lrn_backward(b: Binder, op: Backward) -> None:
    found = _pair(b, op)
    if found is None:
        return reference(b, op)
    hint, desc = found
    known = b.forwards.get(op.y)
    workspace = known[1] if known is not None else _forward_again(b, op, hint)
    layout = desc.descriptor(SRC)
    arguments = {
        SRC: b.want(op.x, layout),
        DIFF_DST: b.want(op.dy, layout),
        DIFF_SRC: b.output(op.dx, layout),
    }
    if workspace is not None:
        arguments[WORKSPACE] = workspace
    return b.primitive(op, desc, arguments, {"size": op.size})


def _workspace(b: Binder, desc: PrimitiveDesc) -> Memory | None:
    layout = desc.descriptor(WORKSPACE)
    return b.scratch(layout) if layout.nbytes else None


def _forward_again(b: Binder, op: Backward, hint: PrimitiveDesc) -> Memory | None:
    """Forward's workspace where this section has no forward: computed anew."""
    b.home(op.y)  # what was written is held, needed or not
    workspace = _workspace(b, hint)
    if workspace is not None:
        layout = hint.descriptor(SRC)
        arguments = {SRC: b.want(op.x, layout), DST: b.scratch(layout), WORKSPACE: workspace}
        b.primitive(op, hint, arguments, {"size": op.size})
    return workspace
