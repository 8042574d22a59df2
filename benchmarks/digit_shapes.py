"""Fit datasets/digit_shapes.safetensors to MNIST's training set.

    python3 benchmarks/digit_shapes.py --data-dir ~/data

50,000 digits are fitted; of the other 10,000 one in a hundred is less likely than ``least``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from dnnstack.datasets import data_root, load
from dnnstack.datasets.digit_shapes import edges, fitted, log_likelihood
from safetensors.numpy import save

FITTED, DIRECTIONS, REFUSED = 50_000, 16, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    data = load("mnist", "train", root=data_root(options.data_dir, None))
    parts = range(0, len(data), 2_000)
    rows = np.concatenate([edges(data.images[at : at + 2_000, 0]) for at in parts])
    table = fitted(rows[:FITTED], data.labels[:FITTED], DIRECTIONS)
    least = np.quantile(log_likelihood(rows[FITTED:], table), REFUSED)
    table["least"] = np.array([least], np.float32)
    target = Path(__file__).parents[1] / "datasets" / "digit_shapes.safetensors"
    target.write_bytes(save(table))
    print(f"{target}: {target.stat().st_size} bytes, least {least:.2f}")


if __name__ == "__main__":
    main()
