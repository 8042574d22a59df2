from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import logging
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Downloads, cifar, describe, files, load, registry
from dnnstack.datasets.archive import read_members
from dnnstack.datasets.cifar import Cifar, Part
from dnnstack.datasets.cifar_files import CIFAR_10, CIFAR_100
from dnnstack.datasets.download import RemoteFile

from ..support.https_server import Request, serving

Members = dict[str, bytes]


def records(seed: int, count: int, *classes: int) -> bytes:
    """Records of random pixels; each label byte below its number of classes."""
    draw = np.random.default_rng(seed)
    labels = [draw.integers(0, n, (count, 1), np.uint8) for n in classes]
    pixels = draw.integers(0, 256, (count, 3072), np.uint8)
    return np.concatenate([*labels, pixels], axis=1).tobytes()


def small(full: Cifar, contents: Members) -> Cifar:
    """The same set with the lengths and hashes of small files."""

    def part(old: Part) -> Part:
        content = contents[old.name]
        return Part(old.name, len(content) // full.record, hashlib.sha256(content).hexdigest())

    parts = {split: tuple(map(part, old)) for split, old in full.parts.items()}
    return dataclasses.replace(full, parts=parts)


def packed(folder: str, contents: Members, *others: tarfile.TarInfo) -> bytes:
    """A .tar.gz of a folder with the files, the other members first."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in others:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
        entry = tarfile.TarInfo(folder)
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
        # The real archive is not in the order of the names either.
        for name, content in reversed(contents.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


TEN = {f"data_batch_{i}.bin": records(i, 3, 10) for i in range(1, 6)}
TEN["test_batch.bin"] = records(6, 2, 10)
HUNDRED = {"train.bin": records(7, 6, 20, 100), "test.bin": records(8, 2, 20, 100)}
OFFLINE = Downloads(offline=True)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def ten(monkeypatch):
    """CIFAR-10 is a small one, whose archive ``packed`` gives."""
    return install(monkeypatch, small(CIFAR_10, TEN), packed(CIFAR_10.folder, TEN))


@pytest.fixture
def hundred(monkeypatch):
    return install(monkeypatch, small(CIFAR_100, HUNDRED), packed(CIFAR_100.folder, HUNDRED))


def install(monkeypatch: pytest.MonkeyPatch, chosen: Cifar, archive: bytes, *urls: str) -> Cifar:
    digest = hashlib.sha256(archive).hexdigest()
    remote = RemoteFile(chosen.archive.name, len(archive), digest)
    chosen = dataclasses.replace(chosen, archive=remote, mirrors=urls or chosen.mirrors)
    monkeypatch.setitem(registry.DATASETS, chosen.name, chosen)
    return chosen


def unpack(root: Path, folder: str, contents: Members) -> Path:
    (root / folder).mkdir()
    for name, content in contents.items():
        (root / folder / name).write_bytes(content)
    return root / folder


@pytest.mark.parametrize("as_archive", [False, True])
def test_every_record_is_where_it_belongs(ten, root, as_archive):
    if as_archive:
        (root / ten.archive.name).write_bytes(packed(ten.folder, TEN))
    else:
        unpack(root, ten.folder, TEN)
    data = load("cifar10", "train", root=root, downloads=OFFLINE)
    assert (data.name, data.classes) == ("cifar10/train", describe("cifar10").classes)
    whole = b"".join(TEN[f"data_batch_{i}.bin"] for i in range(1, 6))
    wanted = np.frombuffer(whole, np.uint8).reshape(15, 3073)
    np.testing.assert_array_equal(data.labels, wanted[:, 0])
    np.testing.assert_array_equal(data.images.reshape(15, -1), wanted[:, 1:])
    # Red, green, blue; then rows from the top.
    assert data.images[4, 2, 1, 5] == wanted[4, 1 + 2 * 1024 + 1 * 32 + 5]
    assert (data.images.shape, data.labels.dtype) == ((15, 3, 32, 32), np.int32)
    assert len(load("cifar10", "test", root=root, downloads=OFFLINE)) == 2


@pytest.mark.parametrize(("labels", "byte", "classes"), [("coarse", 0, 20), ("fine", 1, 100)])
def test_cifar100_has_two_labels(hundred, root, labels, byte, classes):
    unpack(root, hundred.folder, HUNDRED)
    for _ in range(2):
        data = load("cifar100", "train", root=root, options={"labels": labels})
        wanted = np.frombuffer(HUNDRED["train.bin"], np.uint8).reshape(6, 3074)
        np.testing.assert_array_equal(data.labels, wanted[:, byte])
        np.testing.assert_array_equal(data.images.reshape(6, -1), wanted[:, 2:])
        assert len(data.classes) == classes
    default = load("cifar100", "train", root=root)
    np.testing.assert_array_equal(default.labels, wanted[:, 1])
    assert len(default.classes) == 100


def test_folder_and_archive_share_the_cache_and_are_read_once(ten, root, cache, monkeypatch):
    folder = unpack(root, ten.folder, TEN)
    load("cifar10", "train", root=root)
    for path in folder.iterdir():
        path.unlink()
    (root / ten.archive.name).write_bytes(packed(ten.folder, TEN))
    load("cifar10", "train", root=root)
    assert len(list((cache / "decoded").glob("cifar10-train-*"))) == 1

    def fail(*arguments: object) -> None:
        raise AssertionError("the archive was read again")

    monkeypatch.setattr(cifar, "read_members", fail)
    assert len(load("cifar10", "train", root=root)) == 15


def test_other_files_of_the_right_length_are_used_with_one_warning(ten, root, caplog):
    folder = unpack(root, ten.folder, TEN)
    load("cifar10", "train", root=root)
    assert not caplog.records
    (folder / "data_batch_2.bin").write_bytes(records(99, 3, 10))
    for _ in range(2):
        caplog.clear()
        load("cifar10", "train", root=root)
        (warned,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert warned.endswith(
            "data_batch_2.bin is not the original CIFAR-10: results are not comparable"
        )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda c: c[:-1], "data_batch_3.bin: is truncated: it has 9218 bytes instead of 9219"),
        (lambda c: c + b"\0", "data_batch_3.bin: is too long: it has 9220 bytes instead of 9219"),
        (lambda c: b"", "is truncated: it has 0 bytes"),
        (lambda c: c[:3073] + b"\x0a" + c[3074:], "label 10 of picture 1 is not from 0 to 9"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused(ten, root, cache, content, message):
    folder = unpack(root, ten.folder, TEN)
    (folder / "data_batch_3.bin").write_bytes(content(TEN["data_batch_3.bin"]))
    with pytest.raises(DatasetError, match=message):
        load("cifar10", "train", root=root)
    assert not cache.exists()
    load("cifar10", "test", root=root)


@pytest.mark.parametrize(("byte", "kind"), [(0, "coarse label 20"), (1, "fine label 100")])
def test_both_labels_of_cifar100_are_checked(hundred, root, byte, kind):
    folder = unpack(root, hundred.folder, HUNDRED)
    content = bytearray(HUNDRED["test.bin"])
    content[3074 + byte] = 20 if byte == 0 else 100
    (folder / "test.bin").write_bytes(content)
    with pytest.raises(DatasetError, match=f"test.bin: {kind} of picture 1 is not from 0 to"):
        load("cifar100", "test", root=root)


def test_a_huge_file_costs_no_memory(ten, root):
    folder = unpack(root, ten.folder, TEN)
    with open(folder / "data_batch_1.bin", "r+b") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match="too long"):
            load("cifar10", "train", root=root)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_missing_files_are_named_with_the_way_out(ten, root):
    unpack(root, ten.folder, {"data_batch_2.bin": TEN["data_batch_2.bin"]})
    with pytest.raises(DatasetError) as caught:
        load("cifar10", "train", root=root, downloads=OFFLINE)
    message = str(caught.value)
    for part in (str(root), ten.archive.name, ten.folder, "--data-dir", "https://"):
        assert part in message
    assert f"{ten.folder} exists, but lacks data_batch_1.bin, data_batch_3.bin" in message


def test_the_archive_is_downloaded_into_the_data_folder(monkeypatch, trusted, tmp_path):
    archive = packed(CIFAR_10.folder, TEN)

    def answer(request: Request) -> None:
        request.give_range(archive)

    with serving(answer) as server:
        chosen = install(monkeypatch, small(CIFAR_10, TEN), archive, server.url)
        for _ in range(2):
            data = load("cifar10", "test", root=tmp_path, downloads=Downloads(offline=False))
    assert len(data) == 2
    assert [path for path, _ in server.asked] == ["/cifar-10-binary.tar.gz"]
    assert not (tmp_path / chosen.folder).exists()
    assert [file.state for file in files("cifar10", tmp_path)] == ["verified"]


def test_an_archive_that_is_not_the_original_is_refused(ten, root):
    whole = packed(ten.folder, TEN)
    path = root / ten.archive.name
    path.write_bytes(whole[:-1])
    with pytest.raises(DatasetError, match=r"tar\.gz: is truncated: it has \d+ of \d+ bytes"):
        load("cifar10", "train", root=root)
    path.write_bytes(whole[:-1] + b"?")
    with pytest.raises(DatasetError, match="is not the original: its SHA-256 is"):
        load("cifar10", "train", root=root)
    (found,) = files("cifar10", root)
    assert (found.state, "SHA-256" in found.note) == ("damaged", True)


def test_nothing_of_another_archive_is_unpacked(ten, root):
    whole = packed(ten.folder, TEN, *(tarfile.TarInfo(f"x{i}") for i in range(3)))
    path = root / ten.archive.name
    path.write_bytes(whole)
    original = dataclasses.replace(ten.archive, size=1)
    with pytest.raises(DatasetError, match="is not the original"):
        next(read_members(path, original, ten.folder, TEN))


def test_other_members_of_the_archive_are_passed_over(monkeypatch, root):
    others = [tarfile.TarInfo(name) for name in ("data_batch_1.bin", "x/test_batch.bin")]
    folder = tarfile.TarInfo(f"{CIFAR_10.folder}/data_batch_2.bin")
    folder.type = tarfile.DIRTYPE
    archive = packed(CIFAR_10.folder, TEN, *others, folder)
    chosen = install(monkeypatch, small(CIFAR_10, TEN), archive)
    path = root / chosen.archive.name
    path.write_bytes(archive)
    found = list(read_members(path, chosen.archive, chosen.folder, {"data_batch_2.bin"}))
    assert found == [("data_batch_2.bin", TEN["data_batch_2.bin"])]
    assert len(load("cifar10", "train", root=root)) == 15
    assert [path.name for path in root.iterdir()] == [chosen.archive.name]


def test_the_files_that_are_there_are_checked(ten, root):
    assert [file.state for file in files("cifar10", root)] == ["missing"] * 6
    folder = unpack(root, ten.folder, TEN)
    (folder / "data_batch_1.bin").write_bytes(records(50, 3, 10))
    (folder / "data_batch_2.bin").write_bytes(b"short")
    (folder / "data_batch_3.bin").unlink()
    found = files("cifar10", root)
    assert [file.state for file in found] == ["other", "damaged", "missing", *["verified"] * 3]
    assert "truncated" in found[1].note


def test_a_file_in_the_place_of_the_data_folder_is_said(tmp_path):
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"data: is not a folder; name the folder"):
        load("cifar10", "train", root=tmp_path / "data")


def test_what_is_known_of_the_originals():
    for known, names in ((CIFAR_10, TEN), (CIFAR_100, HUNDRED)):
        parts = [part for split in ("train", "test") for part in known.parts[split]]
        assert {part.name for part in parts} == set(names)
        hashes = {known.archive.sha256, *(part.sha256 for part in parts)}
        assert len(hashes) == len(parts) + 1
        assert all(len(digest) == 64 for digest in hashes)
        assert all(mirror.startswith("https://") for mirror in known.mirrors)
        assert sum(known.sizes("train").values()) == 50_000 * known.record
