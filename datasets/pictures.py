"""Converts any picture file to the input of a network, for ``predict``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.records import dataclass
from .centring import FIELD
from .digit_pictures import is_prepared, prepare_digit
from .integer_pixels import Depth, Reading
from .picture_files import open_picture, upright_picture

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_LOG = logging.getLogger("dnnstack.datasets")


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes an input.

    ``digits``: a network with input (1, 28, 28) gets the digit on the page in MNIST's format.
    ``invert``: for such a digit, True means dark on light, False light on dark, None lets the
    border decide; any other picture is inverted if it is True. ``raw``: the whole picture is
    scaled, without locating or cropping a digit. ``bits``: the depth of integer pixels of more than
    8 bits, see ``Reading``. ``draft``: large JPEGs are decoded at a smaller scale.
    """

    digits: bool = True
    invert: bool | None = None
    raw: bool = False
    bits: Depth = 16
    draft: bool = False

    def locates(self, shape: tuple[int, ...]) -> bool:
        """Whether a digit is looked for on its page, for a network with this input."""
        return self.digits and shape == (1, FIELD, FIELD) and not self.raw


@dataclass(frozen=True)
class Picture:
    """A network's input, and the steps that produced it. image: (C, H, W) uint8."""

    image: NDArray[np.uint8]
    steps: tuple[str, ...]


def read_picture(
    path: Path | str,
    shape: tuple[int, int, int],
    preparation: Preparation | None = None,
    data: bytes | None = None,
) -> Picture:
    """One picture file in a network's input shape (C, H, W), C being 1 (grey) or 3 (RGB).

    A digit is converted to MNIST's format, light on dark, unless it has that format already; the
    middle of other pictures is scaled to H x W. ``data``: the bytes of the file, which is not read
    then. Raises DatasetError, naming the file, if it is unreadable, not a picture or too large, or
    if no digit is found on it.
    """
    file = Path(path)
    opened = partial(open_picture, file, data=data)
    return _prepared(opened, file, shape, preparation or Preparation())


def as_picture(
    image: PilImage, name: str, shape: tuple[int, int, int], preparation: Preparation
) -> Picture:
    """The same of a picture of Pillow's, which ``name`` stands for in messages."""
    return _prepared(partial(upright_picture, image, name), name, shape, preparation)


def _prepared(
    opened: Callable[[list[str], Reading], PilImage],
    file: Path | str,
    shape: tuple[int, int, int],
    how: Preparation,
) -> Picture:
    channels, height, width = shape
    if channels not in (1, 3):
        raise DatasetError(
            f"{file}: the network needs {channels} channels; pictures have 1 (grey) or 3 (RGB)"
        )
    steps: list[str] = []
    reading = Reading(how.bits, least=(height, width) if how.draft else None)
    image = in_channels(opened(steps, reading), channels, steps)
    if "clip" in steps:
        most, bits = reading.largest, how.bits
        _LOG.warning("%s: has integers up to %d; above %d bits, all are white", file, most, bits)
    if how.locates(shape):
        grey = np.asarray(image)
        if how.invert is not True and is_prepared(grey):
            return Picture(grey[None].copy(), tuple(steps))
        digit = prepare_digit(grey, str(file), steps, how.invert)
        return Picture(digit[None], tuple(steps))
    planes = scaled(image, height, width, how.raw, steps)
    if how.invert:
        steps.append("invert")
        planes = 255 - planes
    return Picture(planes, tuple(steps))


def in_channels(image: PilImage, channels: int, steps: list[str]) -> PilImage:
    """Grey for one channel, RGB for three."""
    mode, step = ("L", "grey") if channels == 1 else ("RGB", "rgb")
    if image.mode == mode:
        return image
    steps.append(step)
    return image.convert(mode)


def as_image(planes: NDArray[np.uint8]) -> PilImage:
    """(C, H, W) as a picture of Pillow's, grey or in colours."""
    from PIL import Image

    pixels = planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0)
    return Image.fromarray(np.ascontiguousarray(pixels))


def resized(
    images: NDArray[np.uint8], size: tuple[int, int], whole: bool = False
) -> NDArray[np.uint8]:
    """Each channel of (M, C, H, W), all of it or its middle, scaled to (height, width)."""
    planes = images.reshape(-1, 1, *images.shape[2:])
    found = [scaled(as_image(each), *size, whole, []) for each in planes]
    return np.concatenate(found).reshape(*images.shape[:2], *size)


def scaled(
    image: PilImage, height: int, width: int, whole: bool, steps: list[str]
) -> NDArray[np.uint8]:
    """Scale all of it, or the largest central part that fits: (C, height, width)."""
    from PIL import Image, ImageOps

    if image.size != (width, height):
        if whole or image.width * height == image.height * width:
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        else:
            steps.append("centre_crop")
            image = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        steps.append("scale")
    pixels = np.asarray(image)
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(planes)
