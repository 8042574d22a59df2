"""Mistakes with files: data, runs, checkpoints, pictures."""

from __future__ import annotations

import gzip
import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from .mistakes import EVAL, PREDICT, TRAIN, Mistake, Prepare, stored_mistakes

CHECKPOINT = "runs/tiny/checkpoints/step-26.safetensors"
ON_MNIST = f"{TRAIN} --set data.dataset=mnist --set data.validation=10 --data-dir data"


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


FILES = [
    *stored_mistakes("mistakes_with_files.txt"),
    Mistake(
        "missing data, offline",
        f"{ON_MNIST} --offline",
        (
            "MNIST is not in data/mnist: missing train-images-idx3-ubyte.gz, ",
            "https://",
            "--offline",
            "Put the four standard IDX files there",
            "dnnstack train --config digits.yaml",
        ),
    ),
    Mistake(
        "one file is missing",
        "eval --device numpy --data mnist --data-dir data",
        ("MNIST is not in data/mnist: missing t10k-labels-idx1-ubyte.gz. ", "or name the folder"),
        prepare=mnist(t10k_labels=None),
    ),
    Mistake(
        "truncated gzip",
        ON_MNIST,
        (
            "data/mnist/train-images-idx3-ubyte.gz: damaged gzip file (",
            "it ends before the end of its compressed data",
            "download the file again",
        ),
        prepare=mnist(train_images=gzip.compress(PICTURES)[:-20]),
    ),
    Mistake(
        "swapped files",
        ON_MNIST,
        ("train-images-idx3-ubyte.gz: contains labels, not pictures", "were two files swapped?"),
        prepare=mnist(train_images=gzip.compress(LABELS), train_labels=gzip.compress(PICTURES)),
    ),
    Mistake(
        "label out of range",
        ON_MNIST,
        (
            "train-labels-idx1-ubyte.gz: label 12 of picture 7 is not from 0 to 9",
            "download the file",
        ),
        prepare=mnist(train_labels=gzip.compress(idx((60,), b"\7" * 7 + b"\14" + bytes(52)))),
    ),
    Mistake(
        "wrong IDX type",
        ON_MNIST,
        ("it begins with 00 00 0d 03, not 00 00 08 03; download the file again",),
        prepare=mnist(train_images=gzip.compress(idx((60, 28, 28), b"", kind=13))),
    ),
    Mistake(
        "a web page in the place of a file",
        ON_MNIST,
        ("train-labels-idx1-ubyte.gz: is not an IDX file", "looks like a web page; download"),
        prepare=mnist(train_labels=b"<html>404</html>"),
    ),
    Mistake(
        "extra bytes",
        ON_MNIST,
        ("has more than the 47056 bytes that its header announces; download the file again",),
        prepare=mnist(train_images=gzip.compress(PICTURES + b"more")),
    ),
    Mistake(
        "files of two different sets",
        ON_MNIST,
        ("has 60 pictures, but ", "has 50 labels: ", "download both again"),
        prepare=mnist(train_labels=gzip.compress(idx((50,), bytes(50)))),
    ),
    Mistake("no run yet", EVAL, ("runs: no run yet; dnnstack train --config",), prepare=no_run),
    Mistake(
        "no run to recognise with",
        f"{PREDICT} 5.png",
        ("runs: no run yet; dnnstack train --config digits.yaml creates one",),
        prepare=no_run,
    ),
    Mistake(
        "a run without manifests",
        EVAL,
        (
            "step-26.safetensors: has no manifest: its save was interrupted",
            "eval --checkpoint FILE",
        ),
        prepare=no_manifests,
    ),
    Mistake(
        "a damaged list of samples",
        f"{TRAIN} --resume",
        (
            "runs/tiny/samples.json.gz: the list of the run's samples cannot be used: ",
            "put back a copy, or remove it to go on without it",
        ),
        prepare=samples(b"no list"),
    ),
    Mistake(
        "flipped byte",
        f"{EVAL} --checkpoint {CHECKPOINT}",
        (
            f"{CHECKPOINT}: is damaged: its SHA-256",
            "use another one in runs/tiny/checkpoints: step-13",
        ),
        prepare=checkpoint(flip),
    ),
    Mistake(
        "checkpoint cut short",
        f"{TRAIN} --resume {CHECKPOINT}",
        (f"{CHECKPOINT}: is damaged: it has ", "its manifest says ", "use another one"),
        prepare=checkpoint(lambda data: data.__delitem__(slice(-10, None))),
    ),
    Mistake(
        "unknown data set to evaluate on",
        f"{EVAL} --data mnits",
        ("unknown dataset 'mnits'; did you mean 'mnist'? Known: cifar10, ",),
    ),
    Mistake(
        "a HEIC picture without its reader",
        f"{PREDICT} 5.jpg",
        ("5.jpg: is one of the HEIC pictures (", "pip install 'dnnstack[heic]' reads them)"),
        prepare=heic,
    ),
    Mistake(
        "giant picture",
        f"{PREDICT} giant.png",
        ("giant.png: ", "pixels", "scale it down first"),
        prepare=giant,
    ),
    Mistake(
        "blank picture",
        f"{PREDICT} blank.png",
        ("blank.png: no digit found", "blank or has hardly any contrast"),
        prepare=lambda patch: Image.new("L", (50, 50), 255).save("blank.png"),
    ),
    Mistake(
        "empty folder of pictures",
        f"{PREDICT} scans",
        (
            "scans: no picture in this folder; looked for PNG, ",
            "passed over: other files (.txt): 1",
        ),
        prepare=scans,
    ),
]
