"""Four ways to compute a convolution in NumPy, for their arithmetic and error; x, w, y: Conv2d."""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod

import numpy as np

from ...common.records import dataclass
from ...graph.geometry import Window
from ...graph.ops import Conv2d
from ..base import Array
from .linear import conv2d, pixels
from .windows import padded, positions, windows

# F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016:
# a tile of y is A^T [(G w G^T) * (B^T x B)] A, with x a tile of 4x4.
_B = np.array([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]])
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_A = np.array([[1, 0], [1, 1], [1, -1], [0, -1]])
# The FLOP of these transforms, for a tile of x, a filter and a tile of y.
_OF_X, _OF_W, _OF_Y = 32, 28, 24


@dataclass(frozen=True)
class Algorithm:
    """``compute(op, x, w)`` is y; ``elements``: the numbers that it keeps beside these."""

    name: str
    compute: Callable[[Conv2d, Array, Array], Array]
    flops: Callable[[Conv2d], int]
    elements: Callable[[Conv2d], int]

    def refusal(self, window: Window) -> str:
        """Why it cannot slide this window; "" if it can."""
        if self.compute is not winograd or window == Window((3, 3), padding=window.padding):
            return ""
        return f"{self.name} takes a window of 3x3 with stride and dilation 1 alone, not {window}"


def direct(op: Conv2d, x: Array, w: Array) -> Array:
    """y = sum over the window's pixels (i, j) of w[:, :, i, j] times what they see."""
    n, filters, p, q = op.y.shape
    y = np.zeros((n, op.groups, filters // op.groups, p * q), x.dtype)
    taps = w.reshape(op.groups, filters // op.groups, -1, op.window.area)
    for number, seen in enumerate(positions(padded(x, op.window), op.window, (p, q))):
        y += taps[..., number] @ pixels(seen, op.groups)
    return y.reshape(op.y.shape)


def fft(op: Conv2d, x: Array, w: Array) -> Array:
    """y = F^-1(F(x) F(w)*): a product for each frequency; of a stride, only what it keeps."""
    (n, filters, p, q), groups, inner = op.y.shape, op.groups, w.shape[1]
    (down, right), (rows, columns) = op.window.stride, op.window.dilation
    x = padded(x, op.window)
    holed = np.zeros((filters, inner, *op.window.extent), w.dtype)
    holed[..., ::rows, ::columns] = w
    seen, turned = np.fft.rfft2(x), np.fft.rfft2(holed, x.shape[2:]).conj()
    left = seen.reshape(n, groups, inner, -1).transpose(3, 1, 0, 2)
    product = left @ turned.reshape(groups, filters // groups, inner, -1).transpose(3, 0, 2, 1)
    spectrum = product.transpose(2, 1, 3, 0).reshape(n, filters, *seen.shape[2:])
    y = np.fft.irfft2(spectrum, x.shape[2:])[..., ::down, ::right][..., :p, :q]
    return np.ascontiguousarray(y, x.dtype)


def winograd(op: Conv2d, x: Array, w: Array) -> Array:
    """y in tiles of 2x2, each by 16 multiplications in place of 36."""
    (n, filters, p, q), groups, inner = op.y.shape, op.groups, w.shape[1]
    b, g, a = (each.astype(x.dtype) for each in (_B, _G, _A))
    x = padded(padded(x, op.window), Window((4, 4), padding=(0, p % 2, 0, q % 2)))
    u = np.einsum("ki,lj,ocij->klco", g, g, w, optimize=True)
    v = np.einsum("ik,jl,ncrsij->klncrs", b, b, windows(x, Window((4, 4), (2, 2))), optimize=True)
    u = u.reshape(4, 4, 1, inner, groups, -1).transpose(0, 1, 2, 4, 5, 3)
    m = (u @ v.reshape(4, 4, n, groups, inner, -1)).reshape(4, 4, n, filters, *v.shape[4:])
    y = np.einsum("ik,jl,ijnors->norksl", a, a, m, optimize=True)
    return np.ascontiguousarray(y.reshape(n, filters, 2 * m.shape[4], -1)[..., :p, :q])


def _spectra(op: Conv2d) -> tuple[int, int, int]:
    """Numbers of a padded picture, of its half spectrum, and planes of x, w and y together."""
    top, bottom, left, right = op.window.padding
    height, width = op.x.shape[2] + top + bottom, op.x.shape[3] + left + right
    planes = sum(prod(tensor.shape[:2]) for tensor in (op.x, op.w, op.y))
    return height * width, height * (width // 2 + 1), planes


def _fft_flops(op: Conv2d) -> int:
    """2.5 S log2 S for each plane of S numbers, and 8 for each product of complex numbers."""
    size, half, planes = _spectra(op)
    products = half * prod(op.y.shape[:2]) * op.w.shape[1]
    return round(2.5 * size * log2(size) * planes) + 8 * products


def _winograd_sizes(op: Conv2d) -> tuple[int, int, int]:
    """Tiles of x, filters, and tiles of y."""
    tiles = -(-op.y.shape[2] // 2) * -(-op.y.shape[3] // 2)
    return tiles * prod(op.x.shape[:2]), prod(op.w.shape[:2]), tiles * prod(op.y.shape[:2])


def _winograd_flops(op: Conv2d) -> int:
    of_x, of_w, of_y = _winograd_sizes(op)
    return _OF_X * of_x + _OF_W * of_w + _OF_Y * of_y + 2 * 16 * of_y * op.w.shape[1]


def _columns(op: Conv2d) -> int:
    return op.x.shape[1] * op.window.area * op.y.size // op.y.shape[1]


ALGORITHMS = (
    Algorithm("direct", direct, Conv2d.flops, lambda op: 0),
    Algorithm("im2col", conv2d, Conv2d.flops, _columns),
    Algorithm("fft", fft, _fft_flops, lambda op: 2 * prod(_spectra(op)[1:])),
    Algorithm("winograd", winograd, _winograd_flops, lambda op: 16 * sum(_winograd_sizes(op))),
)
