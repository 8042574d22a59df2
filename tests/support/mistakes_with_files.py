"""Mistakes with files: data, runs, checkpoints, pictures."""

from __future__ import annotations

import gzip
import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from .mistakes import Prepare, stored_mistakes

CHECKPOINT = "runs/tiny/checkpoints/step-26.safetensors"


def idx(shape: tuple[int, ...], data: bytes, kind: int = 8) -> bytes:
    return bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + data


PICTURES = idx((60, 28, 28), bytes(60 * 784))
LABELS = idx((60,), bytes(i % 10 for i in range(60)))
MNIST = {
    "train-images-idx3-ubyte": PICTURES,
    "train-labels-idx1-ubyte": LABELS,
    "t10k-images-idx3-ubyte": PICTURES,
    "t10k-labels-idx1-ubyte": LABELS,
}


def mnist(**files: bytes | None) -> Prepare:
    """``data/mnist`` with other files in the place of the small but sound ones."""

    def prepare(patch: pytest.MonkeyPatch) -> None:
        folder = Path("data/mnist")
        folder.mkdir(parents=True)
        for name, content in MNIST.items():
            given = files.get(name.partition("-idx")[0].replace("-", "_"), gzip.compress(content))
            if given is not None:
                (folder / f"{name}.gz").write_bytes(given)

    return prepare


def checkpoint(change: Callable[[bytearray], object]) -> Prepare:
    """The run's newest checkpoint, its bytes changed."""

    def prepare(patch: pytest.MonkeyPatch) -> None:
        data = bytearray(Path(CHECKPOINT).read_bytes())
        change(data)
        Path(CHECKPOINT).write_bytes(data)

    return prepare


def flip(data: bytearray) -> None:
    data[-5] ^= 4


def no_manifests(patch: pytest.MonkeyPatch) -> None:
    for path in Path("runs/tiny/checkpoints").glob("*.json"):
        path.unlink()


def samples(data: bytes) -> Prepare:
    """The list of the run's samples, with this content."""
    return lambda patch: Path("runs/tiny/samples.json.gz").write_bytes(data)


def no_run(patch: pytest.MonkeyPatch) -> None:
    shutil.rmtree("runs")


def giant(patch: pytest.MonkeyPatch) -> None:
    """A small file that says it is a picture of 3,600 million pixels."""
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(bytes(100)), b"IEND": b""}
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in chunks.items():
        content += struct.pack(">I", len(data)) + kind + data
        content += struct.pack(">I", zlib.crc32(kind + data))
    Path("giant.png").write_bytes(content)


def scans(patch: pytest.MonkeyPatch) -> None:
    Path("scans").mkdir()
    Path("scans/notes.txt").write_text("P1 is the first page")


def heic(patch: pytest.MonkeyPatch) -> None:
    """A picture of a telephone under another name, where the extra is not installed."""
    patch.setitem(sys.modules, "pillow_heif", None)
    Path("5.jpg").write_bytes(b"\0\0\0\x18ftypheic")


def npz(**arrays: Any) -> Prepare:
    """``a.npz`` with other arrays in the place of 200 sound ones."""
    sound = {"x": np.arange(200 * 64, dtype=np.uint8).reshape(200, 8, 8), "y": np.arange(200) % 10}
    return lambda patch: np.savez("a.npz", **sound | arrays)


FILES = stored_mistakes(
    "mistakes_with_files.txt",
    {
        "one file is missing": mnist(t10k_labels=None),
        "truncated gzip": mnist(train_images=gzip.compress(PICTURES)[:-20]),
        "swapped files": mnist(
            train_images=gzip.compress(LABELS), train_labels=gzip.compress(PICTURES)
        ),
        "label out of range": mnist(
            train_labels=gzip.compress(idx((60,), b"\7" * 7 + b"\14" + bytes(52)))
        ),
        "wrong IDX type": mnist(train_images=gzip.compress(idx((60, 28, 28), b"", kind=13))),
        "a web page in the place of a file": mnist(train_labels=b"<html>404</html>"),
        "extra bytes": mnist(train_images=gzip.compress(PICTURES + b"more")),
        "files of two different sets": mnist(train_labels=gzip.compress(idx((50,), bytes(50)))),
        "no such array": npz(),
        "more pictures than targets": npz(y=np.arange(150) % 10),
        "channels in the last place": npz(x=np.zeros((200, 8, 8, 3), np.uint8)),
        "a number that is none": npz(x=np.full((200, 1, 8, 8), np.nan)),
        "a class that is none": npz(y=np.arange(200) - 1),
        "numbers for classes": npz(y=np.linspace(0, 1, 200)),
        "objects of Python": npz(y=np.array([None] * 200)),
        "test pictures of another size": npz(x_test=np.zeros((9, 7, 7), np.uint8), y_test=[0] * 9),
        "one array in the place of several": lambda patch: np.save("x.npy", np.zeros((200, 64))),
        "no run yet": no_run,
        "no run to recognise with": no_run,
        "a run without manifests": no_manifests,
        "a damaged list of samples": samples(b"no list"),
        "flipped byte": checkpoint(flip),
        "checkpoint cut short": checkpoint(lambda data: data.__delitem__(slice(-10, None))),
        "a HEIC picture without its reader": heic,
        "giant picture": giant,
        "blank picture": lambda patch: Image.new("L", (50, 50), 255).save("blank.png"),
        "empty folder of pictures": scans,
    },
)
