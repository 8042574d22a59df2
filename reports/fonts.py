"""The font of pictures, and names that can be drawn with it."""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.cells import unicode_cells
from ..common.printable import escaped, printable
from ..common.text import cut, listed

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont

_LOG = logging.getLogger("dnnstack.reports")
_LISTED = 3
# No character has this number, so it is drawn as one that the font lacks.
_MISSING = "\U0010ffff"


@cache
def font(size: int) -> FreeTypeFont | ImageFont:
    """DejaVu Sans, which comes with matplotlib and has most alphabets, else Pillow's own."""
    from PIL import ImageFont

    package = find_spec("matplotlib")
    for folder in (package.submodule_search_locations or ()) if package else ():
        path = Path(folder, "mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
        if path.is_file():
            return ImageFont.truetype(path, size)
    return ImageFont.load_default(size)


@cache
def drawable(names: tuple[str, ...], longest: int) -> list[str]:
    """The names, printable and at most ``longest`` characters long.

    A name with characters that the font lacks becomes ``class N``, and a warning, given once, lists
    such names.
    """
    lacking = [name for name in names if not all(map(_has, {*printable(name)}))]
    if lacking:
        _LOG.warning(
            "the font of pictures lacks characters of %s; these classes have their numbers instead",
            listed([repr(name) for name in lacking], _LISTED),
        )
    return [
        f"class {number}" if name in lacking else cut(name, longest, unicode_cells)
        for number, name in enumerate(names)
    ]


def drawable_signs(text: str) -> list[str]:
    """The text made printable, in pieces that are to be kept whole.

    A character that the font lacks is written as in a string of Python, such as ``\\u7d2b``.
    """
    return [sign if _has(sign) else escaped(sign) for sign in printable(text)]


def written(text: str) -> str:
    """The same as one text."""
    return "".join(drawable_signs(text))


def _has(character: str) -> bool:
    """Whether the font has a glyph for the character."""
    return character.isascii() or _shape(character) != _shape(_MISSING)


def _shape(character: str) -> tuple[tuple[int, int], bytes]:
    mask = font(16).getmask(character)
    return mask.size, bytes(mask)
