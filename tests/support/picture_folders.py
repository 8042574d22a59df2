"""Folders of pictures, a class each."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from dnnstack.datasets import Preparation, read_picture
from PIL import Image

Options = dict[str, object]
OPTIONS: Options = {"train": "flowers", "test": "unseen", "size": (8, 12)}


def paint(path: Path, seed: int, size: tuple[int, int] = (20, 30), mode: str = "RGB") -> None:
    """A picture of random smooth colours; size: (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (4, 5, 3) if mode == "RGB" else (4, 5)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BICUBIC).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three classes: 3, 2 and 4 pictures to train on, one each to test on."""
    folder = tmp_path / "data"
    for name, count in (("rose", 3), ("aster", 2), ("tulip", 4)):
        for number in range(count):
            suffix = (".png", ".JPG", ".gif")[number % 3]
            size = (20 + 3 * number, 30)
            paint(folder / "flowers" / name / f"{number}{suffix}", hash_of(name) + number, size)
        paint(folder / "unseen" / name / "x.png", hash_of(name) + 9)
    return folder


def hash_of(name: str) -> int:
    return sum(name.encode()) * 100


def expected(
    folder: Path, names: list[str], shape: tuple[int, int, int], raw: bool, draft: bool = False
) -> np.ndarray:
    how = Preparation(digits=False, raw=raw, draft=draft)
    return np.stack([read_picture(folder / name, shape, how).image for name in names])


ORDER = ["aster/0.png", "aster/1.JPG", "rose/0.png", "rose/1.JPG", "rose/2.gif"]
ORDER += ["tulip/0.png", "tulip/1.JPG", "tulip/2.gif", "tulip/3.png"]


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("a picture was decoded again")

    monkeypatch.setattr("dnnstack.datasets.image_folder.open_picture", fail)


def giant(path: Path) -> None:
    """A PNG of 30,000 x 30,000 pixels in 2 kB, which would decode to 2.7 GB."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1_000_000))
    pieces = chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + pieces)
