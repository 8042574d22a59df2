"""What ``predict`` makes of pictures that are harder than a digit on a blank page, or no digit.

    python3 benchmarks/odd_pictures.py --run runs/lenet --data-dir ~/data --keep /tmp/odd

``ruled`` and ``squared`` are photographs, made as those of pictures.py, of a digit of MNIST's test
set on paper with lines: lines 6 to 12 to the digit's height, or squares, in blue, grey or red, some
with a margin; the digit stands on a line or anywhere. ``sloping`` is ruled paper whose lines are
nearly as dark as the ink, not blurred or smoothed, and 1 to 3 degrees askew. They should be
answered, and rightly.

``several`` are pages with two to four digits in a row, apart or touching, some in two rows,
``letters`` capital and small letters that no digit looks like, in eight typefaces, ``houses`` line
drawings of a house. They should not be answered plainly. ``lookalikes`` are letters such as O, l, S
and B, which cannot be told from digits. ``mnist`` are real digits, which should be answered.
Everything follows from --seed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from pictures import Digit, Plane, Rng, _cloud, _light, _outline, _sheet, mnist
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Digits = NDArray[np.uint8]
LETTERS = "ACEFHKLMNPRTUVWXYadefhkmnrtwx"
ALIKE = "OIlSZBDGJbgqosz"
FACES = [f"DejaVu{kind}{style}.ttf" for kind in ("Sans", "Serif") for style in ("", "-Bold")]
FACES += [f"DejaVuSans{kind}.ttf" for kind in ("-Oblique", "Mono", "Mono-Oblique")]
FACES += ["DejaVuSerif-Italic.ttf"]


def ruled(digits: Digits, rng: Rng, stem: Path, number: int) -> Path:
    return _on_lines(digits[0], rng, stem, squares=False)


def squared(digits: Digits, rng: Rng, stem: Path, number: int) -> Path:
    return _on_lines(digits[0], rng, stem, squares=True)


def sloping(digits: Digits, rng: Rng, stem: Path, number: int) -> Path:
    return _on_lines(digits[0], rng, stem, squares=False, sharp=True)


def several(digits: Digits, rng: Rng, stem: Path, number: int) -> Path:
    """Two to four digits on a clean page, from well apart to touching; every fifth in two rows."""
    side = int(rng.integers(60, 200))
    count = int(rng.integers(2, 5))
    rows = 2 if number % 5 == 4 else 1
    # The digits of MNIST have a margin of their own, a quarter of the side or more.
    step = side * rng.uniform(0.6, 1.0)
    page = np.zeros((int(side * (1.0 + 0.9 * (rows - 1))), int(step * (count - 1)) + side))
    for i in range(count):
        for row in range(rows):
            ink = _outline(digits[i + row], side)
            top, left = int(0.9 * side * row), int(step * i)
            part = page[top : top + side, left : left + side]
            np.maximum(part, ink, out=part)
    margin = int(side * rng.uniform(0.2, 0.8))
    return _saved(np.pad(page, margin), stem, number)


def letter(digits: Digits, rng: Rng, stem: Path, number: int) -> Path:
    return _printed(LETTERS, rng, stem, number)


def lookalike(digits: Digits, rng: Rng, stem: Path, number: int) -> Path:
    return _printed(ALIKE, rng, stem, number)


def _printed(letters: str, rng: Rng, stem: Path, number: int) -> Path:
    from matplotlib import get_data_path

    face = Path(get_data_path()) / "fonts" / "ttf" / FACES[number % len(FACES)]
    size = int(rng.integers(60, 260))
    font = ImageFont.truetype(str(face), size)
    canvas = Image.new("L", (2 * size, 2 * size))
    draw = ImageDraw.Draw(canvas)
    draw.text((size, size), letters[number % len(letters)], fill=255, font=font, anchor="mm")
    turned = canvas.rotate(rng.uniform(-8, 8), Image.Resampling.BICUBIC)
    return _saved(np.asarray(turned, np.float64) / 255.0, stem, number)


def house(digits: Digits, rng: Rng, stem: Path, number: int) -> Path:
    """Walls, a roof, a door, windows, often a chimney."""
    size = int(rng.integers(120, 300))
    canvas = Image.new("L", (2 * size, 2 * size))
    draw = ImageDraw.Draw(canvas)
    pen = max(round(size * rng.uniform(0.03, 0.09)), 2)
    left, right = size * (1 - rng.uniform(0.35, 0.6)), size * (1 + rng.uniform(0.35, 0.6))
    eaves, ground = size * rng.uniform(0.8, 1.1), size * rng.uniform(1.4, 1.7)
    middle, ridge = size * rng.uniform(0.85, 1.15), size * rng.uniform(0.3, 0.6)
    draw.rectangle((left, eaves, right, ground), outline=255, width=pen)
    over = size * rng.uniform(0, 0.12)
    roof = [(left - over, eaves), (middle, ridge), (right + over, eaves), (left - over, eaves)]
    draw.line(roof, fill=255, width=pen, joint="curve")
    door = left + (right - left) * rng.uniform(0.1, 0.6)
    wide = (right - left) * 0.22
    draw.rectangle((door, ground - wide * 1.8, door + wide, ground), outline=255, width=pen)
    for share in (0.08, 0.7)[: int(rng.integers(0, 3))]:
        x, y = left + (right - left) * share, eaves + (ground - eaves) * 0.2
        draw.rectangle((x, y, x + wide, y + wide), outline=255, width=max(pen // 2, 1))
    if rng.random() < 0.5:
        x = (middle + right) / 2
        draw.line([(x, eaves - size * 0.2), (x, ridge)], fill=255, width=2 * pen)
    return _saved(np.asarray(canvas, np.float64) / 255.0, stem, number)


KINDS: dict[str, Callable[[Digits, Rng, Path, int], Path]] = {
    "mnist": lambda digits, rng, stem, number: mnist(digits[0], rng, stem, number),
    "ruled": ruled,
    "squared": squared,
    "sloping": sloping,
    "several": several,
    "letters": letter,
    "lookalikes": lookalike,
    "houses": house,
}
COUNTS = {"mnist": 1000, "ruled": 200, "squared": 200, "sloping": 200}
COUNTS |= {"several": 80, "letters": 60, "lookalikes": 60, "houses": 60}
NO_DIGIT = ("several", "letters", "houses")


def _saved(ink: Plane, stem: Path, number: int) -> Path:
    """A clean page: dark on light or light on dark, PNG or JPEG."""
    grey = np.clip(ink * 255, 0, 255).astype(np.uint8)
    grey = 255 - grey if number % 2 else grey
    path = stem.with_suffix(".jpg" if number // 2 % 2 else ".png")
    Image.fromarray(grey).save(path)
    return path


def _on_lines(digit: Digit, rng: Rng, stem: Path, squares: bool, sharp: bool = False) -> Path:
    """A photograph of a digit on lined paper: pen or pencil, uneven light, blur, noise, JPEG.

    sharp: dark lines, 1 to 3 degrees askew, and hardly a blur.
    """
    side = int(rng.integers(120, 420))
    height, width = (int(side * rng.uniform(1.3, 3.0)) for _ in range(2))
    canvas = Image.new("L", (width, height))
    where = int(rng.integers(width - side + 1)), int(rng.integers(height - side + 1))
    canvas.paste(Image.fromarray((_outline(digit, side) * 255).astype(np.uint8)), where)
    lines = Image.new("L", (2 * width, 2 * height))
    draw = ImageDraw.Draw(lines)
    # The digit's own height is about 20 of its 28 pixels.
    apart = side * 20 / 28 / (rng.uniform(1, 4) if squares else rng.uniform(0.8, 2.0))
    pen = max(round(apart * rng.uniform(0.03, 0.07)), 1)
    for y in np.arange(rng.uniform(0, apart), 2 * height, apart):
        draw.line([(0, y), (2 * width, y)], fill=255, width=pen)
    if squares:
        for x in np.arange(rng.uniform(0, apart), 2 * width, apart):
            draw.line([(x, 0), (x, 2 * height)], fill=255, width=pen)
    elif rng.random() < 0.3:
        x = width * rng.uniform(0.5, 0.8)
        draw.line([(x, 0), (x, 2 * height)], fill=255, width=pen)
    angle = rng.uniform(1, 3) * rng.choice([-1, 1]) if sharp else rng.uniform(-8, 8)
    how = Image.Resampling.NEAREST if sharp else Image.Resampling.BICUBIC
    turned = lines.rotate(angle, how)
    corner = width // 2, height // 2
    turned = turned.crop((*corner, corner[0] + width, corner[1] + height))
    canvas = canvas.rotate(angle + rng.uniform(-4, 4), Image.Resampling.BICUBIC)
    ink, ruling = (np.asarray(each, np.float64) / 255.0 for each in (canvas, turned))

    pencil = rng.random() < 0.3
    strength = rng.uniform(0.4, 0.6) if pencil else rng.uniform(0.6, 0.92)
    if pencil:
        ink = ink * np.clip(rng.normal(0.9, 0.2, ink.shape), 0.3, 1.1)
    colour = [(0.45, 0.25, 0.08), (0.3, 0.3, 0.3), (0.1, 0.35, 0.35)][int(rng.integers(3))]
    faint = rng.uniform(0.5, 1.0) * np.array(colour)
    if sharp:
        faint = rng.uniform(0.6, 0.92) * np.array(colour) / max(colour)
    paper = rng.uniform(150, 235) * (1 + 0.02 * _cloud(height, width, rng))
    light = (paper * _light(height, width, rng))[..., None]
    seen = light * (1 - ruling[..., None] * faint) * (1 - strength * ink[..., None])
    soft = Image.fromarray(np.clip(seen, 0, 255).astype(np.uint8))
    if not sharp:
        soft = soft.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.5)))
    noise = rng.normal(0, 1.0 if sharp else rng.uniform(1, 6), (height, width, 1))
    final = np.clip(np.asarray(soft) + noise, 0, 255).astype(np.uint8)
    path = stem.with_suffix(".jpg")
    Image.fromarray(final).save(path, quality=int(rng.integers(60, 93)))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()

    import dnnstack
    from dnnstack.datasets import data_root, load

    model = dnnstack.load(options.run, device=options.device, threads=options.threads)
    data = load("mnist", "test", root=data_root(options.data_dir, None))
    index = np.random.default_rng(options.seed).permutation(len(data))
    figures = {}
    with tempfile.TemporaryDirectory() as temporary:
        for kind in options.kinds:
            folder = (options.keep or Path(temporary)) / kind
            folder.mkdir(parents=True, exist_ok=True)
            paths, labels = [], []
            for number in range(COUNTS[kind]):
                rng = np.random.default_rng([options.seed, number])
                chosen = index[[(5 * number + i) % len(index) for i in range(5)]]
                label = int(data.labels[chosen[0]])
                stem = folder / f"{number:04d}-{label}"
                paths.append(KINDS[kind](data.images[chosen, 0], rng, stem, number))
                labels.append(label)
            found = {"count": len(paths), "plain": 0, "right": 0, "not sure": 0, "refused": 0}
            shown = []
            answers = model.predict_each(paths, top=1)
            for path, label, answer in zip(paths, labels, answers, strict=True):
                seen, text = np.zeros((28, 28), np.uint8), f"{path.name}: refused"
                if isinstance(answer, Exception):
                    found["refused"] += 1
                else:
                    sure = getattr(answer, "sure", True)
                    found["plain" if sure else "not sure"] += 1
                    found["right"] += sure and answer.best.index == label
                    seen = answer.picture.image[0]
                    text = f"{path.name}: {answer.best.label} {answer.best.probability:.0%}"
                    if sure == (kind in NO_DIGIT) or answer.best.index != label:
                        shown.append((path, seen, text + ("" if sure else " not sure")))
                    continue
                shown.append((path, seen, text))
            figures[kind] = found
            print(f"{kind:<8}", ", ".join(f"{name} {value}" for name, value in found.items()))
            if options.keep:
                _sheet(options.keep, shown[:120], kind)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
