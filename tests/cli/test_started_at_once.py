"""Four first starts at once, with no choices stored yet, end in the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from dnnstack.backends.select import open_backend
from dnnstack.training.records.checkpoint import Checkpoint
from dnnstack.training.records.store import newest_checkpoint

SCRIPT = Path(__file__).parents[1] / "support" / "at_once.py"
CONFIG = """\
data:
  dataset: {strokes: {train_count: 480, test_count: 100}}
  batch_size: 32
  validation: 64
layers:
  - conv2d: {filters: 8, kernel_size: 5, stride: 2}
  - relu
  - conv2d: {filters: 8, kernel_size: 3}
  - relu
  - flatten
  - dense: {units: 10}
  - softmax
optimizer: {type: sgd, lr: 0.1, momentum: 0.9}
train: {max_steps: 20, log_every: 9}
"""
TRAIN = ("train", "--config", "net.yaml", "--device", "cpu", "--threads", "1")


@pytest.fixture(autouse=True, scope="module")
def _onednn() -> None:
    if open_backend("cpu", 1, lambda text: None).name != "onednn":
        pytest.skip("oneDNN cannot be loaded")


@dataclass(frozen=True)
class Start:
    """A process of four; ``end`` is its last checkpoint, None if it was killed."""

    status: int
    errors: str
    end: Checkpoint | None


def start_four(
    folder: Path, environment: dict[str, str], mode: str, caches: list[str]
) -> list[Start]:
    meeting = folder / "meeting"
    meeting.mkdir()
    (folder / "net.yaml").write_text(CONFIG, encoding="utf-8")
    runs = [f"runs-{number}" for number in range(4)]
    children = [
        subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                str(number),
                str(meeting),
                mode,
                *TRAIN,
                "--runs-dir",
                run,
            ],
            cwd=folder,
            env={**environment, "DNNSTACK_CACHE": cache},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, (run, cache) in enumerate(zip(runs, caches, strict=True))
    ]
    found = []
    for child, run in zip(children, runs, strict=True):
        _, errors = child.communicate(timeout=300)
        checkpoints = folder / run / "net" / "checkpoints"
        end = newest_checkpoint(checkpoints) if child.returncode == 0 else None
        found.append(Start(child.returncode, errors, end))
    return found


def searched(folder: Path) -> int:
    return len(list((folder / "meeting").glob("searched-*")))


def different(starts: list[Start]) -> int:
    """How many different results the processes have that were not killed."""
    ends = [each.end for each in starts if each.end is not None]
    bits = [sorted((name, a.tobytes()) for name, a in end.arrays.items()) for end in ends]
    return sum(each not in bits[:at] for at, each in enumerate(bits))


def test_four_starts_at_once_have_equal_bits(tmp_path: Path, environment: dict[str, str]) -> None:
    cache = tmp_path / "cache"
    starts = start_four(tmp_path, environment, "meet", [str(cache)] * 4)
    assert [each.status for each in starts] == [0] * 4, starts
    assert searched(tmp_path) == 1
    assert different(starts) == 1
    tables = {str(each.end.provenance.tuning) for each in starts if each.end is not None}
    assert len(tables) == 1
    names = sorted(path.suffix for path in (cache / "tuning").iterdir())
    assert names == [".json", ".lock"]


def test_the_one_that_searches_may_be_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    starts = start_four(tmp_path, environment, "die", [str(tmp_path / "cache")] * 4)
    assert sorted(each.status for each in starts) == [-signal.SIGKILL, 0, 0, 0], starts
    assert searched(tmp_path) == 2
    assert different(starts) == 1


def test_without_locks_the_first_wins(tmp_path: Path, environment: dict[str, str]) -> None:
    starts = start_four(tmp_path, environment, "lockless", [str(tmp_path / "cache")] * 4)
    assert [each.status for each in starts] == [0] * 4, starts
    assert searched(tmp_path) == 4
    assert different(starts) == 1


def test_without_a_common_cache_the_last_bits_differ(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """So the tests above can fail; and every process can do without a cache that it can write."""
    (tmp_path / "file").touch()
    starts = start_four(tmp_path, environment, "meet", [str(tmp_path / "file" / "cache")] * 4)
    assert [each.status for each in starts] == [0] * 4, starts
    assert searched(tmp_path) == 4
    assert different(starts) > 1
