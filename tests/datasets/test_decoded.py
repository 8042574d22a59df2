"""The cache of decoded pictures: damage, strangers' content, and disks that do not take it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.common.files import atomic_write
from dnnstack.datasets import decoded, load
from dnnstack.datasets.decoded import remembered

from ..support.mnist_files import LABELS, PICTURES, write


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-7] ^= 0x10
    path.write_bytes(content)


def _garbage(path: Path) -> None:
    path.write_bytes(b"garbage")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _wrong_shape(path: Path) -> None:
    path.write_bytes(b'{"images": 3}')


@pytest.mark.parametrize("damage", [_truncate, _flip, _garbage, _empty, Path.unlink])
@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "entry.json"])
def test_a_damaged_cache_is_rebuilt(root, cache, name, damage):
    write(root)
    load("mnist", "train", root=root)
    (path,) = (cache / "decoded").glob(f"mnist-train-*/{name}")
    before = path.read_bytes()
    os.utime(path, ns=(1, 1))
    damage(path)
    data = load("mnist", "train", root=root)
    np.testing.assert_array_equal(data.images[:, 0], PICTURES)
    np.testing.assert_array_equal(data.labels, LABELS)
    if name != "entry.json":
        assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [_truncate, _garbage, _empty, _wrong_shape, Path.unlink])
def test_a_damaged_index_is_rebuilt(root, cache, damage):
    write(root)
    load("mnist", "train", root=root)
    for path in (cache / "decoded" / "index").iterdir():
        damage(path)
    np.testing.assert_array_equal(load("mnist", "train", root=root).labels, LABELS)


def test_bit_rot_is_noticed_whatever_the_time_stamp(root, cache):
    write(root)
    load("mnist", "train", root=root)
    (path,) = (cache / "decoded").glob("mnist-train-*/images.npy")
    before, stamp = path.read_bytes(), path.stat().st_mtime_ns
    for at in (0, 9, 30, len(before) // 2, len(before) - 1):
        path.write_bytes(before[:at] + bytes([before[at] ^ 4]) + before[at + 1 :])
        os.utime(path, ns=(stamp, stamp))
        np.testing.assert_array_equal(load("mnist", "train", root=root).images[:, 0], PICTURES)
        assert path.read_bytes() == before


@pytest.mark.parametrize("field", ["st_size", "st_mtime_ns", "st_ctime_ns", "st_ino"])
def test_a_stamp_is_of_everything_that_another_file_has_otherwise(field):
    same = dict.fromkeys(("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_atime_ns"), 7)
    stamp = decoded.file_stamp(SimpleNamespace(**same))
    assert decoded.file_stamp(SimpleNamespace(**{**same, field: 8})) != stamp
    assert decoded.file_stamp(SimpleNamespace(**{**same, "st_atime_ns": 8})) == stamp


@pytest.mark.usefixtures("cache")
def test_the_tick_of_a_stamp_is_over_before_the_file_is_read(tmp_path, monkeypatch):
    """A file that is written twice within a tick of the clock has one stamp, and two contents."""
    did: list[object] = []
    monkeypatch.setattr(decoded.time, "sleep", did.append)
    path = tmp_path / "file"
    path.write_text("content")

    def compute() -> dict[str, str]:
        did.append("read")
        return {"said": "content"}

    for _ in range(2):
        assert remembered([path], ("said",), compute) == {"said": "content"}
    assert did == [0.01, "read"]


class _Payload:
    """Its pickle makes a file when it is read."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self._trace),)


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("name", ["images", "labels"])
def test_no_pickle_is_read_whatever_its_hash(root, cache, tmp_path, name, bare):
    """Neither an array of objects nor what NumPy takes for a pickle without a header."""
    write(root)
    load("mnist", "train", root=root)
    (path,) = (cache / "decoded").glob(f"mnist-train-*/{name}.npy")
    trace = tmp_path / "trace"
    if bare:
        path.write_bytes(pickle.dumps(_Payload(trace)))
    else:
        np.save(path, np.array([_Payload(trace)], object), allow_pickle=True)
    entry = path.with_name("entry.json")
    table = json.loads(entry.read_text())
    table[name]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    entry.write_text(json.dumps(table))
    np.testing.assert_array_equal(load("mnist", "train", root=root).images[:, 0], PICTURES)
    assert not trace.exists()


def test_the_entry_is_written_last(root, cache, monkeypatch):
    """It says that the arrays are whole, so a process that is killed before must not leave it."""
    written: list[str] = []

    def note(path: Path, data: object) -> None:
        written.append(path.name)
        atomic_write(path, data)  # type: ignore[arg-type]

    monkeypatch.setattr("dnnstack.datasets.decoded.atomic_write", note)
    write(root)
    load("mnist", "train", root=root)
    arrays = [name for name in written if not re.fullmatch(r"[0-9a-f]{32}\.json", name)]
    assert arrays == ["images.npy", "labels.npy", "entry.json"]
    assert written[-1] == "entry.json"


