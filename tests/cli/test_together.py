"""``--together``: threads of one process train what is trained one after the other, to the bit.

There is no GPU here, so a script lets another device pass where the command asks for one.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.common.errors import DatasetError, Interrupted, UsageError
from dnnstack.many.group import Taken
from dnnstack.many.outcome import Outcome
from dnnstack.many.screen import Said, Screen
from dnnstack.many.together import Together, check_together, worth
from dnnstack.training.records.group import Group, Member
from dnnstack.training.signals import StopSignals

from ..support.ran import ran
from .conftest import TINY
from .test_groups import SHORT, TRAIN
from .test_side_by_side import _left, _trains

_SCRIPT = """
import sys
from dnnstack.cli import run
from dnnstack.many import trainings
trainings.check_together = lambda device, workers: None
sys.exit(run())
"""
_SWEEP = ("sweep", *TRAIN[1:], "--workers", "2", "--together")
_SEARCH = """\
search:
  sampler: grid
  keys: {optimizer.lr: [0.03, 1.0e+30, 0.1, 0.05], optimizer.momentum: [0.0, 0.9]}
"""


def _begun(folder: Path, environment: dict[str, str], *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _SCRIPT, *argv],
        cwd=folder,
        env={**environment, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _together(folder: Path, environment: dict[str, str], *argv: str) -> tuple[int, str]:
    with _begun(folder, environment, *argv) as process:
        text = process.communicate(timeout=300)[0]
    return process.returncode, text


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("kind", ["seeds", "folds"])
def test_they_are_the_runs_that_are_made_one_after_the_other(kind, run, environment, tiny):
    run(*TRAIN, f"--{kind}", "3", status=0)
    argv = (*TRAIN, f"--{kind}", "3", "--workers", "2", "--together")
    status, text = _together(tiny, environment, *argv)
    assert status == 0, text
    assert "workers     2, in one process" in text
    assert text.count(": finished, accuracy ") == 3
    group = tiny / f"runs/tiny-{kind}"
    assert len(_left(group)) == 3
    assert _left(group.with_name(f"{group.name}-2")) == _left(group)


def test_trials_that_do_not_depend_on_each_other_are_the_same_and_a_failed_one_ends_alone(
    run, environment, tiny
):
    (tiny / "tiny.yaml").write_text(TINY + _SEARCH, encoding="utf-8")
    run("sweep", *TRAIN[1:], "--workers", "1", status=0)
    status, text = _together(tiny, environment, *_SWEEP)
    assert status == 0, text
    assert "workers     2, in one process" in text
    found = []
    for name in ("tiny-sweep", "tiny-sweep-2"):
        lines = (tiny / "runs" / name / "trials.jsonl").read_text("utf-8").splitlines()
        ends = [{**json.loads(line), "seconds": 0} for line in lines]
        found.append(sorted((end for end in ends if end["event"] == "end"), key=_number))
        metrics = sorted((tiny / "runs" / name).glob("trial-*/metrics.csv"))
        found[-1] += [(path.parent.name, path.read_text("utf-8")) for path in metrics]
        found[-1].append((tiny / "runs" / name / "best.yaml").read_bytes())
    assert found[0] == found[1]
    states = [end["state"] for end in found[0] if isinstance(end, dict)]
    assert states.count("failed") == 2
    assert states.count("complete") == 6


def _number(line: dict[str, int]) -> int:
    return line["trial"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_a_signal_ends_goes_on_to_the_same_bits(number, run, environment, tiny):
    argv = (*TRAIN, "--seeds", "3", "--workers", "2", "--together", "--set", "train.epochs=12")
    with _begun(tiny, environment, *argv) as process:
        _trains(tiny, 2)
        process.send_signal(number)
        text = process.communicate(timeout=300)[0]
    if number == signal.SIGKILL:
        assert process.returncode == -number, text
    else:
        assert process.returncode == 128 + number, text
        last = text.splitlines()[-1]
        assert "--seeds 3 --workers 2 --together --resume runs/tiny-seeds" in last
        logs = [path.read_text("utf-8") for path in tiny.glob("runs/tiny-seeds/seed-*/log.jsonl")]
        states = [json.loads(log.splitlines()[-1])["state"] for log in logs]
        assert states == ["interrupted"] * 2, text
    status, text = _together(tiny, environment, *argv, "--resume")
    assert status == 0, text
    run(*TRAIN, "--seeds", "3", "--set", "train.epochs=12", status=0)
    left = _left(tiny / "runs/tiny-seeds-2")
    for name, (_, arrays) in _left(tiny / "runs/tiny-seeds").items():
        assert arrays == left[name][1]


def test_it_is_refused_where_it_has_no_use(run, tiny):
    words = "--together needs a GPU; on a CPU the processes of --workers N share the cores"
    seeds = (*TRAIN, "--seeds", "2", "--workers", "2", "--together")
    for argv, text in ((seeds, TINY), (_SWEEP, TINY + _SEARCH)):
        (tiny / "tiny.yaml").write_text(text, encoding="utf-8")
        done = run(*argv)
        assert done.returncode != 0
        assert words in done.stderr
    assert not (tiny / "runs").exists()
    assert "--together needs --seeds or --folds" in run(*TRAIN, "--together").stderr
    for workers in (None, 1):
        with pytest.raises(UsageError, match="--together needs --workers N"):
            check_together("cuda", workers)
    check_together("cuda", 2)


class _Loud(Screen):
    """Prints errors."""

    def error(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")


def _run(work: Callable[..., None], screen: Screen | None = None) -> None:
    with StopSignals() as stop:
        Together("reference", work, screen or Screen(), stop.requested).run(2)


def test_an_error_of_one_ends_the_others_in_order():
    first, ended = Taken(), []

    def work(say: Callable[[Said], None], ends: Callable[[], bool]) -> None:
        if first.take(0):
            raise DatasetError("no such data")
        while not ends():
            time.sleep(0.01)
        ended.append(True)

    with pytest.raises(DatasetError, match="no such data"):
        _run(work)
    assert ended == [True]


def test_every_fault_of_one_moment_is_told(capsys):
    """But none twice, and none that only says that it was ended."""
    faults = [
        Interrupted("ended"),
        DatasetError("no such data", "in a second line"),
        RuntimeError("a bug"),
        DatasetError("no such data", "in a second line"),
        DatasetError("another", "with a second line"),
    ]
    turns, begun = Taken(), threading.Barrier(len(faults))

    def work(say: Callable[[Said], None], ends: Callable[[], bool]) -> None:
        begun.wait(60)
        place = next(place for place in range(len(faults)) if turns.take(place))
        while len(together._faults) < place:
            time.sleep(0.001)
        raise faults[place]

    with StopSignals() as stop:
        together = Together("reference", work, _Loud(), stop.requested)
        with pytest.raises(DatasetError, match="no such data\nin a second line"):
            together.run(len(faults))
    assert capsys.readouterr().err.splitlines() == [
        "RuntimeError: a bug",
        "another with a second line",
    ]


def test_an_error_of_the_screen_ends_all_in_order():
    interval = sys.getswitchinterval()
    ended = []

    def work(say: Callable[[Said], None], ends: Callable[[], bool]) -> None:
        say(Said("line", text="a line"))
        while not ends():
            time.sleep(0.01)
        ended.append(threading.current_thread().name)

    class Broken(Screen):
        def hear(self, said: Said) -> None:
            raise BrokenPipeError(said.text)

    with pytest.raises(BrokenPipeError, match="a line"):
        _run(work, Broken())
    assert sorted(ended) == ["training 1", "training 2"]
    assert sys.getswitchinterval() == interval


# The first run is followed by the others, as on a GPU where they take long enough.
_SPREADS = """
import sys
from dnnstack.cli import run
from dnnstack.backends import select
from dnnstack.many import planned, together
select.room = lambda device: 2
together.WORTH = {{True: {least}, False: 1e9}}
worth, open_backend = together.worth, select.open_backend
asked = []
def on_gpu(device, *others):
    found = worth("cuda", *others)
    asked.append((device, found[0], others[-1]()))
    return found
