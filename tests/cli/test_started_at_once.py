"""First starts at once, with no choices stored yet, end in the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from dnnstack.backends.select import open_backend
from dnnstack.training.records.formats.checkpoint import Checkpoint
from dnnstack.training.records.formats.store import newest_checkpoint

from ..support.at_once import MEETING
from ..support.stored import beside

SCRIPT = Path(__file__).parents[1] / "support" / "at_once.py"
CONFIG = beside(__file__, "started_at_once_config.yaml")
TRAIN = ("train", "--config", "net.yaml", "--device", "cpu", "--threads", "1")


@pytest.fixture(autouse=True, scope="module")
def _onednn():
    if open_backend("cpu", 1, lambda text: None).name != "onednn":
        pytest.skip("oneDNN cannot be loaded")


@dataclass(frozen=True)
class Start:
    """A process of them; ``end`` is its last checkpoint, None if it was killed."""

    status: int
    errors: str
    end: Checkpoint | None


def prepare(folder: Path) -> None:
    (folder / "meeting").mkdir()
    (folder / "net.yaml").write_text(CONFIG, encoding="utf-8")


def start(
    folder: Path, environment: dict[str, str], mode: str, number: int, cache: str
) -> subprocess.Popen[str]:
    own = (str(number), str(folder / "meeting"), mode)
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *own, *TRAIN, "--runs-dir", f"runs-{number}"],
        cwd=folder,
        env={**environment, "DNNSTACK_CACHE": cache},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_all(folder: Path, environment: dict[str, str], mode: str, cache: Path) -> list[Start]:
    prepare(folder)
    children = [start(folder, environment, mode, number, str(cache)) for number in range(MEETING)]
    found = []
    for number, child in enumerate(children):
        _, errors = child.communicate(timeout=300)
        checkpoints = folder / f"runs-{number}" / "net" / "checkpoints"
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


@pytest.mark.parametrize(
    ("mode", "killed", "searches"), [("meet", 0, 1), ("die", 1, 2), ("lockless", 0, MEETING)]
)
def test_starts_at_once_have_equal_bits(tmp_path, environment, mode, killed, searches):
    """With locks; with the one killed that searches; and without locks, where the first wins."""
    starts = start_all(tmp_path, environment, mode, tmp_path / "cache")
    ends = [-signal.SIGKILL] * killed + [0] * (MEETING - killed)
    assert sorted(each.status for each in starts) == ends, starts
    assert searched(tmp_path) == searches
    assert different(starts) == 1
    tables = {str(each.end.provenance.tuning) for each in starts if each.end is not None}
    assert len(tables) == 1
    names = sorted(path.suffix for path in (tmp_path / "cache" / "tuning").iterdir())
    assert names == [".json", ".lock"][: 1 + (mode != "lockless")]


def test_without_a_common_cache_the_last_bits_differ(tmp_path, environment):
    """So the tests above can fail; and every process can do without a cache that it can write."""
    (tmp_path / "file").touch()
    starts = start_all(tmp_path, environment, "meet", tmp_path / "file" / "cache")
    assert [each.status for each in starts] == [0] * MEETING, starts
    assert searched(tmp_path) == MEETING
    assert different(starts) > 1


def test_who_waits_says_for_whom_and_can_be_interrupted(tmp_path, environment):
    prepare(tmp_path)
    cache = str(tmp_path / "cache")
    with start(tmp_path, environment, "hang", 0, cache) as searching:
        while searched(tmp_path) == 0:
            assert searching.poll() is None
            time.sleep(0.05)
        with start(tmp_path, environment, "hang", 1, cache) as waiting:
            assert waiting.stderr is not None
            for line in waiting.stderr:
                if "is timing the calls of this network" in line:
                    break
            assert f"pid {searching.pid} on " in line
            waiting.send_signal(signal.SIGINT)
            assert "interrupted before the first step" in waiting.communicate(timeout=300)[0]
            assert waiting.returncode == 130
        searching.kill()
    assert searched(tmp_path) == 1
