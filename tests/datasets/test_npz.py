"""Arrays in NumPy's files: what their axes, types and values become, and what is refused."""

from __future__ import annotations

import io
import logging
import zipfile
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import ImageSet, array_files, describe, load
from dnnstack.datasets.arrays import as_targets, stored

from ..support.stored import cases

RANDOM = np.random.default_rng(3)
BYTES = RANDOM.integers(0, 256, (6, 2, 3, 5), dtype=np.uint8)
CLASSES = np.array([0, 1, 2, 0, 1, 2])


def saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder


def read(root: Path, split: Any = "test", **options: Any) -> ImageSet:
    options = {"train": "a.npz", "test": "a.npz", **options}
    return load("npz", split, root=root, options=options)


ROW, LAST = BYTES[:, :, :1, :1], BYTES.transpose(0, 2, 3, 1)
# Arrays, what is said of their axes, and the same samples as (N, C, H, W).
AXES = {
    "N": (BYTES[:, 0, 0, 0].astype(np.float32), None, ROW[:, :1]),
    "NC": (BYTES[:, :, 0, 0], None, ROW),
    "NHW": (BYTES[:, 0], None, BYTES[:, :1]),
    "NHW of floats": (BYTES[:, 0].astype(np.float32), "NHW", BYTES[:, :1]),
    "NCL": (BYTES[:, :, 0], "NCL", BYTES[:, :, :1]),
    "NLC": (BYTES[:, :, 0].transpose(0, 2, 1), "NLC", BYTES[:, :, :1]),
    "NCHW": (BYTES[:, :1], None, BYTES[:, :1]),
    "narrow NCHW": (BYTES[:, :1].transpose(0, 1, 3, 2), None, BYTES[:, :1].transpose(0, 1, 3, 2)),
    "NCHW, said": (BYTES[..., :3], "NCHW", BYTES[..., :3]),
    "NHWC": (LAST, "NHWC", BYTES),
    "NHWC in Fortran's order": (np.asfortranarray(LAST), "NHWC", BYTES),
}


@pytest.mark.parametrize(("x", "axes", "expected"), AXES.values(), ids=AXES)
def test_every_pixel_comes_to_its_place(tmp_path, x, axes, expected):
    found = read(saved(tmp_path, x=x, y=CLASSES), axes=axes).images
    np.testing.assert_array_equal(found, expected)
    assert found.flags.c_contiguous
    assert not found.flags.writeable
    assert (
        describe("npz", options={"train": "a.npz", "axes": axes}, root=tmp_path).shape
        == (found.shape[1:])
    )


@pytest.mark.parametrize(
    ("dtype", "stored_as"),
    [
        ("uint8", "uint8"),
        *((name, "float32") for name in ("bool", "int8", "int64", "float16", "float32", ">f4")),
    ],
)
def test_bytes_stay_bytes_and_other_numbers_keep_their_values(tmp_path, dtype, stored_as):
    x = np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype)
    found = read(saved(tmp_path, x=x, y=CLASSES[:3]))
    assert found.images.dtype == stored_as
    np.testing.assert_array_equal(found.images[:, :, 0, 0], x)
    floats = describe("npz", options={"train": "a.npz"}, root=tmp_path).floats
    assert floats == (stored_as == "float32")


def test_float32_is_untouched_and_mapped_from_its_file(tmp_path):
    x = RANDOM.normal(size=(6, 1, 4, 4)).astype(np.float32)
    x[0, 0, 0, 0] = -0.0
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", CLASSES)
    found = read(tmp_path, train=("x.npy", "y.npy"), test=("x.npy", "y.npy")).images
    assert found.tobytes() == x.tobytes()
    base = found
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap)


def test_what_is_rounded_is_said(tmp_path, caplog):
    caplog.set_level(logging.INFO, "dnnstack.datasets")
    assert read(saved(tmp_path, x=np.full((3, 2), 0.1), y=CLASSES[:3])).images[0, 0] == np.float32(
        0.1
    )
    assert "'x': the numbers are float64, and are rounded to float32" in caplog.text
    caplog.clear()
    read(saved(tmp_path, x=np.full((3, 2), 0.1, np.float32), y=CLASSES[:3]))
    assert "rounded" not in caplog.text


def test_integers_are_exact_or_refused():
    most = np.array([[[[1 << 24]]], [[[-(1 << 24)]]]])
    np.testing.assert_array_equal(stored("x", most), most)
    for wrong in (most + 1, most - 1):
        with pytest.raises(DatasetError, match="x: has integers beyond 16777216"):
            stored("x", wrong)


@pytest.mark.parametrize(("values", "kind", "names", "expected"), cases(__file__, "targets"))
def test_targets_are_of_a_kind(tmp_path, values, kind, names, expected):
    y = np.array(values)
    options = {"kind": kind, "classes": names and tuple(names)}
    found = read(saved(tmp_path, x=BYTES[: len(y)], y=y), **options, axes="NCHW")
    assert [found.kind, list(found.classes)] == expected[:2]
    np.testing.assert_array_equal(found.labels, np.array(expected[2]))
    assert found.labels.dtype == (np.int32 if found.kind == "class" else np.float32)


@pytest.mark.parametrize(("x", "y", "options", "message"), cases(__file__, "refused"))
def test_what_fits_nothing_is_refused_with_its_place(tmp_path, x, y, options, message):
    x = np.zeros(x, np.float32) if isinstance(x[0], int) else np.array(x, np.float64)
    y = np.zeros(y) if options.pop("zeros", False) else np.array(y)
    saved(tmp_path, x=x, y=y)
    with pytest.raises(DatasetError, match=message) as caught:
        read(tmp_path, **options)
    assert "a.npz" in str(caught.value)


