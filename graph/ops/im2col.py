"""Convolution as a matrix product: pictures unrolled to rows of windows, and back."""

from __future__ import annotations

from ..geometry import Window
from ..graph import In, Op, Out, Tensor


def _check(op: Op, x: Tensor, columns: Tensor, window: Window) -> None:
    n, c, h, w = x.shape
    rows, across = window.output(h, w)
    op.need(columns.shape == (n * rows * across, c * window.area), x, columns)


class Im2col(Op):
    """columns[(n,p,q), (c,i,j)] = x[n,c, p s + i d, q s + j d], zero outside the picture.

    x: (N, C, H, W), columns: (N P Q, C kh kw): every row is what the window sees at one place, so
    that columns W^T with W: (O, C kh kw) is the convolution (Chellapilla et al. 2006). A window of
    1x1 only turns pictures into rows of pixels.
    """

    x: In
    columns: Out
    window: Window

    def check(self) -> None:
        _check(self, self.x, self.columns, self.window)


class Col2im(Op):
    """The transpose of Im2col: x[n,c,h,w] = sum of all columns that Im2col would copy it to.

    A window of 1x1 only turns rows of pixels into pictures.
    """

    columns: In
    x: Out
    window: Window

    def check(self) -> None:
        _check(self, self.x, self.columns, self.window)

    def flops(self) -> int:
        return self.columns.size if self.window.area > 1 else 0
