"""Any picture file -> the input of a network, for ``predict``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from .centring import FIELD
from .digit_pictures import is_prepared, prepare_digit

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
_MAX_PIXELS = 64_000_000
_ORIENTATION = 0x0112


@dataclass(frozen=True)
class Picture:
    """A network's input and what was done to get it. image: (C, H, W) uint8."""

    image: NDArray[np.uint8]
    steps: tuple[str, ...]


def read_picture(path: Path | str, shape: tuple[int, int, int]) -> Picture:
    """One picture file in a network's input shape (C, H, W), C being 1 (grey) or 3 (RGB).

    For a digit network, (1, 28, 28), the digit is brought to MNIST's format, light on dark, unless
    the picture has it already; otherwise the picture's middle is scaled to H x W. Raises
    DatasetError, naming the file, where it is unreadable, not a picture, too large or blank.
    """
    file = Path(path)
    channels, height, width = shape
    if channels not in (1, 3):
        raise DatasetError(
            f"{file}: the network takes {channels} channels; pictures give 1 (grey) or 3 (RGB)"
        )
    steps: list[str] = []
    image = _upright_opaque(_open(file), file, steps)
    mode = "L" if channels == 1 else "RGB"
    if image.mode != mode:
        image = image.convert(mode)
        steps.append("grey" if mode == "L" else "rgb")
    if shape == (1, FIELD, FIELD):
        grey = np.asarray(image)
        if is_prepared(grey):
            return Picture(grey[None].copy(), tuple(steps))
        digit = prepare_digit(grey, str(file), steps)
        return Picture(digit[None], tuple(steps))
    return Picture(_scaled(image, height, width, steps), tuple(steps))


def _open(path: Path) -> PilImage:
    """The decoded first frame; its size is checked before anything is decoded."""
    from PIL import Image, UnidentifiedImageError

    if not path.exists():
        raise DatasetError(f"{path}: no such file")
    if not path.is_file():
        raise DatasetError(f"{path}: is not a file; name the pictures themselves")
    try:
        with warnings.catch_warnings(), open(path, "rb") as file:
            # Pillow's own size warning says less than the check below.
            warnings.simplefilter("ignore")
            image = Image.open(file, formats=_FORMATS)
            if image.width * image.height > _MAX_PIXELS:
                raise DatasetError(
                    f"{path}: {image.width} x {image.height} pixels are more than the "
                    f"{_MAX_PIXELS // 1_000_000} million that are read; scale it down first"
                )
            image.load()
            return image
    except DatasetError:
        raise
    except UnidentifiedImageError:
        raise DatasetError(
            f"{path}: is not a picture of a known format ({', '.join(_FORMATS)})"
        ) from None
    except Image.DecompressionBombError:
        raise DatasetError(f"{path}: has far too many pixels; scale it down first") from None
    except Exception as error:
        # Decoders of damaged files raise OSError, SyntaxError, ValueError, struct.error and more.
        raise DatasetError(f"{path}: the picture is damaged or cannot be read ({error})") from None


def _upright_opaque(image: PilImage, path: Path, steps: list[str]) -> PilImage:
    """Turned as its EXIF orientation says, 8 bits a channel, transparency on white paper."""
    from PIL import Image, ImageOps

    if image.getexif().get(_ORIENTATION, 1) not in (0, 1):
        image = ImageOps.exif_transpose(image)
        steps.append("exif_rotation")
    if image.mode.startswith("I"):
        wide = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        image = Image.fromarray((wide >> 8).astype(np.uint8))
        steps.append("16_to_8_bits")
    elif image.mode == "F":
        raise DatasetError(f"{path}: has floating-point pixels; save it with 8 bits a channel")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(paper, image).convert("RGB")
        steps.append("transparency_on_white")
    return image


def _scaled(image: PilImage, height: int, width: int, steps: list[str]) -> NDArray[np.uint8]:
    """The largest middle part of the right proportions, scaled: (C, height, width)."""
    from PIL import Image, ImageOps

    if image.size != (width, height):
        if image.width * height != image.height * width:
            steps.append("centre_crop")
        image = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        steps.append("scale")
    pixels = np.asarray(image)
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(planes)
