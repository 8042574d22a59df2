from __future__ import annotations

import dataclasses
import gzip
import hashlib
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Downloads, describe, files, idx_set, load, registry
from dnnstack.datasets.download import Origin, RemoteFile

from ..support.https_server import Request, serving
from ..support.mnist_files import LABELS, PICTURES, idx, write
from ..support.stored import cases


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def test_describe_reads_nothing():
    info = describe("mnist")
    assert (info.shape, info.train_count, info.test_count) == ((1, 28, 28), 60_000, 10_000)
    assert info.classes == tuple("0123456789")


@pytest.mark.parametrize("names", cases(__file__, "reads_every_spelling"))
def test_reads_every_spelling(root, names):
    write(root, names=names)
    data = load("mnist", "train", root=root)
    assert data.name == "mnist/train"
    assert len(data) == 5
    assert (data.images.dtype, data.labels.dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(data.images[:, 0], PICTURES)
    np.testing.assert_array_equal(data.labels, LABELS)
    with pytest.raises(ValueError, match="read-only"):
        data.images[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 0


def test_missing_files_are_named_with_the_way_out(root):
    with pytest.raises(DatasetError) as caught:
        load("mnist", "test", root=root)
    message = str(caught.value)
    for part in (
        str(root / "mnist"),
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
        "--data-dir",
        "DNNSTACK_DATA",
        "digits.yaml",
    ):
        assert part in message


def test_one_missing_file_is_the_only_one_named(root):
    write(root)
    (root / "mnist" / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DatasetError, match=r"missing train-labels-idx1-ubyte\.gz") as caught:
        load("mnist", "train", root=root)
    assert "train-images" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (PICTURES, LABELS[:4], "5 pictures, but .* 4 labels"),
        (PICTURES[:4], LABELS, "4 pictures, but .* 5 labels"),
        (PICTURES, np.array([1, 2, 10, 3, 4]), "label 10 of picture 2 is not from 0 to 9"),
        (LABELS, PICTURES, "train-images.*: contains labels, not pictures: .* swapped"),
        (PICTURES[:, :27], LABELS, "items of 27x28, expected 28x28"),
    ],
)
def test_files_that_do_not_fit_are_refused(root, cache, images, labels, message):
    write(root, images, labels)
    with pytest.raises(DatasetError, match=message):
        load("mnist", "train", root=root)
    assert not cache.exists()


def test_other_files_than_the_originals_are_used_with_a_warning_every_time(root, caplog):
    write(root)
    for _ in range(2):
        caplog.clear()
        load("mnist", "train", root=root)
        warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warned) == 2
        assert "train-images-idx3-ubyte.gz is not the original MNIST file" in warned[0]


@pytest.fixture
def mirror(monkeypatch, trusted):
    """A server that has a small MNIST, taken for the original."""
    originals = {
        "train-images-idx3-ubyte.gz": idx(PICTURES),
        "train-labels-idx1-ubyte.gz": idx(LABELS),
        "t10k-images-idx3-ubyte.gz": idx(PICTURES[:2]),
        "t10k-labels-idx1-ubyte.gz": idx(LABELS[:2]),
    }

    def answer(request: Request) -> None:
        request.give_range(gzip.compress(originals[request.path.rpartition("/")[2]]))

    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in originals.items()}
    files = tuple(
        RemoteFile(name, len(gzip.compress(content)), hashes[name], len(content))
        for name, content in originals.items()
    )
    with serving(answer) as server:
        small = dataclasses.replace(idx_set.MNIST, origin=Origin((server.url,), files))
        monkeypatch.setitem(registry.DATASETS, "mnist", small)
        yield server


def test_missing_files_are_downloaded_once(root, mirror, caplog):
    online = Downloads(offline=False)
    for _ in range(2):
        data = load("mnist", "test", root=root, downloads=online)
        np.testing.assert_array_equal(data.images[:, 0], PICTURES[:2])
        load("mnist", "train", root=root, downloads=online)
    # What is wanted comes first, and the rest with it: the next command may have no network.
    assert [path for path, _ in mirror.asked] == [
        "/t10k-images-idx3-ubyte.gz",
        "/t10k-labels-idx1-ubyte.gz",
        "/train-images-idx3-ubyte.gz",
        "/train-labels-idx1-ubyte.gz",
    ]
    assert not caplog.records
    assert {file.state for file in files("mnist", root)} == {"verified"}


def test_only_what_is_missing_is_downloaded(root, mirror):
    write(root, names=("train-images.idx3-ubyte", "train-labels-idx1-ubyte"))
    online = Downloads(offline=False)
    load("mnist", "train", root=root, downloads=online)
    assert mirror.asked == []
    load("mnist", "test", root=root, downloads=online)
    assert [path for path, _ in mirror.asked] == [
        "/t10k-images-idx3-ubyte.gz",
        "/t10k-labels-idx1-ubyte.gz",
    ]


def test_the_files_that_are_there_are_checked(root, mirror):
    folder = root / "mnist"
    assert [file.state for file in files("mnist", root)] == ["missing"] * 4
    assert not root.exists()
    write(root, PICTURES[::-1])
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(PICTURES)[:-1])
    found = files("mnist", root)
    assert [file.state for file in found] == ["other", "verified", "damaged", "missing"]
    assert [file.path.name for file in found] == [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte.gz",
    ]
    assert "truncated" in found[2].note


def test_the_known_files_are_those_of_the_origin():
    for mirror in idx_set.MNIST.origin.mirrors:
        assert mirror.startswith("https://")
        assert mirror.endswith("/")
    for file in idx_set.MNIST.origin.files:
        assert file.content_size is not None
        count = 60_000 if file.name.startswith("train") else 10_000
        assert file.content_size == (16 + 784 * count if "images" in file.name else 8 + count)


def test_the_real_files(caplog):
    folder = os.environ.get("DNNSTACK_DATA")
    if not folder:
        pytest.skip("DNNSTACK_DATA is not set: it names the folder that has mnist/")
    for split, count, first in (("train", 60_000, [5, 0, 4, 1, 9]), ("test", 10_000, [7, 2, 1])):
        data = load("mnist", split, root=Path(folder))
        assert data.images.shape == (count, 1, 28, 28)
        assert data.labels[: len(first)].tolist() == first
        stem = "train" if split == "train" else "t10k"
        packed = Path(folder) / "mnist" / f"{stem}-images-idx3-ubyte.gz"
        original = gzip.decompress(packed.read_bytes())
        assert hashlib.sha256(original[16:]).digest() == hashlib.sha256(data.images).digest()
    assert not caplog.records
    assert {file.state for file in files("mnist", Path(folder))} == {"verified"}


def test_a_file_in_the_place_of_the_data_folder_is_said(tmp_path):
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"data: is not a folder; name the folder"):
        load("mnist", "train", root=tmp_path / "data")
