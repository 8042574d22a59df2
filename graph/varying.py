"""Variants of a picture: changes of its place and of its colours, one of DRAWS for each picture.

All that turn, move and stretch are part of the resampling, and all that change colours linearly are
one matrix, applied to the picture as it is in the data set. With an amount a, 0 for nothing:

    rotate          by a, in radians, counterclockwise
    shear_y, _x     (y, x) comes from (y + a x, x), or from (y, x + a y), around the middle
    down, right     by a pixels
    brightness      v (1 + a), in each channel
    contrast        m + (v - m) (1 + a), m the mean of the grey of the picture
    saturation      g + (v - g) (1 + a), g the grey of the pixel
    hue             a rotation of the colours by a, in radians, around that of greys
    solarize        255 - v for v of at least 256 (1 - |a|)
    posterize       without the lowest |a| bits

Grey is 0.299 red + 0.587 green + 0.114 blue, or the mean of the channels if there are not three,
which have no hue. Values are rounded after the matrix; then come solarize and posterize.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import pi, radians
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from .augmentation import Augmentation
from .mixing import DRAWS

Padding = Literal["zero", "reflect"]
Fill = Annotated[
    Padding | None,
    "What comes from outside. zero: black, the default; reflect: the picture mirrored.",
]
Factor = Annotated[float, Interval(ge=0, le=1)]
LEVELS = 30
SET = (
    *("", "rotate", "shear_y", "shear_x", "down", "right"),
    *("brightness", "contrast", "saturation", "solarize", "posterize"),
)
Numbers = NDArray[np.float64]


class Variants(NamedTuple):
    """plane: (DRAWS, 2, 3), from an output place to its source, both counted from the middle.

    colours: (DRAWS, C + 1, C); the last row times the means of the channels is added to each.
    ends: (DRAWS, 2), the first value that solarize inverts, and the bits that are kept.
    """

    plane: Numbers
    colours: Numbers
    ends: NDArray[np.int32]


class Varied(Augmentation):
    """Makes number below(w0, DRAWS) of its variants of a picture."""

    def amounts(self, u: Numbers, height: int, width: int) -> Iterator[Mapping[str, Any]]:
        """What is changed one after the other, and how far, (DRAWS,); u: (DRAWS, 4), in (0, 1)."""
        raise NotImplementedError


class ColourJitter(Varied):
    """Changes brightness, contrast, saturation and hue by random amounts, in this order.

    They are (2 u - 1) times the options. All that moves pixels follows, wherever this stands.
    """

    kind = "colour_jitter"
    brightness: Annotated[Factor, "Largest change of the factor."] = 0.0
    contrast: Annotated[Factor, "Largest change of the factor."] = 0.0
    saturation: Annotated[Factor, "Largest change of the factor."] = 0.0
    hue: Annotated[float, Interval(ge=0, le=0.5), "Largest change, in turns."] = 0.0

    def amounts(self, u: Numbers, height: int, width: int) -> Iterator[Mapping[str, Any]]:
        reach = (self.brightness, self.contrast, self.saturation, 2 * pi * self.hue)
        names = ("brightness", "contrast", "saturation", "hue")
        yield dict(zip(names, ((2 * u - 1) * reach).T, strict=True))


class RandAugment(Varied):
    """Applies some members of a set, drawn anew for each picture, at one magnitude.

    The set: nothing, rotate (30 degrees), two shears (0.3), two translations (150/331 of a side),
    brightness, contrast and saturation (0.9), solarize and posterize (4 bits); in brackets the
    largest amount, at magnitude 30. Source: Cubuk et al. 2020.
    """

    kind = "rand_augment"
    interpolates = True
    number: Annotated[int, Interval(ge=1, le=4), "How many are applied."] = 2
    magnitude: Annotated[int, Interval(ge=0, le=LEVELS), "How far they go."] = 9
    fill: Fill = None

    def amounts(self, u: Numbers, height: int, width: int) -> Iterator[Mapping[str, Any]]:
        down, right = 150 / 331 * height, 150 / 331 * width
        reach = (0, radians(30), 0.3, 0.3, down, right, 0.9, 0.9, 0.9, 1, 4)
        for each in u.T[: self.number]:
            yield _of_set(each, self.magnitude, reach)


class TrivialAugment(Varied):
    """Applies one member of the set of rand_augment, at a magnitude that is random too.

    It reaches further: 135 degrees, shears of 0.99, 32 pixels, colours by 0.99, 6 bits. Source:
    Müller and Hutter 2021, the wide space.
    """

    kind = "trivial_augment"
    interpolates = True
    fill: Fill = None

    def amounts(self, u: Numbers, height: int, width: int) -> Iterator[Mapping[str, Any]]:
        levels = np.floor(u[:, 1] * (LEVELS + 1))
        reach = (0, radians(135), 0.99, 0.99, 32, 32, 0.99, 0.99, 0.99, 1, 6)
        yield _of_set(u[:, 0], levels, reach)


def _of_set(u: Numbers, level: Any, reach: tuple[float, ...]) -> dict[str, Numbers]:
    """A member by u, and its sign by what is left of it."""
    place = u * len(SET)
    amount = np.where(place % 1 < 0.5, -1.0, 1.0) * level / LEVELS
    return {n: np.where(place // 1 == k, amount * reach[k], 0.0) for k, n in enumerate(SET)}


@lru_cache(8)
def variants(each: Varied, channels: int, height: int, width: int) -> Variants:
    """Those of an augmentation for pictures of this size."""
    # A lattice in four dimensions, whose points lie evenly (Roberts 2018).
    u = (0.5 + np.arange(DRAWS)[:, None] * 1.1673039782614187 ** -np.arange(1.0, 5.0)) % 1.0
    plane, matrix = np.tile(np.eye(2, 3), (DRAWS, 1, 1)), np.tile(np.eye(channels), (DRAWS, 1, 1))
    added = np.zeros((DRAWS, 1, channels))
    grey = np.array((0.299, 0.587, 0.114) if channels == 3 else (1 / channels,) * channels)
    solarized = dropped = np.zeros(DRAWS)
    for given in each.amounts(u, height, width):
        a: Mapping[str, Numbers] = defaultdict(lambda: np.zeros(DRAWS), given)
        cosine, sine = np.cos(a["rotate"]), np.sin(a["rotate"])
        # Counterclockwise as seen, with y pointing down.
        upper = [cosine, sine + a["shear_y"], -a["down"]]
        lower = [a["shear_x"] - sine, cosine, -a["right"]]
        moved = plane[:, :, :2] @ np.array([upper, lower]).transpose(2, 0, 1)
        moved[:, :, 2] += plane[:, :, 2]
        plane = moved
        names = ("brightness", "contrast", "saturation")
        bright, contrast, saturation = (a[name][:, None, None] for name in names)
        matrix, added = matrix * (1 + bright), added * (1 + bright)
        added = added - contrast * (grey @ matrix)[:, None]
        matrix = matrix * (1 + contrast)
        matrix = matrix * (1 + saturation) - saturation * (grey @ matrix)[:, None]
        if channels == 3:
            matrix = _hue(a["hue"]) @ matrix
        solarized = np.maximum(solarized, np.abs(a["solarize"]))
        dropped = np.maximum(dropped, np.abs(a["posterize"]))
    ends = np.stack([256 - np.rint(256 * solarized), 256 - 2 ** np.rint(dropped)], 1)
    return Variants(plane, np.concatenate([matrix, added], 1), ends.astype(np.int32))


def _hue(angle: Numbers) -> Numbers:
    """Rotations of red, green and blue around (1, 1, 1): (n,) -> (n, 3, 3)."""
    turns = np.arange(3) - np.arange(3)[:, None]
    return (1 + 2 * np.cos(angle[:, None, None] + 2 * pi / 3 * turns)) / 3
