"""Euclidean radial basis function units with fixed centres: the output layer of LeNet-5."""

from __future__ import annotations

from ..common.errors import ShapeError
from ..graph.ops import Rbf, RbfBackward
from .layer import SingleLayer

DIGITS = """
..###.. ...#... .#####. .#####. .....#. ####### ..####. ####### .#####. .#####.
.#...#. ..##... #.....# #.....# ....##. #...... .#..... ......# #.....# #.....#
#.....# .#.#... ......# ......# ...#.#. #...... #...... .....#. #.....# #.....#
#.....# ...#... ......# ......# ..#..#. #...... #...... .....#. #.....# #.....#
#.....# ...#... .....#. ..####. .#...#. #.####. #.###.. ....#.. .#...#. #.....#
#.....# ...#... ....#.. ......# #....#. ##....# ##...#. ....#.. ..###.. .######
#.....# ...#... ...#... ......# ####### ......# #.....# ...#... .#...#. ......#
#.....# ...#... ..#.... ......# .....#. ......# #.....# ...#... #.....# ......#
#.....# ...#... .#..... ......# .....#. ......# #.....# ..#.... #.....# ......#
#.....# ...#... #...... #.....# .....#. #.....# #.....# ..#.... #.....# .....#.
.#...#. ...#... #...... #.....# .....#. .#...#. .#...#. .#..... #.....# ....#..
..###.. ..###.. ####### .#####. .....#. ..###.. ..###.. .#..... .#####. .###...
"""
"""The digits 0 to 9 side by side, each 7 wide and 12 high."""


def bitmaps(picture: str) -> tuple[tuple[float, ...], ...]:
    """The bitmaps of a picture, which are side by side, as numbers row by row: ink 1, paper -1."""
    lines = [line.split() for line in picture.split("\n") if line]
    return tuple(
        tuple(1.0 if ink == "#" else -1.0 for line in lines for ink in line[k])
        for k in range(len(lines[0]))
    )


class RbfLayer(SingleLayer):
    """Minus the squared distance to a fixed 7x12 bitmap of each digit; expects 84 inputs.

    score[n,k] = -sum over i of (x[n,i] - c[k,i])^2, c the bitmap of digit k in +1 and -1: LeCun et
    al. 1998, eq. 7 with the opposite sign, so that the largest score is the nearest digit. The
    drawings are ours. x: (N, 84), score: (N, 10).
    """

    kind = "rbf"
    op = Rbf
    backward_op = RbfBackward
    keeps = ("x",)

    def build(self) -> None:
        self.centres = bitmaps(DIGITS)
        inputs = len(self.centres[0])
        if self.input_shape != (inputs,):
            raise ShapeError(
                f"expects {inputs} inputs, one for each pixel of a bitmap of 7x12, got "
                f"{self.input_shape}; put 'dense: {{units: {inputs}}}' before it"
            )
        self.output_shape = (len(self.centres),)
