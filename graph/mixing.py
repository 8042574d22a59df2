"""Mixing: a picture of a training batch with a partner, and so their targets.

Partners are the samples in another order of the same epoch. What is drawn for a pair is a pure
function of (seed, epoch, place in the epoch's order): w0 to w3 are the four words of Philox block
``place`` at counter ``epoch``, and ``below(w, n)`` is floor(w n / 2^32). Neither the batch size nor
the number of ranks matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from ..common.options import Positive
from .augmentation import Augmentation

DRAWS = 4096
"""How many values of lambda there are, all equally likely."""
Alpha = Annotated[Positive, "Of lambda ~ Beta(alpha, alpha); the larger, the nearer to 1/2."]
Probability = Annotated[float, Interval(gt=0, le=1)]


class Mixing(Augmentation):
    """Mixes pictures with partners, by lambda ~ Beta(alpha, alpha).

    Lambda is number below(w0, DRAWS) of ``betas``. w3 decides which of a list of mixings is
    used: they divide [0, 1) by their probabilities, and what is left over stays unmixed.
    """

    alpha: Alpha = 1.0
    probability: Annotated[Probability, "Share of the pictures that are mixed in this way."] = 1.0

    def table(self, height: int, width: int) -> NDArray[np.float32]:
        """(DRAWS, 3): weight of the picture, height and width of the partner's rectangle."""
        raise NotImplementedError


class MixUp(Mixing):
    """Adds picture and partner, and so their targets: lambda of one and 1 - lambda of the other.

    Source: Zhang et al. 2018, whose experiments on ImageNet have alpha from 0.1 to 0.4.
    """

    kind = "mixup"
    alpha: Alpha = 0.2

    def table(self, height: int, width: int) -> NDArray[np.float32]:
        return np.stack([betas(self.alpha), *np.zeros((2, DRAWS))], 1).astype(np.float32)


class CutMix(Mixing):
    """Covers a rectangle by that of the partner; targets are mixed by its share of the area.

    Its sides are those of the picture times sqrt(1 - lambda), rounded down, and half of them
    lies, rounded down, on either side of (below(w1, height), below(w2, width)), as far as that is
    inside the picture. Source: Yun et al. 2019.
    """

    kind = "cutmix"

    def table(self, height: int, width: int) -> NDArray[np.float32]:
        root = np.sqrt(1.0 - betas(self.alpha))
        sides = np.floor(root * height), np.floor(root * width)
        return np.stack([np.ones(DRAWS), *sides], 1).astype(np.float32)


def betas(alpha: float) -> NDArray[np.float64]:
    """DRAWS values that are spread as Beta(alpha, alpha), in multiples of 2^-16: (DRAWS,).

    They are those of an exact formula of two uniform numbers (Devroye 1996, "Random variate
    generation in one line of code"), at the points of a lattice.
    """
    place = np.arange(DRAWS)
    u, v = (place + 0.5) / DRAWS, place * ((np.sqrt(5.0) - 1.0) / 2.0)
    cosine = np.cos(2.0 * np.pi * v)
    with np.errstate(over="ignore"):
        spread = np.expm1(-np.log(u) / alpha) * cosine**2
    away = np.copysign(1.0 / (2.0 * np.sqrt(1.0 + 1.0 / spread)), cosine)
    # Machines whose logarithms differ in the last bit agree on the multiples.
    return np.asarray(np.rint((0.5 + away) * 2.0**16) / 2.0**16)


@lru_cache(8)
def tables(mixes: tuple[Mixing, ...], height: int, width: int) -> NDArray[np.float32]:
    """Those of all, and last that of what stays as it is: (len(mixes) + 1, DRAWS, 3)."""
    plain = np.tile(np.array([1, 0, 0], np.float32), (DRAWS, 1))
    found = np.stack([*(each.table(height, width) for each in mixes), plain])
    found.flags.writeable = False
    return found


def last_words(mixes: Sequence[Mixing]) -> list[int]:
    """Of each mixing the largest w3 for which it, or one before it, is used."""
    ends = np.cumsum([each.probability for each in mixes])
    return [last_word(end) for end in ends.tolist()]


def last_word(probability: float) -> int:
    """The largest of the words that make up this share of all, at least one of them."""
    return min(max(round(probability * 2.0**32), 1), 2**32) - 1


def excess(mixes: Sequence[Mixing]) -> str:
    """Why so many pictures cannot be mixed, or ""."""
    total = sum(each.probability for each in mixes)
    # As decimal fractions add up: 0.7 + 0.2 + 0.1 are 1.
    if round(total, 9) <= 1.0:
        return ""
    kinds = " and ".join(f"'{each.kind}'" for each in mixes)
    return (
        f"the probabilities of {kinds} add up to {total:g}, more than 1; a picture is mixed once, "
        "so give each its share, such as probability: 0.5"
    )
