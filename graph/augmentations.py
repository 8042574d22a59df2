"""Augmentations: what is done to the pictures of a training batch, picture by picture.

What is drawn for a picture is a pure function of (seed, epoch, sample): w0 to w3 below are the four
words of Philox block ``sample`` (its index in the data set) at counter ``epoch`` under the key of
the augmentation, and u = (w + 1/2) / 2^32. ``below(w, n)`` is floor(w n / 2^32). Batch size and
order do not enter.

Crops, flips and cutouts move whole pixels, so they are equal to the bit everywhere. rotate, shift,
scale and elastic unite into one bilinear resampling; pixels outside the picture are 0 there. All of
them work on pixels before these are scaled, so black means black, whatever the normalisation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..common.random import Key, key

Padding = Literal["zero", "reflect"]


class Augmentation:
    """One entry of the list; ``misfit`` says why it cannot work on pictures of a size, or ""."""

    kind: ClassVar[str]
    interpolates: ClassVar[bool] = False

    def misfit(self, height: int, width: int) -> str:
        return ""


@dataclass(frozen=True)
class RandomCrop(Augmentation):
    """A window of the picture's own size out of the picture padded by n pixels on every side.

    Its corner: (below(w0, 2n + 1), below(w1, 2n + 1)). ``zero`` pads with black pixels, before
    normalisation; ``reflect`` mirrors at the outermost pixel, which is not repeated.
    """

    kind = "random_crop"
    padding: int
    mode: Padding = "zero"

    def misfit(self, height: int, width: int) -> str:
        if self.padding < min(height, width):
            return ""
        return f"padding {self.padding} must be less than the sides of the pictures"


@dataclass(frozen=True)
class RandomFlip(Augmentation):
    """Left and right are exchanged where the highest bit of w0 is 1."""

    kind = "random_flip"


@dataclass(frozen=True)
class AlternatingFlip(Augmentation):
    """A random flip of counter 0 in even epochs, its opposite in odd ones (Jordan 2024).

    So every picture is seen both ways in any two epochs in a row.
    """

    kind = "alternating_flip"


@dataclass(frozen=True)
class Cutout(Augmentation):
    """A square inside the picture gets the mean colour (DeVries and Taylor 2017).

    Its corner: (below(w0, height - size + 1), below(w1, width - size + 1)). The colour is the pixel
    that normalisation brings nearest to 0.
    """

    kind = "cutout"
    size: int

    def misfit(self, height: int, width: int) -> str:
        if self.size <= min(height, width):
            return ""
        return f"size {self.size} is more than a side of the pictures"


class Affine(Augmentation):
    """A map of the plane around the picture's middle: part of the resampling."""

    interpolates = True


@dataclass(frozen=True)
class Rotate(Affine):
    """A turn by (2 u0 - 1) ``degrees``, counterclockwise where positive."""

    kind = "rotate"
    degrees: float


@dataclass(frozen=True)
class Shift(Affine):
    """A move by (2 u0 - 1) ``pixels`` down and (2 u1 - 1) ``pixels`` to the right."""

    kind = "shift"
    pixels: float


@dataclass(frozen=True)
class Scale(Affine):
    """An enlargement by ``min`` + u0 (``max`` - ``min``)."""

    kind = "scale"
    min: float
    max: float


@dataclass(frozen=True)
class Elastic(Augmentation):
    """Every pixel is fetched from a place nearby (Simard, Steinkraus and Platt 2003).

    The displacement is noise in (-1, 1), smoothed by a Gaussian of deviation ``sigma`` (cut off at
    4 sigma, 0 outside the picture), times ``alpha``. The noise of pixel p = y width + x comes from
    word p % 4 of block sample ceil(height width / 4) + p // 4: down from its low 16 bits h,
    (h + 1/2) / 2^15 - 1, to the right from its high ones.
    """

    kind = "elastic"
    interpolates = True
    alpha: float
    sigma: float

    @property
    def radius(self) -> int:
        """Of the Gaussian in pixels."""
        return int(4.0 * self.sigma + 0.5)


AUGMENTATIONS: dict[str, type[Augmentation]] = {
    each.kind: each
    for each in (
        RandomCrop,
        RandomFlip,
        AlternatingFlip,
        Cutout,
        Rotate,
        Shift,
        Scale,
        Elastic,
    )
}


def augmentation_keys(augment: Sequence[Augmentation], seed: int) -> tuple[Key, ...]:
    """The key of each, by its kind and its number within its kind."""
    counts: Counter[str] = Counter()
    keys = []
    for each in augment:
        counts[each.kind] += 1
        keys.append(key(seed, "augment", f"{each.kind}_{counts[each.kind]}"))
    return tuple(keys)


def stages(augment: Sequence[Augmentation]) -> tuple[range, range, range]:
    """Indices of the augmentations before the resampling, in it, and after it."""
    inside = [i for i, each in enumerate(augment) if each.interpolates]
    count = len(augment)
    if not inside:
        return range(count), range(count, count), range(count, count)
    return range(inside[0]), range(inside[0], inside[-1] + 1), range(inside[-1] + 1, count)


def disorder(augment: Sequence[Augmentation]) -> tuple[int, str] | None:
    """Index of the first augmentation that cannot follow those before it, and why; else None."""
    _, resampling, _ = stages(augment)
    elastic = False
    for index in resampling:
        each = augment[index]
        if not each.interpolates:
            return index, (
                "rotate, shift, scale and elastic are one resampling; "
                f"put them side by side, '{each.kind}' before or after all of them"
            )
        if isinstance(each, Elastic):
            if elastic:
                return index, "elastic can be there once"
            elastic = True
    return None
