"""How many digits ``predict`` recognises in picture files made from MNIST's test set.

    python3 benchmarks/pictures.py --run runs/lenet --data-dir ~/data --keep /tmp/pictures

``pages`` are clean: a digit of the test set resized to 20 .. 300 pixels, somewhere on a larger
page, half of them dark on light, saved as PNG or JPEG in turn. ``photographs`` imitate a phone: the
digit in pen or pencil on paper that is not white, turned a little, in uneven light (a gradient, a
vignette, some with a soft shadow), blurred, noisy, saved as JPEG in colour. ``thin`` are
photographs whose strokes are first thinned to their middle lines and drawn anew with a finer pen,
``sheets`` photographs of a whole sheet of paper with the table around it. ``mnist`` are the same
digits unchanged, the most that can be had. Everything follows from --seed.

With --keep DIR the pictures stay there, with a contact sheet of each kind's mistakes: the page at
the left, what the network saw at the right.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# The idle workers of NumPy's OpenBLAS would slow everything down; it counts before the import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Rng = np.random.Generator
Digit = NDArray[np.uint8]
Plane = NDArray[np.float64]


def page(digit: Digit, rng: Rng, stem: Path, number: int) -> Path:
    """A clean page. digit: (28, 28), light on black."""
    side = int(rng.integers(20, 301))
    width, height = (int(side * rng.uniform(1.2, 3.0)) for _ in range(2))
    ink = Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)
    canvas = Image.new("L", (width, height))
    canvas.paste(ink, (int(rng.integers(width - side + 1)), int(rng.integers(height - side + 1))))
    if number % 2:
        canvas = Image.fromarray(255 - np.asarray(canvas))
    path = stem.with_suffix(".jpg" if number // 2 % 2 else ".png")
    canvas.save(path, **({"quality": int(rng.integers(60, 96))} if path.suffix == ".jpg" else {}))
    return path


def photograph(digit: Digit, rng: Rng, stem: Path, number: int) -> Path:
    """A photograph of a digit drawn with a pen as broad as MNIST's."""
    side = int(rng.integers(90, 420))
    return _photograph(_outline(digit, side), rng, stem)


def thin(digit: Digit, rng: Rng, stem: Path, number: int) -> Path:
    """A photograph of a digit drawn with a finer pen, 2 to 5 hundredths of its height."""
    side = int(rng.integers(150, 420))
    middle = _skeleton(_outline(digit, 112) > 0.5)
    line = Image.fromarray((middle * 255).astype(np.uint8)).resize((side, side))
    # Blurred and cut, the jagged line becomes a smooth one of the pen's width.
    pen = side * rng.uniform(0.02, 0.05)
    soft = np.asarray(line.filter(ImageFilter.GaussianBlur(side / 112)), np.float64)
    soft /= max(float(soft.max()), 1.0)
    core = Image.fromarray(((soft > 0.25) * 255).astype(np.uint8))
    wide = np.asarray(core.filter(ImageFilter.MaxFilter(2 * int(pen / 4) + 1)), np.float64)
    return _photograph(wide / 255.0, rng, stem)


def sheet(digit: Digit, rng: Rng, stem: Path, number: int) -> Path:
    """A photograph of a sheet of paper that lies on a darker table, a little askew."""
    side = int(rng.integers(90, 300))
    return _photograph(_outline(digit, side), rng, stem, table=True)


def mnist(digit: Digit, rng: Rng, stem: Path, number: int) -> Path:
    path = stem.with_suffix(".png")
    Image.fromarray(digit).save(path)
    return path


KINDS: dict[str, Callable[[Digit, Rng, Path, int], Path]] = {
    "mnist": mnist,
    "pages": page,
    "photographs": photograph,
    "thin": thin,
    "sheets": sheet,
}