def _put(path: Path, content: bytes) -> None:
    """Content with the hash that the entry then says."""
    path.write_bytes(content)
    entry = path.with_name("entry.json")
    table = json.loads(entry.read_text())
    table[path.stem]["sha256"] = hashlib.sha256(content).hexdigest()
    entry.write_text(json.dumps(table))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("images", PICTURES.astype(np.float64)[:, None]),
        ("images", PICTURES),
        ("images", PICTURES[:1, None]),
        ("labels", np.asarray(LABELS, np.int64)),
        ("labels", np.asarray(LABELS, np.int32)[:, None]),
        ("labels", np.zeros((), np.int32)),
    ],
    ids=["floats", "planes", "too-few", "long", "table", "scalar"],
)
def test_arrays_of_another_kind_are_rebuilt_whatever_their_hash(root, cache, name, array):
    write(root)
    load("mnist", "train", root=root)
    (path,) = (cache / "decoded").glob(f"mnist-train-*/{name}.npy")
    stream = io.BytesIO()
    np.save(stream, array)
    _put(path, stream.getvalue())
    data = load("mnist", "train", root=root)
    assert (data.images.dtype, data.labels.dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(data.images[:, 0], PICTURES)
    np.testing.assert_array_equal(data.labels, LABELS)


def test_labels_of_no_class_are_refused(root, cache):
    write(root)
    load("mnist", "train", root=root)
    (path,) = (cache / "decoded").glob("mnist-train-*/labels.npy")
    np.save(path, np.full(len(LABELS), 10, np.int32))
    entry = path.with_name("entry.json")
    table = json.loads(entry.read_text())
    table["labels"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    entry.write_text(json.dumps(table))
    with pytest.raises(DatasetError, match="has the label 10, but there are 10 classes"):
        load("mnist", "train", root=root)


def test_works_where_the_cache_cannot_be_written(root, cache):
    # A file in the folder's place refuses every user, even one who may write everywhere.
    cache.write_text("")
    write(root)
    for _ in range(2):
        data = load("mnist", "train", root=root)
        np.testing.assert_array_equal(data.images[:, 0], PICTURES)
        np.testing.assert_array_equal(data.labels, LABELS)
        assert not data.images.flags.writeable
        assert not data.labels.flags.writeable


def test_works_where_the_disk_is_full(root, monkeypatch):
    def fail(path: Path, data: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dnnstack.datasets.decoded.atomic_write", fail)
    write(root)
    np.testing.assert_array_equal(load("mnist", "train", root=root).labels, LABELS)


def test_what_killed_writers_left_in_the_cache_is_deleted(root, cache):
    """In the folder of any entry, whichever is read; nothing of a writer that may still run."""
    write(root)
    load("mnist", "train", root=root)
    code = "import os; print(os.getpid())"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    ended = int(done.stdout)
    (cache / "decoded" / "cifar10-train-0123").mkdir()
    folders = [path for path in (cache / "decoded").iterdir() if path.is_dir()]
    assert len(folders) == 3
    # Pictures are written before it is known of which entry they are.
    folders.append(cache / "decoded")
    names = {
        "old": f".images.npy.{ended}.0123abcd.tmp",
        "alive": f".images.npy.{os.getpid()}.0123abcd.tmp",
        "new": f".images.npy.{ended}.89abcdef.tmp",
        "of another": "images.npy.tmp",
    }
    for folder in folders:
        for kind, name in names.items():
            (folder / name).touch()
            if kind != "new":
                os.utime(folder / name, (0, 0))
    load("mnist", "train", root=root)
    for folder in folders:
        left = {path.name for path in folder.iterdir()}
        assert {kind for kind, name in names.items() if name in left} == {
            *("alive", "new", "of another")
        }


@pytest.fixture
def hashed(monkeypatch):
    """The names of the array files that are compared with their hashes."""
    found: list[str] = []

    def sha256(path: Path) -> str:
        found.append(path.name)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(decoded, "sha256_file", sha256)
    return found


def test_a_good_cache_is_read_whole_only_after_its_files_were_exchanged(root, cache, hashed):
    write(root)
    load("mnist", "train", root=root)
    (folder,) = (cache / "decoded").glob("mnist-train-*")

    def copy() -> None:
        path = folder / "images.npy"
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)

    def forget() -> None:
        for path in (cache / "decoded" / "index").iterdir():
            path.unlink()

    changes: list[tuple[Callable[[], object], list[str]]] = [
        (lambda: None, []),
        (copy, ["images.npy"]),
        (lambda: os.utime(folder / "labels.npy", (1, 1)), ["labels.npy"]),
        (forget, ["images.npy", "labels.npy"]),
    ]
    for change, wanted in changes:
        change()
        hashed.clear()
        for _ in range(2):
            np.testing.assert_array_equal(load("mnist", "train", root=root).labels, LABELS)
            assert hashed == wanted
