"""Pictures unrolled to rows of windows, and back, by kernels of ours."""

from __future__ import annotations

from ....graph.ops import Col2im, Im2col
from ..binding.bind import Binder, binds
from ..binding.store import Buffer
from ..libraries.kernels import i64


def _columns(b: Binder, op: Im2col | Col2im, name: str, source: Buffer, target: Buffer) -> None:
    """struct Unrolled of im2col.cu."""
    _, channels, height, width = op.x.shape
    window = op.window
    top, _, left, _ = window.padding
    numbers = b.numbers(
        *(channels, height, width, *window.output(height, width), *window.kernel),
        *(*window.stride, *window.dilation, top, left),
    )
    size = target.layout.size
    arguments = (source, target, i64(size), numbers)
    b.kernel(op, ("im2col.cu", name), size, arguments, {"window": window})


@binds(Im2col)
def im2col(b: Binder, op: Im2col) -> None:
    _columns(b, op, "im2col", b.floats(op.x), b.output(op.columns))


@binds(Col2im)
def col2im(b: Binder, op: Col2im) -> None:
    _columns(b, op, "col2im", b.floats(op.columns), b.output(op.x))