def _outline(digit: Digit, side: int) -> Plane:
    """Ink, 0 to 1, with the sharp edge of a pen: (side, side)."""
    large = np.asarray(Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC))
    edge = side / 28.0 / 2.0
    result: Plane = np.clip((large / 255.0 - 0.5) * edge + 0.5, 0.0, 1.0)
    return result


def _skeleton(ink: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Middle lines (Zhang and Suen 1984)."""
    ink = np.pad(ink, 1)
    while True:
        before = int(ink.sum())
        for step in range(2):
            p = [np.roll(ink, (-dy, -dx), (0, 1)) for dy, dx in _AROUND]
            many = sum(q.astype(int) for q in p)
            turns = sum((~p[i] & p[(i + 1) % 8]).astype(int) for i in range(8))
            north, east, south, west = p[0], p[2], p[4], p[6]
            inner = east & south & (north | west) if step == 0 else north & west & (east | south)
            ink = ink & ~((many >= 2) & (many <= 6) & (turns == 1) & ~inner)
        if int(ink.sum()) == before:
            return ink[1:-1, 1:-1]


_AROUND = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]


def _photograph(ink: Plane, rng: Rng, stem: Path, table: bool = False) -> Path:
    side = len(ink)
    height, width = (int(side * rng.uniform(1.3, 3.0)) for _ in range(2))
    canvas = Image.new("L", (width, height))
    where = int(rng.integers(width - side + 1)), int(rng.integers(height - side + 1))
    canvas.paste(Image.fromarray((ink * 255).astype(np.uint8)), where)
    canvas = canvas.rotate(rng.uniform(-8, 8), Image.Resampling.BICUBIC)
    coverage = np.asarray(canvas, np.float64) / 255.0

    pencil = rng.random() < 0.4
    strength = rng.uniform(0.3, 0.55) if pencil else rng.uniform(0.6, 0.92)
    if pencil:
        coverage = coverage * np.clip(rng.normal(0.9, 0.2, coverage.shape), 0.3, 1.1)
    paper = rng.uniform(120, 235) * (1 + 0.02 * _cloud(height, width, rng))
    grey = paper * (1 - strength * coverage)
    if table:
        grey = _on_table(grey, rng)
        height, width = grey.shape
    grey = grey * _light(height, width, rng)

    tint = np.array([1.0, rng.uniform(0.93, 1.0), rng.uniform(0.82, 1.0)])
    colour = grey[..., None] * tint
    soft = Image.fromarray(np.clip(colour, 0, 255).astype(np.uint8))
    soft = soft.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.8)))
    noise = rng.normal(0, rng.uniform(2, 9), (height, width, 1))
    noise = noise + rng.normal(0, rng.uniform(1, 4), (height, width, 3))
    final = np.clip(np.asarray(soft) + noise, 0, 255).astype(np.uint8)
    path = stem.with_suffix(".jpg")
    Image.fromarray(final).save(path, quality=int(rng.integers(50, 93)))
    return path


def _on_table(grey: Plane, rng: Rng) -> Plane:
    """The sheet on something that is darker by a third or more: larger than the sheet."""
    height, width = grey.shape
    table = float(grey.max()) * rng.uniform(0.2, 0.65)
    across, down = int(width * rng.uniform(1.15, 1.6)), int(height * rng.uniform(1.15, 1.6))
    canvas = Image.new("F", (across, down), table)
    place = (
        int(rng.uniform(0.3, 0.7) * (across - width)),
        int(rng.uniform(0.3, 0.7) * (down - height)),
    )
    canvas.paste(Image.fromarray(grey.astype(np.float32)), place)
    turned = canvas.rotate(rng.uniform(-5, 5), Image.Resampling.BILINEAR, fillcolor=table)
    clouded = np.asarray(turned, np.float64) * (1 + 0.03 * _cloud(down, across, rng))
    result: Plane = np.clip(clouded, 0.0, 255.0)
    return result


def _light(height: int, width: int, rng: Rng) -> Plane:
    """How much light falls on each pixel, up to 1."""
    y, x = np.mgrid[0:height, 0:width]
    y, x = y / height - 0.5, x / width - 0.5
    angle = rng.uniform(0, 2 * np.pi)
    along = np.cos(angle) * x + np.sin(angle) * y
    light = 1 - rng.uniform(0, 0.55) * (along + 0.5)
    light = light * (1 - rng.uniform(0, 0.8) * (x**2 + y**2))
    if rng.random() < 0.3:
        turn = rng.uniform(0, 2 * np.pi)
        beyond = np.cos(turn) * x + np.sin(turn) * y - rng.uniform(-0.3, 0.3)
        light = light * (
            1 - rng.uniform(0.15, 0.35) / (1 + np.exp(-beyond / rng.uniform(0.03, 0.1)))
        )
    result: Plane = np.clip(light, 0.05, 1.0)
    return result


def _cloud(height: int, width: int, rng: Rng) -> Plane:
    coarse = Image.fromarray(rng.normal(0, 1, (8, 8)).astype(np.float32))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.float64)


def _sheet(folder: Path, wrong: list[tuple[Path, Digit, str]], name: str) -> None:
    """The mistakes side by side, 8 in a row."""
    cell = 230, 140
    rows = max(-(-len(wrong) // 6), 1)
    sheet = Image.new("RGB", (cell[0] * 6, cell[1] * rows), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (path, seen, text) in enumerate(wrong):
        x, y = i % 6 * cell[0], i // 6 * cell[1]
        with Image.open(path) as picture:
            picture = picture.convert("RGB")
            picture.thumbnail((112, 112))
            sheet.paste(picture, (x, y))
        sheet.paste(
            Image.fromarray(seen).resize((112, 112), Image.Resampling.NEAREST), (x + 114, y)
        )
        draw.text((x + 2, y + 114), text, fill="black", font_size=13)
    sheet.save(folder / f"{name}-wrong.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()

    from dnnstack.backends.select import open_backend
    from dnnstack.datasets import data_root, load
    from dnnstack.training.forward import Forward
    from dnnstack.training.predict import predict
    from dnnstack.training.records.trained import find_trained

    trained = find_trained(str(options.run), None, options.run.parent, print)
    backend = open_backend(options.device, options.threads, print)
    forward = Forward(trained, backend)
    data = load("mnist", "test", root=data_root(options.data_dir, None))
    index = np.random.default_rng(options.seed).permutation(len(data))[: options.count]
    figures = {}
    with tempfile.TemporaryDirectory() as temporary:
        for kind in options.kinds:
            folder = (options.keep or Path(temporary)) / kind
            folder.mkdir(parents=True, exist_ok=True)
            paths = []
            for number, i in enumerate(index):
                rng = np.random.default_rng([options.seed, number])
                stem = folder / f"{number:04d}-{data.labels[i]}"
                paths.append(KINDS[kind](data.images[i, 0], rng, stem, number))
            began = time.perf_counter()
            wrong = []
            for i, path, answer in zip(index, paths, predict(forward, paths, 1), strict=True):
                label = int(data.labels[i])
                if isinstance(answer, Exception):
                    wrong.append((path, np.zeros((28, 28), np.uint8), f"{path.name}: refused"))
                    print(answer)
                elif answer.best.index != label:
                    text = f"{path.name}: {answer.best.label} {answer.best.probability:.0%}"
                    wrong.append((path, answer.picture.image[0], text))
            seconds = time.perf_counter() - began
            figures[kind] = {"count": len(paths), "right": len(paths) - len(wrong)}
            print(
                f"{kind:<12} {1 - len(wrong) / len(paths):7.2%} right "
                f"({len(wrong)} of {len(paths)} wrong), {1000 * seconds / len(paths):.1f} ms each"
            )
            if options.keep:
                _sheet(options.keep, wrong, kind)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
