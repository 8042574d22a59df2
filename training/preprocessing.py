"""From bytes to the input of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.records import dataclass

Sums = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Preprocessing:
    """x = pixel * scale + shift, with one number per channel; pixels are 0 to 255, or float32."""

    scale: tuple[float, ...]
    shift: tuple[float, ...]

    @classmethod
    def standardize(
        cls, mean: Sequence[float], std: Sequence[float], unit: float = 255.0
    ) -> Preprocessing:
        """x = (pixel / unit - mean) / std."""
        scale = tuple(1.0 / (unit * s) for s in std)
        return cls(scale, tuple(-m / s for m, s in zip(mean, std, strict=True)))

    def mean_and_std(self, unit: float = 255.0) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The numbers that ``standardize`` makes it of."""
        mean = tuple(-shift / (unit * s) for s, shift in zip(self.scale, self.shift, strict=True))
        return mean, tuple(1.0 / (unit * s) for s in self.scale)

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """images: (..., C, H, W) -> float32 of the same shape."""
        scale, shift = (np.array(v, np.float32)[:, None, None] for v in (self.scale, self.shift))
        return np.asarray(images.astype(np.float32) * scale + shift)


@dataclass(frozen=True)
class Prepared:
    """A lazily preprocessed selection of pictures: images[rows] (C, H, W) float32.

    ``summed``: see ``patch_sums``.
    """

    images: NDArray[Any]
    rows: NDArray[np.int32]
    preprocessing: Preprocessing
    summed: Callable[[tuple[int, int]], Sums | None] = lambda window: None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def scale(self) -> tuple[float, ...]:
        return self.preprocessing.scale

    @property
    def shift(self) -> tuple[float, ...]:
        return self.preprocessing.shift

    def pixels(self, rows: slice, /) -> NDArray[Any]:
        """images[rows] as they are."""
        return np.asarray(self.images[self.rows[rows]])

    def patch_sums(self, window: tuple[int, int], /) -> Sums | None:
        """``Executable.patch_sums`` of all of them; None where the host adds them up."""
        return self.summed(window)

    def __getitem__(self, rows: slice, /) -> NDArray[np.float32]:
        return self.preprocessing(self.pixels(rows))
