"""The colours that all plots and sheets share; their font is in ``fonts``."""

from __future__ import annotations

Colour = tuple[int, int, int]

PAPER: Colour = (255, 255, 255)
INK: Colour = (30, 30, 30)
GREY: Colour = (110, 110, 110)
LINE: Colour = (225, 225, 225)
BLUE: Colour = (76, 120, 168)
RED: Colour = (200, 40, 40)
GREEN: Colour = (46, 125, 80)
ORANGE: Colour = (224, 138, 0)
PURPLE: Colour = (122, 81, 149)
# Of a line or point that is there for comparison.
PALE: Colour = (184, 184, 184)
FONT = "DejaVu Sans"


def named(colour: Colour) -> str:
    """``#1e1e1e``, as matplotlib writes it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def mixed(colour: Colour, share: float) -> Colour:
    """The colour mixed with white; share: that of the colour."""
    red, green, blue = (round(255 + (part - 255) * min(share, 1.0)) for part in colour)
    return red, green, blue
