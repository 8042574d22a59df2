from __future__ import annotations

import dataclasses
import gzip
import hashlib
import logging
import struct

import numpy as np
import pytest
from dnnstack.datasets import describe, files, load, registry
from dnnstack.datasets.download import Origin, RemoteFile
from dnnstack.datasets.idx_set import FASHION_MNIST, MNIST, IdxSet

PICTURES = (np.arange(4 * 784) % 251).astype(np.uint8).reshape(4, 28, 28)
LABELS = np.array([9, 0, 3, 1], np.uint8)


def packed(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


ORIGINALS = {
    "train-images-idx3-ubyte.gz": packed(PICTURES),
    "train-labels-idx1-ubyte.gz": packed(LABELS),
    "t10k-images-idx3-ubyte.gz": packed(PICTURES[:2]),
    "t10k-labels-idx1-ubyte.gz": packed(LABELS[:2]),
}


def small(*mirrors: str) -> IdxSet:
    """Fashion-MNIST with the files above for originals."""
    remote = tuple(
        RemoteFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in ORIGINALS.items()
    )
    return dataclasses.replace(FASHION_MNIST, origin=Origin(mirrors, remote))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.DATASETS, "fashion_mnist", small())
    folder = tmp_path / "fashion_mnist"
    folder.mkdir()
    for name, content in ORIGINALS.items():
        (folder / name).write_bytes(content)
    return folder


def test_it_has_names_for_its_classes():
    info = describe("fashion_mnist")
    assert (info.shape, info.train_count, info.test_count) == ((1, 28, 28), 60_000, 10_000)
    assert (info.classes[0], info.classes[9]) == ("T-shirt/top", "Ankle boot")
    assert len(set(info.classes)) == 10


def test_the_files_are_read_from_a_folder_of_their_own(folder, caplog):
    for _ in range(2):
        data = load("fashion_mnist", "train", root=folder.parent)
        assert data.name == "fashion_mnist/train"
        np.testing.assert_array_equal(data.images[:, 0], PICTURES)
        np.testing.assert_array_equal(data.labels, LABELS)
    assert not caplog.records
    assert [file.state for file in files("fashion_mnist", folder.parent)] == ["verified"] * 4


def test_mnist_in_its_place_is_said(folder, caplog):
    other = packed(PICTURES[::-1])
    (folder / "train-images-idx3-ubyte.gz").write_bytes(other)
    load("fashion_mnist", "train", root=folder.parent)
    (warned,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "train-images-idx3-ubyte.gz is not the original Fashion-MNIST file" in warned
    found = files("fashion_mnist", folder.parent)
    assert [file.state for file in found] == ["other", *["verified"] * 3]


def test_what_is_known_of_the_originals():
    origin = FASHION_MNIST.origin
    known = {file.name: file.sha256 for file in origin.files}
    assert set(known) == set(ORIGINALS)
    assert len(set(known.values())) == 4
    assert not set(known.values()) & {file.sha256 for file in MNIST.origin.files}
    assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in origin.mirrors)
