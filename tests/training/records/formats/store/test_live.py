"""What others read from the folder of a run while its training saves, deletes and replaces."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.common.locks import lock
from dnnstack.training.records.formats import checkpoint as files
from dnnstack.training.records.formats import store as module
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.records.formats.state import Best
from dnnstack.training.records.formats.store import (
    best_checkpoint,
    newest_checkpoint,
    write_checkpoint,
)

from .....support.stored import cases

BAD = ("damaged", "interrupted", "no such file", "cannot be read", "was not kept")
Step = Callable[[], None]


def watched(monkeypatch: pytest.MonkeyPatch, look: Step) -> None:
    """Call ``look`` before and after each step of the protocol that others can see."""
    write, unlink = module.atomic_write, os.unlink

    def writing(*arguments: Any) -> None:
        look()
        write(*arguments)
        look()

    def unlinking(path: Any, *arguments: Any) -> None:
        look()
        unlink(path, *arguments)
        look()

    monkeypatch.setattr(module, "atomic_write", writing)
    monkeypatch.setattr(os, "unlink", unlinking)


@pytest.mark.parametrize("read", [newest_checkpoint, best_checkpoint])
@pytest.mark.parametrize(
    ("there", "step", "best"),
    cases(__file__, "a_writer_that_stops_anywhere_is_not_told_as_damage_1"),
    ids=["next", "best", "keeps the best", "again", "after a rollback", "the only one again"],
)
def test_a_writer_that_stops_anywhere_is_not_told_as_damage(
    read, there, step, best, folder, save, monkeypatch
):
    for old in there:
        save(old, best=min(old, 1) if best else None)
    seen: list[str] = []
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        found = read(folder, seen.append, lambda: True)
        assert found.arrays["a"][0] == found.state.step

    with monkeypatch.context() as patch:
        watched(patch, look)
        save(step, best=best, keep=1)
    assert looks >= 4
    assert not [text for text in seen if any(word in text for word in BAD)]
    assert all("a training is saving it right now" in text for text in seen)
    assert bool(seen) == (step not in there or max(there) > step)


def test_without_a_training_the_same_is_an_interrupted_save(folder, save):
    save(1)
    save(2).with_suffix(".json").unlink()
    told: list[str] = []
    assert newest_checkpoint(folder, told.append).state.step == 1
    assert "its save was interrupted" in told[0]


def test_the_first_save_of_a_training(folder, save):
    save(1).with_suffix(".json").unlink()
    with pytest.raises(CheckpointError, match=r"saving a checkpoint right now.*try again"):
        newest_checkpoint(folder, is_live=lambda: True)
    with pytest.raises(CheckpointError, match="its save was interrupted"):
        newest_checkpoint(folder)


@pytest.mark.parametrize("read", [newest_checkpoint, best_checkpoint])
def test_deleted_between_listing_and_opening(read, folder, save, monkeypatch):
    save(1, best=1)
    save(2, best=1)
    begun = iter([3, 4])

    def opened(path: Path, **options: Any) -> Any:
        for step in begun:
            # Deletes all others.
            save(step, best=step, keep=1)
            break
        return read_checkpoint(path, **options)

    monkeypatch.setattr(module, "read_checkpoint", opened)
    told: list[str] = []
    assert read(folder, told.append).state.step == 4
    assert told == []


def test_the_best_is_deleted_after_the_newest_was_read(folder, save, monkeypatch):
    save(1, best=1)
    save(2, best=1)
    begun = iter([3])

    def opened(path: Path, **options: Any) -> Any:
        found = read_checkpoint(path, **options)
        for step in begun:
            save(step, best=step, keep=1)
        return found

    monkeypatch.setattr(module, "read_checkpoint", opened)
    told: list[str] = []
    assert best_checkpoint(folder, told.append).state.step == 3
    assert told == []


def test_replaced_between_the_file_and_its_manifest(folder, save, state, provenance, monkeypatch):
    path = save(1)
    real, begun = files.read_whole, iter([7.0])

    def content(tensors: Path, longest_header: int) -> bytes:
        data = real(tensors, longest_header)
        for value in begun:
            arrays = {"a": np.full(99, value, np.float32)}
            write_checkpoint(folder, arrays, replace(state, step=1), provenance, 5)
        return data

    monkeypatch.setattr(files, "read_whole", content)
    assert read_checkpoint(path).arrays["a"].tolist() == [7.0] * 99


def test_a_file_that_is_damaged_is_read_once(folder, save, monkeypatch):
    path = save(1)
    path.write_bytes(path.read_bytes()[:-1])
    real, reads = files.read_whole, []

    def content(tensors: Path, longest_header: int) -> bytes:
        reads.append(tensors)
        return real(tensors, longest_header)

    monkeypatch.setattr(files, "read_whole", content)
    with pytest.raises(CheckpointError, match="is damaged"):
        read_checkpoint(path)
    assert len(reads) == 1


def test_a_reader_beside_a_writer(folder, state, provenance):
    """Both at full speed: whatever is found is whole, and nothing is called damaged."""
    done = threading.Event()

    def write() -> None:
        for number in range(1, 120):
            step = number % 7 + number // 2
            value = Best(max(step - 1, 1), 0.5, 0.1) if number % 3 else None
            arrays = {"a": np.full(3, step, np.float32)}
            write_checkpoint(folder, arrays, replace(state, step=step, best=value), provenance, 2)
        done.set()

    write_checkpoint(folder, {"a": np.zeros(3, np.float32)}, state, provenance, 2)
    writer = threading.Thread(target=write)
    told: list[str] = []
    with lock(folder.parent / "lock"):
        writer.start()
        reads = 0
        while not done.is_set() or reads < 5:
            found = newest_checkpoint(folder, told.append, lambda: True)
            assert found.arrays["a"][0] in (0, found.state.step)
            reads += 1
        writer.join()
    assert not [text for text in told if any(word in text for word in BAD)]
