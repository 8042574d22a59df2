"""The folder of the runs, before anything is done: writable, and large enough."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.configs import RunConfig
from dnnstack.training.records import disk_space
from dnnstack.training.records.disk_space import check_disk_space, checkpoint_bytes
from dnnstack.training.trainer import train

Make = Callable[..., RunConfig]
MB = 1_000_000


@pytest.fixture
def free(monkeypatch):
    def set_free(count: int) -> None:
        state = SimpleNamespace(f_bavail=count // 1000, f_frsize=1000)
        monkeypatch.setattr(disk_space.os, "statvfs", lambda path: state)

    return set_free


def test_the_size_of_a_checkpoint(tiny, reference):
    config = tiny("train.max_steps=1", "optimizer.momentum=0.9")
    done = train(config, reference, Path("unused"))
    assert done.checkpoint is not None
    shapes = {"a": (4, 1, 5, 5), "b": (4,), "c": (10, 144), "d": (10,)}
    guess = checkpoint_bytes({**shapes, **{f"momentum/{n}": s for n, s in shapes.items()}})
    assert 0.5 * guess < done.checkpoint.stat().st_size <= guess


def test_room_for_all_that_stay_and_one_more(tmp_path, free):
    free(42 * MB)
    check_disk_space(tmp_path, 10 * MB, 3)
    free(40 * MB)
    with pytest.raises(CheckpointError) as caught:
        check_disk_space(tmp_path / "runs" / "deep", 10 * MB, 3)
    text = str(caught.value)
    assert "has 40.0 MB free, but the checkpoints need 41.0 MB" in text
    assert "(3 kept and one being written, 10.0 MB each, and the log)" in text
    assert "checkpoint.keep" in text
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_that_are_there_make_room(tmp_path, free):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (1, 2, 3):
        with (folder / f"step-{step}.safetensors").open("wb") as file:
            file.truncate(10 * MB)
    free(12 * MB)
    check_disk_space(tmp_path, 10 * MB, 3)
    free(10 * MB)
    with pytest.raises(CheckpointError, match=r"need 11\.0 MB"):
        check_disk_space(tmp_path, 10 * MB, 3)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(CheckpointError, match=r"is not a folder; choose another folder"):
        check_disk_space(tmp_path / "runs" / "deep", 1, 1)


def test_a_folder_that_takes_no_files(tmp_path, monkeypatch):
    real = os.open

    def read_only(path: Any, flags: int, *more: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, *more)

    monkeypatch.setattr(disk_space.os, "open", read_only)
    with pytest.raises(CheckpointError, match="Read-only file system; choose another folder"):
        check_disk_space(tmp_path, 1, 1)


def test_it_is_asked_before_data_is_read(tiny, reference, monkeypatch, free):
    def never(*args: Any) -> None:
        raise AssertionError("data was read")

    monkeypatch.setattr("dnnstack.training.trainer.load_data", never)
    free(1000)
    config = tiny()
    with pytest.raises(
        CheckpointError, match=r"has 1\.0 kB free, but the checkpoints need 1\.1 MB"
    ):
        train(config, reference, Path("unused"))
    assert not Path(config.run.dir).exists()


def test_a_folder_that_cannot_be_looked_up(tmp_path, monkeypatch):
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), ".")

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(
        CheckpointError, match=r"runs: no run can be written there: .*ission denied"
    ):
        check_disk_space(tmp_path / "runs", 1, 1)
