"""Rows of large files, which are read before the steps that take them."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends import read_ahead
from dnnstack.backends.read_ahead import ReadAhead

ROW = 3 * 7 * 5


@pytest.fixture
def images(tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "images.npy", np.zeros((40, 3, 7, 5), np.uint8))
    return np.load(tmp_path / "images.npy", mmap_mode="r")


@pytest.fixture
def asked(monkeypatch, images) -> list[int]:
    """The rows that are asked for; -1 for the advice that rows are read in no order."""
    found: list[int] = []

    def advise(address: int, size: int, advice: int) -> None:
        begin = address - images.ctypes.data
        if advice == mmap.MADV_RANDOM:
            assert (begin, size) == (0, images.nbytes)
            found.append(-1)
            return
        assert (advice, begin % ROW, size) == (mmap.MADV_WILLNEED, 0, ROW)
        found.append(begin // ROW)

    monkeypatch.setattr(read_ahead, "_advise", advise)
    monkeypatch.setattr(read_ahead, "_LEAST", 0)
    # Six rows and a half may be read ahead.
    monkeypatch.setattr(read_ahead, "_SHARE", 10)
    monkeypatch.setattr(read_ahead, "main_memory", lambda: 65 * ROW)
    return found


def told(asked: list[int]) -> list[int]:
    now = asked[:]
    asked.clear()
    return now


def test_each_row_is_asked_for_once_in_the_order_of_the_epoch(images, asked):
    ahead, order = ReadAhead(), np.random.default_rng(3).permutation(40).astype(np.int32)[:36]
    ahead(images, order, 0, 4)
    assert told(asked) == [-1, *order[:6]]
    for place in range(4, 36, 4):
        ahead(images, order, place, 4)
        assert told(asked) == order[place + 2 : place + 6].tolist()
    # Another epoch, a place that is not the next one, and batches larger than what is read ahead.
    ahead(images, order[::-1], 32, 4)
    assert told(asked) == order[::-1][32:].tolist()
    again = order.copy()
    for place, begin, end, size in ((0, 0, 6, 4), (20, 20, 26, 4), (8, 8, 14, 4), (8, 14, 16, 8)):
        ahead(images, again, place, size)
        assert told(asked) == again[begin:end].tolist()


def test_missing_samples_have_no_rows(images, asked):
    ReadAhead()(images, np.array([5, -1, 0, -1], np.int32), 0, 4)
    assert told(asked) == [-1, 5, 0]


@pytest.mark.parametrize(
    ("kind", "memory", "least", "wanted"),
    [
        ("file", 80 * ROW - 1, 0, True),
        ("file", 80 * ROW + 1, 0, False),
        ("file", 8, 40 * ROW - 1, True),
        ("file", 8, 40 * ROW, False),
        ("memory", 8, 0, False),
        ("columns", 8, 0, False),
    ],
)
def test_what_memory_holds_is_not_read_ahead(
    images, asked, monkeypatch, kind, memory, least, wanted
):
    monkeypatch.setattr(read_ahead, "main_memory", lambda: memory)
    monkeypatch.setattr(read_ahead, "_LEAST", least)
    given = {"file": images, "memory": np.array(images), "columns": images[:, :, :, ::2]}[kind]
    ahead, order = ReadAhead(), np.arange(40, dtype=np.int32)
    for place in (0, 4):
        ahead(given, order, place, 4)
    assert bool(told(asked)) == wanted
    # Another array is looked at anew.
    ahead(np.array(images), order, 8, 4)
    assert told(asked) == []


def test_long_rows_are_asked_for_in_pieces_by_pages(tmp_path, monkeypatch):
    calls: list[tuple[int, int, int]] = []
    monkeypatch.setattr(read_ahead, "_madvise", lambda *given: calls.append(given))
    monkeypatch.setattr(read_ahead, "_LEAST", 0)
    monkeypatch.setattr(read_ahead, "_PIECE", 5000)
    monkeypatch.setattr(read_ahead, "main_memory", lambda: 16 * 12_001)
    file = np.memmap(tmp_path / "file", np.uint8, "w+", 128, (20, 12_001))
    ReadAhead()(file, np.array([2, 9], np.int32), 0, 1)
    start = file.ctypes.data
    whole, *pieces = calls
    assert whole == (start - 128, file.nbytes + 128, mmap.MADV_RANDOM)
    assert len(pieces) == 3
    for (address, size, advice), begin in zip(pieces, (0, 5000, 10_000), strict=True):
        first = start + 2 * 12_001 + begin
        assert (address % mmap.PAGESIZE, advice) == (0, mmap.MADV_WILLNEED)
        assert first - mmap.PAGESIZE < address <= first
        assert address + size == min(first + 5000, start + 3 * 12_001)


def test_the_system_takes_the_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(read_ahead, "_LEAST", 0)
    monkeypatch.setattr(read_ahead, "main_memory", lambda: 64)
    file = np.memmap(tmp_path / "file", np.uint8, "w+", 128, (20, 12_001))
    answers: list[int] = []
    real = read_ahead._madvise
    monkeypatch.setattr(read_ahead, "_madvise", lambda *g: answers.append(real(*g)))
    ReadAhead()(file, np.array([2, 9], np.int32), 0, 2)
    assert answers == [0, 0, 0]