KERAS = {"x_train": BYTES, "y_train": CLASSES, "x_test": BYTES[:2], "y_test": CLASSES[1:3]}


def test_one_file_has_the_arrays_of_every_split(tmp_path):
    saved(tmp_path, **KERAS, x_val=BYTES[:1], y_val=CLASSES[2:3])
    parts = {"test": None, "validation": "a.npz", "axes": "NCHW"}
    assert read(tmp_path, "test", **parts).labels.tolist() == [1, 2]
    found = read(tmp_path, "train", **parts)
    assert found.labels.tolist() == [*CLASSES, 2]
    assert found.held is not None
    assert np.flatnonzero(found.held).tolist() == [6]
    # An array without the name of a split is that of any.
    saved(tmp_path, x=BYTES[3:], y=CLASSES[3:])
    assert read(tmp_path, "validation", **parts).labels.tolist() == CLASSES[3:].tolist()


def test_numbers_that_are_too_large_for_classes_need_a_kind():
    assert len(as_targets(("y", np.array([0, 99_999])), None, None)[2]) == 100_000
    with pytest.raises(DatasetError, match="y: the largest class is 100000"):
        as_targets(("y", np.array([0, 100_000])), None, None)


def test_without_test_samples_a_share_is_held_out(tmp_path):
    x = np.arange(101, dtype=np.float32)
    saved(tmp_path, x=x, y=np.arange(101))
    parts = {
        split: read(tmp_path, split, test=None, test_fraction=0.25) for split in ("train", "test")
    }
    assert [len(part) for part in parts.values()] == [75, 26]
    both = np.concatenate([part.images.ravel() for part in parts.values()])
    assert sorted(both) == x.tolist()
    for part in parts.values():
        np.testing.assert_array_equal(part.images.ravel(), part.labels)
        assert part.labels.tolist() == sorted(part.labels)
        assert len(part.classes) == 101
    # A later version divides alike.
    assert parts["test"].labels[:4].tolist() == [1, 4, 5, 11]
    # They are spread over the file, which may be sorted.
    assert len({*(parts["test"].labels // 10)}) > 6


@pytest.mark.parametrize("other", [BYTES[:, :, :2], BYTES.astype(np.float32)])
def test_test_samples_are_like_those_to_train_on(tmp_path, other):
    saved(tmp_path, **{**KERAS, "x_test": other[:2]})
    with pytest.raises(DatasetError, match=r"'x_test': has the shape .* which do not fit"):
        read(tmp_path, test=None, axes="NCHW")


def test_classes_are_those_of_training(tmp_path):
    saved(tmp_path, **{**KERAS, "y_train": CLASSES // 2})
    assert read(tmp_path, "train", axes="NCHW").classes == ("0", "1")
    with pytest.raises(DatasetError, match="'y_test': a sample has the label 2, but there are 2"):
        read(tmp_path, axes="NCHW")


def npy(text: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    header = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + data


def head(shape: str, dtype: str = "|u1") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"


def pickled() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([print], object), allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickled(), "no Python objects"),
        (npy(head("(4,)"), b"123"), r"says \(4,\) of uint8, but 3 bytes follow"),
        (npy(head("(4,)"), b"12345"), "but 5 bytes follow"),
        (npy(head("(-4, -1)"), b"1234"), r"says \(-4, -1\)"),
        (npy(head("(4,)", "|V1"), b"1234"), "its type is"),
        (npy(head("(4,)", "<U0")), "its type is <U0"),
        (npy(head("(4,)"), b"1234", b"\3\0"), r"\(3, 0\)"),
        (npy("__import__('os').abort()"), "damaged"),
        (npy("(" * 5000), "damaged"),
        (b"", "damaged"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_lies_is_refused(tmp_path, content, message, packed):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    if packed:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", content)
    for whole in (True, False):
        with pytest.raises(DatasetError, match=message):
            array_files.array_in(path, "x" if packed else "", whole)


def test_an_archive_unpacks_no_more_than_memory_has_room_for(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(5000, np.uint8))
    monkeypatch.setattr(array_files, "main_memory", lambda: 5000)
    assert array_files.array_in(path, "x").shape == (5000,)
    monkeypatch.setattr(array_files, "main_memory", lambda: 4999)
    assert array_files.array_in(path, "x", whole=False).shape == (5000,)
    with pytest.raises(DatasetError, match="more than the memory"):
        array_files.array_in(path, "x")


def test_a_changed_archive_is_noticed(tmp_path):
    saved(tmp_path, x=np.arange(3_000_000, dtype=np.uint8))
    path = tmp_path / "a.npz"
    data = bytearray(path.read_bytes())
    data[2_000_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"is no array 'x' .* is damaged .*CRC"):
        array_files.array_in(path, "x")


@pytest.mark.parametrize(("name", "message"), [("", "no .npy file"), ("x", "two .npy files")])
def test_what_is_no_archive_says_how_pairs_are_given(tmp_path, name, message):
    (tmp_path / "a.npz").write_bytes(b"text")
    with pytest.raises(DatasetError, match=message):
        array_files.array_in(tmp_path / "a.npz") if not name else read(tmp_path)
    with pytest.raises(DatasetError, match=f"{tmp_path}: is no file"):
        array_files.array_in(tmp_path)