together.worth = on_gpu
members = planned.Planned.members
def failing(self, config):
    first, second, *others = members(self, config)
    bad = [planned.Member(each.name, (*each.settings, *{fails})) for each in (first, second)]
    return (*bad, *others)
planned.Planned.members = failing
{more}
status = run()
print("asked", asked)
sys.exit(status)
"""
# The second of the devices that are opened for the runs behind the first cannot be.
_FULL = """
from dnnstack.training import fitting
from dnnstack.common.errors import LibraryError
opening, opened = fitting.open_device, []
def full(*arguments):
    opened.append(1)
    if len(opened) == 3:
        raise LibraryError("CUDA", "cudaMalloc", "out of memory", {})
    return opening(*arguments)
fitting.open_device = full
"""


def _spread(
    folder: Path,
    environment: dict[str, str],
    *argv: str,
    least: float = 0.0,
    fails: str = "",
    more: str = "",
) -> tuple[int, str, str]:
    script = _SPREADS.format(least=least, fails=[fails] if fails else [], more=more)
    done = ran(
        [sys.executable, "-W", "error", "-c", script, *argv],
        cwd=folder,
        env={**environment, "OPENBLAS_NUM_THREADS": "1"},
    )
    *lines, last = done.stdout.splitlines()
    return done.returncode, done.stderr + "\n".join(lines), last


def test_the_runs_behind_the_first_are_trained_together_where_that_is_faster(
    run, environment, tiny
):
    run(*TRAIN, "--seeds", "4", status=0)
    status, text, asked = _spread(tiny, environment, *TRAIN, "--seeds", "4")
    assert status == 0, text
    # Before the first run nothing is known.
    assert asked == "asked [('numpy', 1, 6), ('numpy', 2, 6)]"
    assert "together    the 3 runs left, 2 at a time" in text
    assert text.count(": finished, accuracy ") == 3
    left = _left(tiny / "runs/tiny-seeds-2")
    assert len(left) == 4
    assert left == _left(tiny / "runs/tiny-seeds")
    # As many as are asked for stay so, and short ones follow each other.
    short = [("numpy", 1, 6)] * 4
    for options, least, wanted in ((("--workers", "1"), 0.0, []), ((), 1e9, short)):
        found = _spread(tiny, environment, *TRAIN, "--seeds", "3", *options, *SHORT, least=least)
        assert found[0] == 0, found[1]
        assert "together" not in found[1]
        assert found[2] == f"asked {wanted}"


def test_what_the_finished_runs_took_is_known_after_a_resume(run, environment, tiny):
    run(*TRAIN, "--seeds", "2", *SHORT, status=0)
    status, text, asked = _spread(tiny, environment, *TRAIN, "--seeds", "5", *SHORT, "--resume")
    assert status == 0, text
    assert asked == "asked [('numpy', 2, 6)]"
    assert "together    the 3 runs left, 2 at a time" in text


def test_a_run_that_has_failed_before_is_not_trained_again_beside_the_others(environment, tiny):
    # The first two diverge.
    settings = "optimizer={type: sgd, lr: 1.0e+30}"
    status, text, asked = _spread(tiny, environment, *TRAIN, "--seeds", "5", fails=settings)
    assert status == 1, text
    assert (text.count("seed-1: "), text.count("seed-2: ")) == (2, 2)
    assert text.count(": finished, accuracy ") == 2
    assert "together    the 2 runs left, 2 at a time" in text
    assert asked == "asked [('numpy', 1, 6), ('numpy', 1, 6), ('numpy', 1, 6), ('numpy', 2, 6)]"


def test_what_cannot_be_trained_together_is_trained_in_turn(run, environment, tiny):
    run(*TRAIN, "--seeds", "4", *SHORT, status=0)
    status, text, _ = _spread(tiny, environment, *TRAIN, "--seeds", "4", *SHORT, more=_FULL)
    assert status == 0, text
    assert "out of memory" in text
    assert "the runs left are trained one after the other" in text
    assert "seed-4: run 4 of 4" in text
    assert _left(tiny / "runs/tiny-seeds-2") == _left(tiny / "runs/tiny-seeds")


@pytest.mark.parametrize(
    ("device", "seconds", "layers", "room", "count"),
    [
        # Seconds of each run, above 0 of those that have finished.
        ("cuda", [2.2, 0, 0, 0, 0, 0, 0, 0], 17, 9, 4),
        ("cuda", [2.0, 0, 0, 0, 0, 0, 0, 0], 17, 9, 1),
        ("cuda", [2.0, 0, 0, 0, 0, 0, 0, 0], 16, 9, 4),
        ("cuda", [0.5, 0, 0, 0, 0, 0, 0, 0], 16, 9, 1),
        ("cuda", [9.0, 0, 0, 0, 0, 0], 9, 9, 3),
        ("cuda", [9.0, 0, 0, 0, 0, 0], 9, 2, 2),
        ("cuda", [9.0, 0, 0, 0, 0, 0], 9, 1, 1),
        ("cuda", [9.0, 0, 0, 0, 0, 0], 9, 0, 1),
        ("cuda", [90.0, 0], 9, 9, 1),
        ("cuda", [90.0, 0, 0], 9, 9, 2),
        ("cuda", [0, 0, 0, 0], 9, 9, 1),
        # What is done of those that have not finished, as their logs have it.
        ("cuda", [9.0, -8.5, -8.5, -7.5], 9, 9, 1),
        ("cuda", [9.0, -8.5, -8.5, -5.5], 9, 9, 3),
        ("onednn", [90.0, 0, 0, 0], 9, 9, 1),
    ],
)
def test_how_many_runs_are_worth_to_be_trained_together(
    device, seconds, layers, room, count, monkeypatch
):
    found = {f"seed-{number}": taken for number, taken in enumerate(seconds)}
    members = [Member(name, ()) for name in found]
    monkeypatch.setattr("dnnstack.backends.select.room", lambda device: room)
    group = Group("seeds", "", tuple(members))
    monkeypatch.setattr("dnnstack.many.together.read_group", lambda path: group)
    monkeypatch.setattr(
        "dnnstack.many.together.outcome",
        lambda path: Outcome(found[path.name] > 0, seconds=abs(found[path.name])),
    )
    asked = worth(device, Path("group"), (), lambda: layers)
    assert asked[0] == count
    if device == "cuda":
        assert asked[1] == [name for name, taken in found.items() if taken <= 0]
