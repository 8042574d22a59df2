"""Pictures in files of the cache: made, kept, deleted, and refused for want of room."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import load, mapped
from dnnstack.datasets.mapped import keep_pictures, new_pictures, npy_header, picked

from ..support.picture_folders import OPTIONS, ORDER, expected, root  # noqa: F401

SHAPE = (3, 4, 5)
# A header of NumPy's and 7 pictures.
BYTES = 128 + 7 * 60


def left(cache: Path) -> list[str]:
    gc.collect()
    return sorted(path.name for path in (cache / "decoded").iterdir() if path.is_file())


@pytest.mark.parametrize(
    ("free", "memory", "found"),
    [(BYTES, 0, "file"), (BYTES - 1, BYTES, "memory"), (BYTES - 1, BYTES - 1, "nowhere")],
)
def test_pictures_go_where_there_is_room(cache, monkeypatch, caplog, free, memory, found):
    caplog.set_level("INFO", "dnnstack.datasets")
    monkeypatch.setattr(mapped.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    monkeypatch.setattr(mapped, "main_memory", lambda: memory)
    if found == "nowhere":
        said = (
            rf"^pics: 7 pictures of 3x4x5 take 548 bytes, but the cache {cache}/decoded does not "
            r"take them \(its disk has 547 bytes free\), and the memory has 547 bytes; set "
            "DNNSTACK_CACHE to a folder on a larger disk"
        )
        with pytest.raises(DatasetError, match=said):
            new_pictures(7, SHAPE, "pics")
        assert left(cache) == []
        return
    images = new_pictures(7, SHAPE, "pics")
    assert (images.shape, images.dtype) == ((7, *SHAPE), np.uint8)
    assert isinstance(images, np.memmap) == (found == "file") == bool(left(cache))
    assert ("547 bytes free" in caplog.text) == (found == "memory")
    images[:] = 3
    del images
    assert left(cache) == []


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(cache, monkeypatch):
    def fail(descriptor: int, begin: int, size: int) -> None:
        assert (begin, size) == (0, BYTES)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.os, "posix_fallocate", fail)
    assert not isinstance(new_pictures(7, SHAPE, "pics"), np.memmap)
    assert left(cache) == []


@pytest.mark.parametrize("count", [1, 6, 7])
def test_what_is_kept_is_a_durable_file_of_the_first_rows(cache, tmp_path, monkeypatch, count):
    did: list[str] = []

    def noted(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*given: object) -> object:
            did.append(name)
            return real(*given)

        return call

    images = new_pictures(7, SHAPE, "pics")
    images[:] = np.arange(7)[:, None, None, None]
    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name))
    assert keep_pictures(images[:count], tmp_path / "kept.npy")
    assert did == ["fsync", "replace", "fsync"]
    del images
    assert left(cache) == []
    content = (tmp_path / "kept.npy").read_bytes()
    assert content[:128] == npy_header((count, *SHAPE))
    found = np.load(tmp_path / "kept.npy", allow_pickle=False)
    assert found.shape == (count, *SHAPE)
    assert len(content) == 128 + found.nbytes
    assert (found == np.arange(count)[:, None, None, None]).all()


def test_only_new_pictures_are_moved(tmp_path):
    np.save(tmp_path / "own.npy", np.zeros((7, *SHAPE), np.uint8))
    for images in (np.zeros((7, *SHAPE), np.uint8), np.load(tmp_path / "own.npy", mmap_mode="r")):
        assert not keep_pictures(images, tmp_path / "kept.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["own.npy"]


@pytest.mark.parametrize("most", [60 * 5, 60 * 5 - 1])
def test_large_selections_of_files_are_files(cache, monkeypatch, most):
    monkeypatch.setattr(mapped, "_IN_MEMORY", most)
    monkeypatch.setattr(mapped, "_PIECE", 2 * 60)
    images = new_pictures(7, SHAPE, "pics")
    images[:] = np.random.default_rng(1).integers(0, 256, images.shape)
    rows = np.array([6, 0, 3, 3, 1], np.int32)
    for source in (images, np.array(images)):
        found = picked(source, rows, "some")
        assert isinstance(found, np.memmap) == (source is images and most < 60 * 5)
        np.testing.assert_array_equal(found, np.array(images)[rows])
        del found
    assert len(left(cache)) == 1


def test_a_folder_of_pictures_is_decoded_into_the_file_of_its_entry(root, cache):  # noqa: F811
    for seed, bad in enumerate((None, "rose/0.png")):
        if bad is not None:
            (root / "flowers" / bad).write_bytes(b"no picture")
        options = {**OPTIONS, "on_error": "skip"}
        data = load("image_folder", "train", root=root, options=options)
        assert left(cache) == []
        path = Path(data.images.filename)
        assert (path.name, path.parent.parent) == ("images.npy", cache / "decoded")
        assert path.stat().st_size == 128 + data.images.nbytes
        names = [name for name in ORDER if name != bad]
        wanted = expected(root / "flowers", names, (3, 8, 12), False)
        np.testing.assert_array_equal(data.images, wanted)
        assert len(list((cache / "decoded").glob("image_folder-*"))) == seed + 1


def test_an_error_of_a_picture_leaves_no_file(root, cache):  # noqa: F811
    (root / "flowers" / "rose" / "0.png").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match="is not a picture"):
        load("image_folder", "train", root=root, options=OPTIONS)
    assert left(cache) == []
