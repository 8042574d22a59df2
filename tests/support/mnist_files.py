"""Five pictures in the files of MNIST."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

PICTURES = (np.arange(5 * 784) % 256).astype(np.uint8).reshape(5, 28, 28)
LABELS = np.array([3, 0, 9, 1, 1], np.uint8)


def idx(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write(
    root: Path,
    images: np.ndarray = PICTURES,
    labels: np.ndarray = LABELS,
    *,
    names: tuple[str, str] = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
) -> None:
    (root / "mnist").mkdir(parents=True, exist_ok=True)
    for name, array in zip(names, (images, labels), strict=True):
        content = idx(array)
        (root / "mnist" / name).write_bytes(
            gzip.compress(content) if name.endswith(".gz") else content
        )
