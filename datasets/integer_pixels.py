"""Integer pixels of more than 8 bits: how many of their bits say something, and those as 8 bits.

A file of 16 bits may hold the numbers of a camera of 12. Which number is white is seen only by the
largest one in a whole set of pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from ..common.records import dataclass
from ..common.text import listed

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

Depth: TypeAlias = Literal[8, 10, 12, 16]
_DEPTHS: tuple[Depth, ...] = get_args(Depth)
# What takes the lower bytes, where Pillow takes the upper ones.
_LOWER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
_COLOURED, _GREEN = ("RGB;16", "RGBA;16", "RGBX;16"), (0, 1, 0, 0) * 3


@dataclass
class Reading:
    """How a picture is to be opened, and what is found in it.

    bits: the depth of its integer pixels, None to go by its own largest value. largest: that value,
    -1 if its pixels are no integers of more than 8 bits. ``heic``: whether it is HEIC. least:
    (height, width) that a JPEG is to be decoded for, at the smallest of the scales 1, 1/2, 1/4 and
    1/8 that gives them; None for its own size.
    """

    bits: Depth | None = 16
    largest: int = -1
    heic: bool = False
    least: tuple[int, int] | None = None


def fewest_bits(largest: int) -> Depth:
    """The least depth that has this number, at most 65535."""
    return next(bits for bits in _DEPTHS if not largest >> bits)


def of_other_depth(readings: Sequence[Reading]) -> list[int]:
    """Those that went by their own largest value, but are to be read again by that of all."""
    own = [at for at, each in enumerate(readings) if each.bits is None and each.largest >= 0]
    bits = fewest_bits(max((readings[at].largest for at in own), default=0))
    other = [at for at in own if fewest_bits(readings[at].largest) != bits]
    for at in other:
        readings[at].bits = bits
    return other


def told_of(readings: Mapping[str, Reading], given: Depth | None) -> tuple[Depth | None, list[str]]:
    """The depth of a set's integer pixels, None without such, and what to tell of it."""
    found = {name: each.largest for name, each in readings.items() if each.largest >= 0}
    if not found:
        return given, []
    largest = max(found.values())
    bits = given or fewest_bits(largest)
    why = "as in training" if given else f"as their largest is {largest}"
    told = [f"{len(found)} pictures have integer pixels; {bits} bits are taken of them, {why}"]
    if over := [name for name, most in found.items() if most >> bits]:
        told.append(f"{len(over)} have larger integers, which become white: {listed(over, 3)}")
    return bits, told


def lower_bytes(image: PilImage) -> PilImage | None:
    """The lower bytes of colours of 16 bits, in RGB; Pillow decodes the upper ones.

    None for any other picture, and for one that was decoded before.
    """
    from PIL import Image

    tiles = getattr(image, "tile", ())
    args = tiles[0].args if tiles else ""
    raw = str(args if isinstance(args, str) else args[0])
    # Of grey with alpha, two bytes each, the lower one of grey is the second.
    grey = raw == "LA;16B"
    if not grey and raw[:-1] not in _COLOURED:
        return None
    lower = "RGBA" if grey else raw[:-1] + _LOWER[raw[-1]]
    file: Any = image.fp  # type: ignore[attr-defined]
    file.seek(0)
    other: Any = Image.open(file, formats=(image.format or "",))
    other.tile = [
        tile._replace(args=lower if isinstance(tile.args, str) else (lower, *tile.args[1:]))
        for tile in other.tile
    ]
    colours: PilImage = other.convert("RGB")
    return colours.convert("RGB", _GREEN) if grey else colours
