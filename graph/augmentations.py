"""Augmentations: what is done to the pictures of a training batch, picture by picture.

What is drawn for a picture is a pure function of (seed, epoch, sample): w0 to w3 below are the four
words of Philox block ``sample`` (its index in the data set) at counter ``epoch`` under the key of
the augmentation, and u = (w + 1/2) / 2^32. ``below(w, n)`` is floor(w n / 2^32). Batch size and
order do not matter.

Crops, flips and cutouts move whole pixels, so they are equal to the bit everywhere. All that
``interpolates`` is combined into one bilinear resampling; pixels outside the picture are 0 there,
unless one of them has the ``fill`` reflect.
All of them work on pixels before these are scaled, so black means black, whatever the
normalisation.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from ..common.options import Check, Count, Form, OptionError, Positive, kinds_of
from ..common.random import Key, key
from . import mixing, varying
from .augmentation import Augmentation as Augmentation
from .mixing import Mixing, Probability, excess, last_word
from .varying import Fill, Padding, Varied


class RandomCrop(Augmentation):
    """A window of the picture's own size, at a random place of the padded picture.

    Its corner: (below(w0, 2n + 1), below(w1, 2n + 1)), n being the padding. ``reflect`` mirrors at
    the outermost pixel, which is not repeated.
    """

    kind = "random_crop"
    padding: Annotated[Count, "Pixels added on every side."]
    mode: Annotated[
        Padding, "zero: black pixels, before normalisation; reflect: the picture mirrored."
    ] = "zero"

    def misfit(self, height: int, width: int) -> str:
        if self.padding < min(height, width):
            return ""
        return f"padding {self.padding} must be less than the sides of the pictures"


class RandomFlip(Augmentation):
    """Exchanges left and right, in half of all cases.

    These are the cases in which the highest bit of w0 is 1.
    """

    kind = "random_flip"


class AlternatingFlip(Augmentation):
    """A random flip of each picture, fixed for the run, and inverted in every other epoch.

    The flip is that of counter 0 in even epochs, so every picture is seen both ways in any two
    epochs in a row. Source: Jordan 2024.
    """

    kind = "alternating_flip"


class Boxed(Augmentation):
    """Draws a rectangle of the picture: number below(w2, K) of the K sizes of ``rectangles``.

    Its corner: (below(w0, H - height + 1), below(w1, W - width + 1)). Nothing happens if w3 is
    above ``last_word``.
    """

    @property
    def last_word(self) -> int:
        return last_word(1.0)

    def rectangles(self, height: int, width: int) -> NDArray[np.int32]:
        """Height and width of each: (K, 2)."""
        raise NotImplementedError

    def misfit(self, height: int, width: int) -> str:
        if len(self.rectangles(height, width)):
            return ""
        return "no rectangle of this scale and ratio is inside the pictures"


class Cutout(Boxed):
    """Covers a square at a random place inside the picture with the mean colour.

    The colour is the pixel that normalisation brings nearest to 0. Source: DeVries and Taylor 2017.
    """

    kind = "cutout"
    size: Annotated[Count, "Side of the square, in pixels."]

    def rectangles(self, height: int, width: int) -> NDArray[np.int32]:
        return np.full((1, 2), self.size, np.int32)

    def misfit(self, height: int, width: int) -> str:
        if self.size <= min(height, width):
            return ""
        return f"size {self.size} is larger than a side of the pictures"


def _two(value: Any) -> Any:
    if isinstance(value, list) and (len(value) != 2 or value[0] > value[1]):
        raise OptionError("expected the least and the largest number, such as [0.5, 1]")
    return tuple(value) if isinstance(value, list) else value


Areas = Annotated[
    tuple[Probability, Probability], Form(_two, list), "Least and largest share of the area."
]
Ratios = Annotated[tuple[Positive, Positive], Form(_two, list), "Least and largest width / height."]


class RandomErasing(Boxed):
    """Covers a rectangle of random size with the mean colour, in some of the pictures.

    Source: Zhong et al. 2020, whose first choice are random pixels instead.
    """

    kind = "random_erasing"
    probability: Annotated[Probability, "Share of the pictures that it acts on."] = 0.5
    scale: Areas = (0.02, 0.33)
    ratio: Ratios = (0.3, 3.3)

    @property
    def last_word(self) -> int:
        return last_word(self.probability)

    def rectangles(self, height: int, width: int) -> NDArray[np.int32]:
        return rectangles(self.scale, self.ratio, height, width)


class RandomResizedCrop(Boxed):
    """A window of random size and proportions, scaled to the size of the picture.

    It is part of the resampling, which mirrors the picture at its border then. Source: Szegedy et
    al. 2015, with the numbers of PyTorch's recipes.
    """

    kind = "random_resized_crop"
    interpolates = True
    fill = "reflect"
    scale: Areas = (0.08, 1.0)
    ratio: Ratios = (0.75, 1.3333)

    def rectangles(self, height: int, width: int) -> NDArray[np.int32]:
        return rectangles(self.scale, self.ratio, height, width)


def rectangles(
    scale: tuple[float, float], ratio: tuple[float, float], height: int, width: int
) -> NDArray[np.int32]:
    """Height and width of rectangles inside a picture: (K, 2).

    Of 64 shares of the area from ``scale``, in equal steps, with 64 proportions from ``ratio``, in
    equal steps of their logarithm, they are those that fit.
    """
    part = (np.arange(64) + 0.5) / 64
    area = height * width * (scale[0] + part * (scale[1] - scale[0]))
    root = np.exp((np.log(ratio[0]) + part * np.log(ratio[1] / ratio[0])) / 2)
    side = np.sqrt(area)[:, None]
    sides = np.rint([side / root, side * root]).reshape(2, -1).T
    fits = (sides >= 1).all(1) & (sides <= (height, width)).all(1)
    return sides[fits].astype(np.int32)


# Of which channel each channel is, by the number that is drawn.
PERMUTATIONS = tuple(permutations(range(3)))


class Recolour(Augmentation):
    """Exchanges the three colours at random, and turns some of them into their negative.

    Channel c becomes channel PERMUTATIONS[below(w0, 6)][c], or itself if there are not three, and
    v becomes 255 - v if bit 31 - c % 32 of w1 is 1. It acts on the pixels of the picture before
    all else, wherever it stands; the black and the colour that others put in stay as they are.
    """

    kind = "recolour"


class Affine(Augmentation):
    """A map of the plane around the picture's middle: part of the resampling."""

    interpolates = True


