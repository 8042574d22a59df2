"""What a network learned to see, as contact sheets: filters, feature maps, heat over a picture."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..common.errors import UsageError
from ..common.printable import printable
from ..training.inference.inspect import activations
from ..training.inference.trained import Trained
from . import contact_sheet, style

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

Array = NDArray[Any]
_SMALL, _LARGE, _MOST = 64, 224, 32


def filters(trained: Trained) -> PilImage:
    """The filters of the first layer with weights, or of its units the patterns.

    Zero is mid-grey, the largest weight of each black or white; of three channels the colours.
    """
    kernels = [p.tensor for p in trained.network.parameters() if p.kind == "kernel"]
    if not kernels:
        raise UsageError(f"{trained.path}: no layer has filters")
    name, shape = kernels[0].name, kernels[0].shape[1:]
    of_pixels = shape == (np.prod(trained.input_shape),)
    size = trained.input_shape if of_pixels else (-1, *(1, *shape)[-2:])
    weights = trained.checkpoint.arrays[name]
    each = np.stack([signed(one, abs(one).max()).reshape(size) for one in weights])
    rows = [(f"{name}: {len(each)} of {each.shape[2]}x{each.shape[3]}", each)]
    return contact_sheet.draw_sheet(f"filters of {printable(trained.path)}", rows)


def feature_maps(trained: Trained, backend: Backend, picture: Array, name: str) -> PilImage:
    """The maps of every layer for a picture (C, H, W): black is 0, or grey where some are below."""
    x = trained.checkpoint.provenance.preprocessing(picture[None])
    rows, before = [("input", boxed(picture, _SMALL)[None])], x
    for layer, (output,) in activations(trained, backend, x).items():
        if np.array_equal(output.ravel(), before.ravel()):
            continue
        before, least, most = output, float(output.min()), float(output.max())
        shades = signed(output, max(most, -least)) if least < 0 else signed(2 * output - most, most)
        if output.ndim == 1:
            # A few units side by side; many as a square, row by row, of which the rest is white.
            wide = 1 if output.size <= contact_sheet.COLUMNS else ceil(output.size**0.5)
            shades = np.append(shades, np.full(-output.size % wide, 255, np.uint8))
            shades = shades.reshape(-1, 1, 1) if wide == 1 else shades.reshape(1, -1, wide)
        maps = np.stack([boxed(one[None], _SMALL) for one in shades[:_MOST]])
        size = "x".join(map(str, output.shape))
        rows.append((f"{layer}: {size}, {least:.3g} to {most:.3g}", maps))
    return contact_sheet.draw_sheet(printable(f"{name} in {trained.path}"), rows)


def heated(picture: Array, heat: Array) -> Array:
    """A picture (C, H, W), enlarged, and in pale grey under its heat (H, W) in red: (2, 3, h, w).

    A line, for prints in grey, encloses what has more than half of the most heat.
    """
    from PIL import Image

    zoom = max(1, _LARGE // max(picture.shape[1:]))
    colours = picture.repeat(3 // len(picture), 0).repeat(zoom, 1).repeat(zoom, 2)
    image = Image.fromarray((heat / max(float(heat.max()), 1e-30)).astype(np.float32))
    large = image.resize(colours.shape[:0:-1], Image.Resampling.BILINEAR)
    share = np.asarray(large).clip(0.0, 1.0)
    under = 140 + colours.mean(0) * 0.4
    found = np.stack([under + (tone - under) * share for tone in style.RED])
    hot = share > 0.5
    near = [np.roll(hot, by, axis) for by in (-2, 2) for axis in (0, 1)]
    found[:, hot & ~np.logical_and.reduce(near)] = 0
    return np.stack([colours, found.astype(np.uint8)])


def boxed(picture: Array, side: int) -> Array:
    """Bytes (C, H, W) enlarged or reduced by a whole factor, on white: (C, side, side)."""
    small = contact_sheet.reduced(picture[None], -(-max(picture.shape[1:]) // side))[0]
    zoom = side // max(small.shape[1:])
    large = small.repeat(zoom, 1).repeat(zoom, 2)
    edges = [((side - length) // 2, -(-(side - length) // 2)) for length in large.shape[1:]]
    return np.pad(large, [(0, 0), *edges], constant_values=255)


def signed(values: Array, most: float) -> Array:
    """Bytes: -most is black, 0 mid-grey, most white."""
    return np.rint(127.5 + 127.5 * values / max(most, 1e-30)).astype(np.uint8)
