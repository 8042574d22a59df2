"""Pages with a digit, made with NumPy alone, and what is stored of those that are read.

    python -m tests.datasets.pages

stores them anew, after a deliberate change.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from dnnstack.common.errors import DatasetError
from dnnstack.common.random import key
from dnnstack.datasets.digit_pictures import prepare_digit
from dnnstack.datasets.one_digit import doubt
from dnnstack.datasets.strokes_draw import draw
from numpy.typing import NDArray

STORED = Path(__file__).with_name("pages.txt")
Plane = NDArray[np.float64]
# Size of the page, times a digit's pixel is enlarged; how dark ink, lines, grain and a shadow are;
# whether there is a table around the sheet, or dust on it and a dark edge.
_PAGES = [
    (side, times, ink, lines, grain, shadow, ink == 120, ink == 140)
    for side, times in ((90, 2), (260, 6), (900, 20))
    for ink, lines, grain, shadow in (
        (230, 0, 0, 0.0),
        (-200, 0, 0, 0.0),
        (150, 0, 4, 0.5),
        (60, 0, 5, 0.2),
        (150, 60, 3, 0.3),
        (150, 9, 1, 0.3),
        (120, 0, 3, 0.2),
        (140, 0, 3, 0.3),
        (0, 0, 5, 0.3),
    )
]


def drawn(number: int) -> NDArray[np.uint8]:
    """The digit on a page: (28, 28)."""
    return draw(key(3, "strokes", "test"), number, number + 1)[0].reshape(28, 28)


def page(number: int) -> NDArray[np.uint8]:
    side, times, ink, lines, grain, shadow, table, dust = _PAGES[number]
    random = np.random.default_rng(number)
    y, x = np.mgrid[0:side, 0:side].astype(float)
    left, top = random.uniform(0.2, 0.5, 2) * (side - 28 * times)
    strength = _smooth(drawn(number) / 255.0, (y - top) / times, (x - left) / times)
    turned = y + random.uniform(-0.1, 0.1) * x
    ruled = (turned % (side / 6) < side / 120) | ((x + 0.03 * y) % (side / 4) < side / 200)
    light = 1 - shadow * (x + y * y / side) / (2 * side)
    found = (240 - 200 * (ink < 0) - ink * strength - lines * ruled * (strength < 0.5)) * light
    if dust:
        found[:, : side // 40] = 20
        found[-side // 20 : -side // 30, -side // 20 : -side // 30] = 20
    if table:
        found = np.where((abs(y / side - 0.5) < 0.38) & (abs(x / side - 0.5) < 0.33), found, 30)
    noisy = found + grain * random.normal(size=found.shape)
    return noisy.clip(0, 255).astype(np.uint8)


def _smooth(values: Plane, y: Plane, x: Plane) -> Plane:
    """Linear between the pixels, 0 outside of them."""
    padded = np.pad(values, 2)
    y, x = (np.clip(each, -2, 28) + 2 for each in (y, x))
    down, right = y.astype(int), x.astype(int)
    y, x = y - down, x - right
    upper = padded[down, right] * (1 - x) + padded[down, right + 1] * x
    lower = padded[down + 1, right] * (1 - x) + padded[down + 1, right + 1] * x
    mixed: Plane = upper * (1 - y) + lower * y
    return mixed


def found(number: int) -> tuple[str, NDArray[np.uint8]]:
    """What is said of a page, and the digit."""
    steps: list[str] = []
    try:
        digit = prepare_digit(page(number), "page", steps)
    except DatasetError as error:
        return str(error), np.zeros((28, 28), np.uint8)
    return f"{' '.join(steps)}; {doubt(digit) or 'no doubt'}", digit


def stored() -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The same as it was, in 16 levels."""
    for block in STORED.read_text("utf-8").split("\n\n"):
        said, *rows = block.splitlines()
        yield said, np.array([[int(level, 16) for level in row] for row in rows])


def likeness(one: NDArray[np.uint8], two: NDArray[np.uint8]) -> float:
    """The cosine between two pictures, 1 where they are alike.

    The best of all shifts by a pixel: centring rounds to whole ones.
    """
    a, b = (each.reshape(28, 28).astype(float) for each in (one, two))
    size = np.sqrt((a * a).sum() * (b * b).sum())
    moved = (np.roll(b, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1))
    return max(float((a * other).sum() / size) for other in moved)


def _main() -> None:
    blocks = []
    for number in range(len(_PAGES)):
        said, digit = found(number)
        rows = ["".join(f"{level:x}" for level in row) for row in digit // 16]
        blocks.append("\n".join([said, *rows]))
    STORED.write_text("\n\n".join(blocks) + "\n", "utf-8")


if __name__ == "__main__":
    _main()