class Rotate(Affine):
    """Rotates by a random angle.

    It is (2 u0 - 1) ``degrees``, counterclockwise if positive.
    """

    kind = "rotate"
    degrees: Annotated[float, Interval(gt=0, le=180), "Largest angle, in either direction."]
    fill: Fill = None


class Shift(Affine):
    """Shifts vertically and horizontally by random distances, not rounded to pixels.

    They are (2 u0 - 1) ``pixels`` down and (2 u1 - 1) ``pixels`` to the right.
    """

    kind = "shift"
    pixels: Annotated[Positive, "Largest distance in pixels, in either direction."]
    fill: Fill = None


def _above_min(largest: float, others: Mapping[str, Any]) -> None:
    if largest < others.get("min", largest):
        raise OptionError(f"expected a number of at least min, which is {others['min']:g}")


class Scale(Affine):
    """Scales by a random factor.

    It is ``min`` + u0 (``max`` - ``min``).
    """

    kind = "scale"
    min: Annotated[Positive, "Smallest factor."]
    max: Annotated[Positive, Check(_above_min), "Largest factor."]
    fill: Fill = None


class Elastic(Augmentation):
    """Displaces pixels by noise that is smoothed by a Gaussian (Simard et al. 2003).

    The displacement is noise in (-1, 1), smoothed by a Gaussian of deviation ``sigma`` (cut off at
    4 sigma, 0 outside the picture), times ``alpha``. The noise of pixel p = y width + x comes from
    word p % 4 of block sample ceil(height width / 4) + p // 4: down from its low 16 bits h,
    (h + 1/2) / 2^15 - 1, to the right from its high ones.
    """

    kind = "elastic"
    interpolates = True
    alpha: Annotated[Positive, "Strength; multiplies the smoothed noise."] = 34.0
    sigma: Annotated[float, Interval(gt=0, le=64), "Deviation of the Gaussian, in pixels."] = 4.0
    fill: Fill = None

    @property
    def radius(self) -> int:
        """The radius of the Gaussian in pixels."""
        return int(4.0 * self.sigma + 0.5)


