"""Picture files: finding them by names, folders and patterns, and decoding one upright."""

from __future__ import annotations

import glob
import io
import logging
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.native import set_no_handlers
from .integer_pixels import Reading, fewest_bits, lower_bytes
from .picture_kinds import (
    HEAD,
    HEIC,
    NO_PICTURE,
    is_passed_over,
    is_read,
    kind_of,
    of_head,
    passed_over_text,
)

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_LOG = logging.getLogger("dnnstack.datasets")
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
_MAX_PIXELS = 64_000_000
# Greater orientations exchange width and height.
_ORIENTATION, _TURNED = 0x0112, 4
# By rounding, floating-point pixels may exceed black and white by this share of white.
_SLACK = 1e-3
# How the kinds of PPM that are written in decimal digits begin; the most comments of one, because
# Pillow's time grows with the square of their number.
_PLAIN = (b"P1", b"P2", b"P3")
_MOST_COMMENTS = 1000
# Rows of a picture whose pixels are converted at a time.
_STRIP = 256


def find_pictures(names: Iterable[str | Path]) -> Iterator[Path | DatasetError]:
    """The picture files that each name stands for, or an error if there are none.

    A file stands for itself, whatever it is. A folder stands for every picture below it, sorted,
    without hidden ones. A name that does not exist and contains ``*``,
    ``?`` or ``[`` is a pattern (``**``: folders at any depth) and stands for its matches, sorted.
    """
    for name in map(str, names):
        if not name:
            # As the unset variable of a script; a path of it would be the working directory.
            yield DatasetError("the path of a picture is empty")
            continue
        if os.path.lexists(name) or not any(sign in name for sign in "*?["):
            yield from _below(Path(name))
            continue
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            yield DatasetError(f"{name}: no file matches this pattern")
        # "**" matches a folder and also what lies in it.
        seen: set[str] = set()
        for found in (found for match in matches for found in _below(Path(match))):
            if str(found) not in seen:
                seen.add(str(found))
                yield found


def _below(path: Path) -> Iterator[Path | DatasetError]:
    if not path.is_dir():
        yield path
        return
    errors: list[OSError] = []
    count = 0
    others: Counter[str] = Counter()
    for folder, folders, files in os.walk(path, onerror=errors.append):
        folders[:] = sorted(name for name in folders if not is_passed_over(name, others))
        for name in sorted(name for name in files if not name.startswith(".")):
            if is_read(kind_of(Path(folder) / name), name, others):
                count += 1
                yield Path(folder) / name
    for error in errors:
        yield DatasetError(f"{error.filename}: cannot be read: {error.strerror}")
    told = passed_over_text(others)
    if count == 0 and not errors:
        yield DatasetError(f"{path}: {NO_PICTURE}; {told}".rstrip("; "))
    elif told:
        _LOG.warning("%s: %s", path, told)


def open_picture(
    path: Path, steps: list[str], reading: Reading | None = None, data: bytes | None = None
) -> PilImage:
    """The first frame, decoded and converted to 8 bits: mode L or RGB, upright, on white.

    Its size is checked before anything is decoded. What was done is appended to ``steps``, what was
    found is noted in ``reading``, which says the depth of integer pixels, by default 16 bits.
    ``data``: the bytes of the file, which is not read then. Raises DatasetError, naming the file.
    """
    from PIL import Image, UnidentifiedImageError

    if data is None and not path.exists():
        raise DatasetError(f"{path}: no such file")
    if data is None and not path.is_file():
        raise DatasetError(f"{path}: is not a file; name the pictures themselves")
    try:
        with (
            warnings.catch_warnings(),
            open(path, "rb") if data is None else io.BufferedReader(io.BytesIO(data)) as file,
        ):
            # Pillow's own size warning is less helpful than the check below.
            warnings.simplefilter("ignore")
            if not file.peek(1):
                raise DatasetError(f"{path}: is empty, 0 bytes")
            if file.peek(2)[:2] in _PLAIN:
                _check_comments(path, file)
            reading = reading or Reading()
            reading.heic = of_head(file.peek(HEAD)[:HEAD]) == HEIC
            if reading.heic and not heic_version():
                raise DatasetError(f"{path}: is one of the {HEIC}")
            image = Image.open(file, formats=("HEIF",) if reading.heic else FORMATS)
            return upright_picture(image, path, steps, reading)
    except DatasetError:
        raise
    except UnidentifiedImageError:
        raise DatasetError(
            f"{path}: is not a picture of a known format ({', '.join(FORMATS)})"
        ) from None
    except Image.DecompressionBombError:
        raise DatasetError(f"{path}: has far too many pixels; scale it down first") from None
    except PermissionError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror}") from None
    except Exception as error:
        # Decoders of damaged files raise OSError, SyntaxError, ValueError, struct.error and more.
        raise DatasetError(f"{path}: the picture is damaged or cannot be read ({error})") from None


