"""The checkpoint folder: which one is taken, which are kept."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats import store
from dnnstack.training.records.formats.state import Best
from dnnstack.training.records.formats.store import (
    best_checkpoint,
    checkpoint_steps,
    named_checkpoint,
    newest_checkpoint,
    write_checkpoint,
)

from .....support.checkpoint_folders import taken


def test_newest_is_by_number_not_by_name_or_time(folder, save):
    for step in (9, 10, 100):
        save(step)
    for path in folder.glob("step-100.*"):
        os.utime(path, (0, 0))
    assert checkpoint_steps(folder) == [100, 10, 9]
    assert taken(folder) == (100, [])


def test_a_damaged_newest_is_told_and_the_one_before_taken(folder, save):
    save(1)
    save(2)
    path = save(3)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    step, notices = taken(folder)
    assert step == 2
    assert len(notices) == 1
    assert "step-3.safetensors" in notices[0]
    assert "is damaged" in notices[0]
    assert "using step-2.safetensors" in notices[0]


def test_two_damaged_ones_are_both_told(folder, save):
    save(1)
    save(2).write_bytes(b"")
    save(3).unlink()
    step, notices = taken(folder)
    assert step == 1
    assert ["step-3" in notices[0], "step-2" in notices[1]] == [True, True]


def test_without_its_manifest_a_file_is_no_checkpoint(folder, save):
    save(1)
    save(2).with_suffix(".json").unlink()
    step, notices = taken(folder)
    assert step == 1
    assert "has no manifest" in notices[0]


def test_older_damage_is_nobodys_business(folder, save):
    save(1).write_bytes(b"")
    save(2)
    assert taken(folder) == (2, [])


def test_nothing_usable_lists_every_fault(folder, save):
    save(1).write_bytes(b"")
    save(2).with_suffix(".json").write_text("{")
    with pytest.raises(CheckpointError) as caught:
        newest_checkpoint(folder)
    assert "step-1.safetensors" in str(caught.value)
    assert "step-2.json" in str(caught.value)


def test_no_checkpoint_yet(folder):
    # Also compare and weights say so, which have no --run.
    with pytest.raises(CheckpointError, match=r"yet; start a new run, or name another$"):
        newest_checkpoint(folder)
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        newest_checkpoint(folder / "missing")


def test_the_last_k_and_the_best_are_kept(folder, save):
    for step in range(1, 8):
        save(step, best=min(step, 2), keep=3)
    assert checkpoint_steps(folder) == [7, 6, 5, 2]
    assert {p.name for p in folder.iterdir()} == {
        f"step-{n}.{kind}" for n in (7, 6, 5, 2) for kind in ("json", "safetensors")
    }
    save(8, best=8, keep=1)
    assert checkpoint_steps(folder) == [8]


def test_the_best_can_be_let_go(folder, save, state, provenance):
    save(1, best=1)
    save(2, best=1)
    third = replace(state, step=3, best=Best(1, 0.5, 0.1))
    write_checkpoint(
        folder, {"a": np.full(3, 3, np.float32)}, third, provenance, 1, keep_best=False
    )
    assert checkpoint_steps(folder) == [3]


def test_best(folder, save):
    save(1, best=1)
    save(2, best=2)
    save(3, best=2)
    assert best_checkpoint(folder).state.step == 2
    save(4)
    assert best_checkpoint(folder).state.step == 4
    save(5, best=2, keep=1)
    (folder / "step-2.json").unlink()
    (folder / "step-2.safetensors").unlink()
    notices: list[str] = []
    assert best_checkpoint(folder, notices.append).state.step == 5
    assert "was not kept" in notices[0]


def test_a_given_up_history_goes_with_the_next_commit(folder, save):
    for step in (1, 2, 3, 4):
        save(step)
    save(2, keep=100)
    assert checkpoint_steps(folder) == [2, 1]


def test_leftovers_of_a_killed_writer_go(folder, save):
    (folder / ".step-1.safetensors.123.abcd.tmp").write_bytes(b"half")
    (folder / "step-1.safetensors").write_bytes(b"never committed")
    (folder / "notes.txt").write_text("mine")
    save(2)
    assert {p.name for p in folder.iterdir()} == {"notes.txt", "step-2.json", "step-2.safetensors"}


def test_a_damaged_file_that_was_named_gives_way_to_what_is_there(folder, save, tmp_path):
    save(1)
    path = save(2)
    save(3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        CheckpointError, match=r"use another one in .*: step-3\.safe.*, step-1\.safe"
    ):
        named_checkpoint(path)
    alone = path.rename(tmp_path / "alone.safetensors")
    with pytest.raises(CheckpointError, match=r"SHA-256; copy it again .* or train again"):
        named_checkpoint(alone)


def test_a_folder_that_cannot_be_listed_is_not_one_without_checkpoints(folder, save, monkeypatch):
    """Or a resume would begin at step 0, and a save delete what is to be kept."""
    save(1)
    save(2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", _refuse)
        for look in (checkpoint_steps, newest_checkpoint, best_checkpoint):
            with pytest.raises(CheckpointError, match=r"checkpoints: cannot be read: Input"):
                look(folder)
        save(3, keep=2)
    assert checkpoint_steps(folder) == [3, 2, 1]


def _refuse(path: Path | str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_a_list_that_fails_once_deletes_nothing(folder, save, monkeypatch):
    listed, left = os.listdir, [1]

    def refuse_once(path: Path) -> Any:
        left[0] -= 1
        return _refuse(path) if left[0] == 0 else listed(path)

    save(1)
    save(2)
    monkeypatch.setattr(os, "listdir", refuse_once)
    save(3, keep=2)
    assert {2, 3} <= set(checkpoint_steps(folder))


def test_tensors_stay_as_long_as_their_manifest(folder, save, monkeypatch):
    unlink = os.unlink

    def refuse(path: str) -> None:
        if path.endswith(".json"):
            _refuse(path)
        unlink(path)

    save(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        save(2, keep=1)
    assert named_checkpoint(folder / "step-1.safetensors").state.step == 1


def test_a_given_up_history_stays_away_after_a_power_loss(folder, save, monkeypatch):
    save(4)
    synced: list[list[int]] = []
    monkeypatch.setattr(store, "sync_folder", lambda path: synced.append(checkpoint_steps(path)))
    save(2)
    assert synced == [[2]]