class OwnAugmentation(Augmentation, ABC):
    """A function of the pictures' pixels, which follows all that move pixels.

    What is drawn for a picture is a pure function of the seed and of the picture's number among all
    that are trained on: w0 to w3 are the four words of that Philox block.
    """

    @abstractmethod
    def apply(self, pixels: NDArray[np.float32], words: NDArray[np.uint32]) -> NDArray[Any]:
        """The changed pictures; pixels: (N, C, H, W), 0 to 255, words: (N, 4).

        ``pixels`` is a copy, which may be changed.
        """

    @staticmethod
    def uniform(words: NDArray[np.uint32]) -> NDArray[np.float32]:
        """u = (w + 1/2) / 2^32 in (0, 1) of the words of N pictures: (N,) -> (N, 1, 1, 1)."""
        return ((words + 0.5) * 2.0**-32).astype(np.float32).reshape(-1, 1, 1, 1)


AUGMENTATIONS = {
    kind: each
    for module in (sys.modules[__name__], varying, mixing)
    for kind, each in kinds_of(module, Augmentation).items()
}


def augmentation_keys(augment: Sequence[Augmentation], seed: int) -> tuple[Key, ...]:
    """The key of each, by its kind and its number within its kind."""
    counts: Counter[str] = Counter()
    keys = []
    for each in augment:
        counts[each.kind] += 1
        keys.append(key(seed, "augment", f"{each.kind}_{counts[each.kind]}"))
    return tuple(keys)


def reflects(augment: Sequence[Augmentation]) -> bool:
    """Whether the resampling mirrors the picture at its border: one that says so is enough."""
    return any(getattr(each, "fill", "") == "reflect" for each in augment)


def changes_colours(augment: Sequence[Augmentation]) -> bool:
    """Whether pixels change before they are moved."""
    return any(isinstance(each, (Recolour, Varied)) for each in augment)


def stages(augment: Sequence[Augmentation]) -> tuple[range, range, range]:
    """Indices of the augmentations before the resampling, in it, and after it."""
    inside = [i for i, each in enumerate(augment) if each.interpolates]
    count = len(augment)
    if not inside:
        return range(count), range(count, count), range(count, count)
    return range(inside[0]), range(inside[0], inside[-1] + 1), range(inside[-1] + 1, count)


def _turn(each: Augmentation) -> int:
    return 2 if isinstance(each, OwnAugmentation) else int(isinstance(each, Mixing))


def disorder(augment: Sequence[Augmentation]) -> tuple[int, str] | None:
    """Index of the first augmentation that cannot follow those before it, and why; else None."""
    turns = [_turn(each) for each in augment]
    for index, (one, other) in enumerate(pairwise(turns), 1):
        if other < one:
            return index, (
                f"'{augment[index].kind}' cannot follow '{augment[index - 1].kind}': mixup and "
                "cutmix come after all others, and those of plugins last"
            )
    mixes = [each for each in augment if isinstance(each, Mixing)]
    if reason := excess(mixes):
        return augment.index(mixes[-1]), reason
    _, resampling, _ = stages(augment)
    elastic = False
    for index in resampling:
        each = augment[index]
        if not each.interpolates:
            return index, (
                "all that turn, move or stretch are combined into one resampling; put them "
                f"side by side, '{each.kind}' before or after all of them"
            )
        if isinstance(each, Elastic):
            if elastic:
                return index, "elastic can be used only once"
            elastic = True
    return None