def upright_picture(
    image: PilImage, name: Path | str, steps: list[str], reading: Reading
) -> PilImage:
    """The same of a picture of Pillow's, which ``name`` stands for in messages.

    Raises DatasetError, and what Pillow raises for damaged data that was not decoded yet.
    """
    if image.width * image.height > _MAX_PIXELS:
        raise DatasetError(
            f"{name}: {image.width} x {image.height} pixels are more than the "
            f"limit of {_MAX_PIXELS // 1_000_000} million; scale it down first"
        )
    if image.format == "TIFF":
        _silence_libtiff()
    if reading.least is not None:
        turned = image.getexif().get(_ORIENTATION, 1) > _TURNED
        own = image.size
        image.draft(None, reading.least if turned else reading.least[::-1])
        steps += ["draft"] * (image.size != own)
    # At 16 bits the upper bytes, which Pillow decodes, are all.
    lower = lower_bytes(image) if reading.bits != 16 else None
    image.load()
    lower = lower and _upright(lower, [])
    return _opaque(_eight_bits(_upright(image, steps), lower, name, steps, reading), steps)


def _check_comments(path: Path, file: BinaryIO) -> None:
    count = sum(piece.count(b"#") for piece in iter(partial(file.read, 1 << 16), b""))
    if count > _MOST_COMMENTS:
        raise DatasetError(
            f"{path}: has {count} comments, more than {_MOST_COMMENTS}; remove them first"
        )
    file.seek(0)


def heic_version() -> str:
    """The version of the reader of HEIC, which Pillow knows after this; "" without it."""
    try:
        import pillow_heif
    except ImportError:
        return ""
    pillow_heif.register_heif_opener(thumbnails=False)
    return str(pillow_heif.__version__)


@cache
def _silence_libtiff() -> None:
    """Keep libtiff from printing what is wrong with a file; Pillow raises an error for it anyway.

    The handlers are those of the library that Pillow itself is linked with. Where its functions
    cannot be found by name, it goes on printing.
    """
    from PIL import _imaging

    set_no_handlers(_imaging.__file__, ("TIFFSetErrorHandler", "TIFFSetWarningHandler"))


def _upright(image: PilImage, steps: list[str]) -> PilImage:
    from PIL import ImageOps

    if image.getexif().get(_ORIENTATION, 1) in (0, 1):
        return image
    steps.append("exif_rotation")
    return ImageOps.exif_transpose(image)


def _eight_bits(
    image: PilImage, lower: PilImage | None, path: Path | str, steps: list[str], reading: Reading
) -> PilImage:
    """Convert to 8 bits: integers from 0 to 65535, in colours with ``lower_bytes``, by the upper 8
    of the bits that ``reading`` says; floats from 0 to 1 or 0 to 255.

    No picture is stretched to its own extremes, so that those of one set stay comparable. Raises
    DatasetError for other values.
    """
    from PIL import Image

    if image.mode.startswith("I") or lower is not None:
        wide = np.asarray(image)
        if lower is not None:
            wide = wide[:, :, :3].astype(np.uint16) << 8 | np.asarray(lower)
        low, high = int(wide.min()), int(wide.max())
        if low < 0 or high > 65535:
            raise DatasetError(
                f"{path}: has pixels from {low} to {high}; integers must be from 0 to 65535: "
                "scale them first"
            )
        reading.largest = high
        bits = reading.bits or fewest_bits(high)
        white = (1 << bits) - 1
        steps += [f"{bits}_to_8_bits" if bits > 8 else "as_8_bits", *["clip"] * (high > white)]
        found = _in_strips(wide, lambda strip: np.minimum(strip, white) >> (bits - 8))
        narrow = Image.fromarray(found)
        if image.mode == "RGBA":
            narrow.putalpha(image.getchannel("A"))
        return narrow
    if image.mode == "F":
        steps.append("float_to_8_bits")
        values = np.asarray(image)
        factor = 255.0 / _white(values, path)
        return Image.fromarray(
            _in_strips(values, lambda strip: np.rint(np.clip(strip * factor, 0.0, 255.0)))
        )
    if image.mode == "LAB":
        # Pillow does not convert it; the first band is lightness.
        steps.append("lightness_alone")
        return image.getchannel(0)
    return image


def _white(values: NDArray[Any], path: Path | str) -> float:
    """The value of white in floating-point pixels, 1 or 255. Raises DatasetError otherwise."""
    # If a value is NaN, so are the minimum and the maximum.
    low, high = float(values.min()), float(values.max())
    if not np.isfinite((low, high)).all():
        raise DatasetError(f"{path}: has pixels that are not finite numbers")
    for white in (1.0, 255.0):
        if low >= -_SLACK * white and high <= (1.0 + _SLACK) * white:
            return white
    raise DatasetError(
        f"{path}: has pixels from {low:g} to {high:g}; floating-point pixels must be from 0 to 1 "
        "or from 0 to 255: scale them first"
    )


def _in_strips(
    pixels: NDArray[Any], convert: Callable[[NDArray[Any]], NDArray[Any]]
) -> NDArray[np.uint8]:
    """Apply ``convert`` to some rows at a time: a whole picture of wide numbers would take eight
    times its bytes, more than once."""
    found = np.empty(pixels.shape, np.uint8)
    wide = np.float64 if pixels.dtype.kind == "f" else np.int64
    for top in range(0, len(pixels), _STRIP):
        found[top : top + _STRIP] = convert(pixels[top : top + _STRIP].astype(wide))
    return found


def _opaque(image: PilImage, steps: list[str]) -> PilImage:
    """Mode L or RGB, with transparent parts on white."""
    from PIL import Image

    if not image.has_transparency_data:
        return image.convert("L" if image.mode in ("1", "L") else "RGB")
    steps.append("transparency_on_white")
    image = image.convert("RGBA")
    paper = Image.new("RGB", image.size, (255, 255, 255))
    paper.paste(image, mask=image.getchannel("A"))
    return paper
