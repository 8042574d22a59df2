"""Pictures of circles, squares and triangles, for trials of ``dnnstack new``.

    python3 benchmarks/shapes.py --draw shapes --seed 0
    python3 benchmarks/shapes.py --seeds 0 1 2 --threads 2

The first line draws a set. The second takes each set from the folder to a test accuracy, with the
three commands that a user types, and prints accuracies and times.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from math import cos, pi, sin
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

KINDS = ("circle", "square", "triangle")
COUNT = 260
Draw = np.random.Generator


def colour(draw: Draw) -> NDArray[np.float64]:
    return draw.uniform(0.0, 255.0, 3)


def background(draw: Draw, width: int, height: int) -> NDArray[np.float64]:
    """One of five kinds: plain, a gradient, clouds, stripes, speckles; (height, width, 3)."""
    kind = draw.integers(5)
    first, second = colour(draw), colour(draw)
    y, x = np.mgrid[:height, :width]
    angle = draw.uniform(0.0, 2.0 * pi)
    along = (x * cos(angle) + y * sin(angle)) / max(width, height)
    if kind == 0:
        share = np.zeros((height, width))
    elif kind == 1:
        share = (along - along.min()) / np.ptp(along)
    elif kind == 2:
        coarse = draw.uniform(0.0, 255.0, (4, 4)).astype(np.uint8)
        clouds = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        share = np.asarray(clouds) / 255.0
    elif kind == 3:
        share = 0.5 + 0.5 * np.sign(np.sin(along * draw.uniform(20.0, 60.0)))
    else:
        share = draw.uniform(0.0, 1.0, (height, width))
    # The second colour is drawn nearer to the first, so that the shape is what stands out.
    second = first + 0.5 * (second - first)
    return np.asarray(first + share[:, :, None] * (second - first))


def outline(kind: str, draw: Draw, width: int, height: int) -> list[tuple[float, float]]:
    """The corners of a shape of random size and rotation that lies within the picture."""
    radius = draw.uniform(0.16, 0.36) * min(width, height)
    middle = [draw.uniform(radius, side - radius) for side in (width, height)]
    corners = {"circle": 72, "square": 4, "triangle": 3}[kind]
    start = draw.uniform(0.0, 2.0 * pi)
    angles = [start + 2.0 * pi * corner / corners for corner in range(corners)]
    return [(middle[0] + radius * cos(a), middle[1] + radius * sin(a)) for a in angles]


def picture(kind: str, draw: Draw) -> Image.Image:
    width, height = (int(side) for side in draw.integers(96, 241, 2))
    ground = background(draw, width, height)
    mean = ground.mean((0, 1))
    inside = colour(draw)
    while np.abs(inside - mean).sum() < 120.0:
        inside = colour(draw)
    mask = Image.new("L", (width, height))
    ImageDraw.Draw(mask).polygon(outline(kind, draw, width, height), fill=255)
    share = np.asarray(mask.filter(ImageFilter.GaussianBlur(0.7)))[:, :, None] / 255.0
    pixels = ground + share * (inside - ground) + draw.normal(0.0, 6.0, ground.shape)
    return Image.fromarray(np.clip(pixels, 0.0, 255.0).astype(np.uint8))


def draw_set(folder: Path, seed: int, count: int = COUNT) -> None:
    """``count`` pictures in a folder for each kind, of many sizes, PNG and JPEG."""
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        suffix = (".png", ".jpg")[number // len(KINDS) % 2]
        path = folder / kind / f"{number:03}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(kind, np.random.default_rng([seed, number])).save(path)


def trial(seed: int, threads: int) -> tuple[float, float, float]:
    """(accuracy on the test split, seconds of new and train, those of the processor)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw_set(folder / "shapes", seed)
        began, busy = time.perf_counter(), processor_seconds()
        call(folder, "new", "shapes")
        call(folder, "train", "--config", "shapes.yaml", "--device", "cpu", "--threads", threads)
        seconds, busy = time.perf_counter() - began, processor_seconds() - busy
        answer = call(
            folder, "eval", "--json", "--no-plots", "--device", "cpu", "--threads", threads
        )
        return json.loads(answer)["accuracy"], seconds, busy


def processor_seconds() -> float:
    """Of the commands so far, on all cores: what counts on a machine with other work to do."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def call(folder: Path, *words: object) -> str:
    command = [sys.executable, "-m", "dnnstack.cli", *map(str, words), "--quiet"]
    return subprocess.run(command, cwd=folder, stdout=-1, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=Path, help="draw one set into this folder, and end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.draw:
        draw_set(options.draw, options.seed)
        return
    for seed in options.seeds:
        accuracy, seconds, busy = trial(seed, options.threads)
        print(
            f"seed {seed}: {accuracy:.1%} of the test split right, {seconds:.0f} s, "
            f"{busy:.0f} s of the processor",
            flush=True,
        )


if __name__ == "__main__":
    main()
