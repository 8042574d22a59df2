"""How fast a folder of pictures is decoded, and what a training on it reaches of the bare step.

    python3 benchmarks/decode.py
    python3 benchmarks/decode.py --pictures 5000 --device cuda

Draws JPEG pictures of 500 x 375 pixels. First they are decoded with 1, 2, 4, ... threads, with an
empty cache each time. Then `train` runs with an empty cache, and again with the decoded pictures in
the cache; both are compared with the compiled step in a loop of its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from end_to_end import bare_images_per_second, train_images_per_second
from PIL import Image, ImageFilter

CONFIG = """\
data:
  dataset: {image_folder: {train: pictures, size: 64, test_fraction: 0.1}}
  batch_size: 16
  validation: 0
  augment: [random_flip, rotate: {degrees: 15}, scale: {min: 0.8, max: 1.25}]
layers: [
  {conv2d: {filters: 16, kernel_size: 3, padding: 1}}, relu, max_pool2d,
  {conv2d: {filters: 32, kernel_size: 3, padding: 1}}, relu, max_pool2d,
  {conv2d: {filters: 64, kernel_size: 3, padding: 1}}, relu, global_avg_pool2d,
  {dense: {units: 4}}, softmax]
optimizer: {type: sgd, lr: 0.01}
train: {max_steps: 10000}
checkpoint: {every_epochs: 1000, best: false}
"""
# Of a training; a tenth of the pictures is for the test.
EPOCHS = 50


def draw(folder: Path, count: int, size: tuple[int, int] = (375, 500)) -> None:
    for number in range(count):
        draws = np.random.default_rng(number)
        pixels = draws.integers(0, 256, (*size, 3), np.uint8)
        path = folder / f"class {number % 4}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        # As smooth as a photograph, with about as many bytes.
        Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(1.5)).save(path, quality=90)


def decode_rate(folder: Path, threads: int, cache: Path) -> tuple[float, float]:
    """Pictures a second with an empty cache, and a second of the processor's time."""
    from dnnstack.datasets import image_folder, load

    image_folder.decoding_threads = lambda: threads
    os.environ["DNNSTACK_CACHE"] = str(cache)
    began, busy = time.perf_counter(), time.process_time()
    data = load("image_folder", "train", root=folder, options={"train": "pictures", "size": 64})
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    return len(data) / seconds, len(data) / busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    options.overrides = []
    # Its pictures are in the folder of the config.
    os.environ.pop("DNNSTACK_DATA", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder / "pictures", options.pictures)
        (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
        options.config = str(folder / "config.yaml")
        threads = 1
        while threads <= options.threads:
            rate, core = decode_rate(folder, threads, folder / f"cache-{threads}")
            print(f"{threads} threads: {rate:.0f} pictures/s; {core:.0f} a second of one core")
            threads *= 2
        for title in ("empty cache", "decoded before", "decoded before"):
            before = bare_images_per_second(options, 5)
            os.environ["DNNSTACK_CACHE"] = str(folder / "cache-train")
            began = time.perf_counter()
            rate, _, _ = train_images_per_second(options, EPOCHS * (options.pictures * 9 // 160))
            seconds = time.perf_counter() - began
            bare = (before + bare_images_per_second(options, 5)) / 2
            print(
                f"{title}: {seconds:.1f} s in all; training {rate:.0f} images/s, "
                f"{rate / bare:.1%} of the bare step's {bare:.0f}"
            )


if __name__ == "__main__":
    main()
