"""Dense and convolution: matrix products, filters, biases, pictures unrolled to matrices."""

from __future__ import annotations

from ..geometry import Window
from ..graph import In, Op, Out, Tensor


class MatMul(Op):
    """c = f(op(a) op(b) + bias), op the transpose if asked for; the gemm of a dense layer.

    op(a): (M, K), op(b): (K, N), c: (M, N), bias: (N,), f an activation or none.
    bias_grad: (M,) is the sum of op(a) over K: with a = dy it is the gradient of the bias.
    """

    a: In
    b: In
    c: Out
    transpose_a: bool = False
    transpose_b: bool = False
    bias: In | None = None
    activation: str | None = None
    activation_alpha: float = 0.0
    bias_grad: Out | None = None

    @property
    def mnk(self) -> tuple[int, int, int]:
        m, k = self.a.shape[::-1] if self.transpose_a else self.a.shape
        return m, self.c.shape[1], k

    def check(self) -> None:
        m, n, k = self.mnk
        b = self.b.shape[::-1] if self.transpose_b else self.b.shape
        self.need(b == (k, n) and self.c.shape == (m, n), self.a, self.b, self.c)
        if self.bias is not None:
            self.need(self.bias.shape == (n,), self.bias, self.c)
        if self.bias_grad is not None:
            self.need(self.bias_grad.shape == (m,), self.bias_grad, self.a)

    def flops(self) -> int:
        m, n, k = self.mnk
        extra = (self.bias is not None) + (self.activation is not None)
        return 2 * m * n * k + extra * m * n + (m * k if self.bias_grad is not None else 0)


class BatchMatMul(Op):
    """c[g] = factor op(a[g]) op(b[g]) for every g, op the transpose of each matrix if asked for.

    op(a): (G, M, K), op(b): (G, K, N), c: (G, M, N).
    """

    a: In
    b: In
    c: Out
    transpose_a: bool = False
    transpose_b: bool = False
    factor: float = 1.0

    @property
    def mnk(self) -> tuple[int, int, int]:
        m, k = self.a.shape[:0:-1] if self.transpose_a else self.a.shape[1:]
        return m, self.c.shape[2], k

    def check(self) -> None:
        count, (m, n, k) = self.a.shape[0], self.mnk
        b = (count, n, k) if self.transpose_b else (count, k, n)
        self.need(self.b.shape == b and self.c.shape == (count, m, n), self.a, self.b, self.c)

    def flops(self) -> int:
        m, n, k = self.mnk
        return 2 * self.a.shape[0] * m * n * k + (self.factor != 1.0) * self.c.size


class BiasAdd(Op):
    """y = x + b along axis 1; x, y: (N, C) or (N, C, H, W), b: (C,)."""

    flops_each = 1
    x: In
    b: In
    y: Out

    def check(self) -> None:
        self.same(self.x, self.y)
        self.need(self.b.shape == (self.x.shape[1],), self.x, self.b)


class BiasGrad(Op):
    """db = sum of dy over all axes but 1; dy: (N, C) or (N, C, H, W), db: (C,)."""

    flops_each = 1
    dy: In
    db: Out

    def check(self) -> None:
        self.need(self.db.shape == (self.dy.shape[1],), self.dy, self.db)


def check_conv(op: Op, x: Tensor, w: Tensor, y: Tensor, window: Window, groups: int) -> None:
    n, c, h, width = x.shape
    filters, inner, *kernel = w.shape
    fits = inner * groups == c and filters % groups == 0 and tuple(kernel) == window.kernel
    op.need(fits and y.shape == (n, filters, *window.output(h, width)), x, w, y)


def _conv_flops(w: Tensor, y: Tensor) -> int:
    return 2 * y.size * w.size // w.shape[0]


class Conv2d(Op):
    """y = f(x * w + bias): y[n,o,p,q] = sum over c,i,j of w[o,c,i,j] x[n,c,p s + i d,q s + j d].

    x: (N, C, H, W), w: (O, C / groups, kh, kw), y: (N, O, P, Q), bias: (O,), f an activation
    or none; stride s and dilation d are the window's.
    """

    x: In
    w: In
    y: Out
    window: Window
    groups: int = 1
    bias: In | None = None
    activation: str | None = None
    activation_alpha: float = 0.0

    def check(self) -> None:
        check_conv(self, self.x, self.w, self.y, self.window, self.groups)
        if self.bias is not None:
            self.need(self.bias.shape == (self.y.shape[1],), self.bias, self.y)

    def flops(self) -> int:
        extra = (self.bias is not None) + (self.activation is not None)
        return _conv_flops(self.w, self.y) + extra * self.y.size


class Conv2dBackwardData(Op):
    """dx = J(x)^T dy of Conv2d: each dy pixel spread over its window through w; shapes as there."""

    dy: In
    w: In
    dx: Out
    window: Window
    groups: int = 1

    def check(self) -> None:
        check_conv(self, self.dx, self.w, self.dy, self.window, self.groups)

    def flops(self) -> int:
        return _conv_flops(self.w, self.dy)


class Conv2dBackwardFilter(Op):
    """dw = J(w)^T dy of Conv2d: x correlated with dy; bias_grad: (O,) = dy summed over N, P, Q."""

    x: In
    dy: In
    dw: Out
    window: Window
    groups: int = 1
    bias_grad: Out | None = None

    def check(self) -> None:
        check_conv(self, self.x, self.dw, self.dy, self.window, self.groups)
        if self.bias_grad is not None:
            self.need(self.bias_grad.shape == (self.dy.shape[1],), self.bias_grad, self.dy)

    def flops(self) -> int:
        extra = self.dy.size if self.bias_grad is not None else 0
        return _conv_flops(self.dw, self.dy) + extra


def _check_unrolled(op: Op, x: Tensor, columns: Tensor, window: Window) -> None:
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
        _check_unrolled(self, self.x, self.columns, self.window)


class Col2im(Op):
    """The transpose of Im2col: x[n,c,h,w] = sum of all columns that Im2col would copy it to.

    A window of 1x1 only turns rows of pixels into pictures.
    """

    columns: In
    x: Out
    window: Window

    def check(self) -> None:
        _check_unrolled(self, self.x, self.columns, self.window)

    def flops(self) -> int:
        return self.columns.size if self.window.area > 1 else 0
