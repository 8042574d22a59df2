"""Starting ranks without a launcher of MPI: what they ask is answered, and all end together."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.training.ranks import world
from dnnstack.training.ranks.local import TRANSPORT, Ranks

from ...support.stored import cases

ASKS = """
import os, socket, sys, time
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
pmi = socket.socket(fileno=int(os.environ["PMI_FD"]))
lines = pmi.makefile("r")
def ask(text):
    pmi.sendall(f"cmd={text}\\n".encode())
    return lines.readline().strip()
def end(status):
    sys.stdout.flush()
    os._exit(status)
"""
LEAVES = 'ask("init pmi_version=1 pmi_subversion=1"); ask("finalize")\n'


def run(
    tmp_path: Path, body: str, count: int = 2, signals: Iterable[signal.Signals] = ()
) -> tuple[int, str]:
    """The status of ranks that all run this, and what they have printed."""
    with (tmp_path / "out").open("w+") as out:
        ranks = Ranks(count, [sys.executable, "-c", ASKS + body], out.fileno())
        status = ranks.run(signals)
        out.seek(0)
        return status, out.read()


def test_each_is_told_what_it_is(tmp_path: Path) -> None:
    names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    body = f'print(*[os.environ[n] for n in {names}], os.environ["UCX_TLS"], sys.stdin.read())\n'
    status, text = run(tmp_path, body, 3)
    assert status == 0
    tls = TRANSPORT["UCX_TLS"]
    assert sorted(text.split("\n")) == ["", *(f"{n} 3 {n} 3 {tls} " for n in range(3))]


def test_a_transport_that_the_user_has_chosen_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    assert run(tmp_path, 'print(os.environ["UCX_TLS"])\n', 1) == (0, "tcp\n")


def test_what_a_rank_asks_is_answered(tmp_path: Path) -> None:
    body = """
print(ask("init pmi_version=1 pmi_subversion=1"))
print(ask("get_maxes"))
print(ask("get_appnum"))
name = ask("get_my_kvsname")
print(ask("get kvsname=a key=PMI_process_mapping"))
print(ask("get kvsname=a key=nothing"))
print(ask("put kvsname=a key=place value=x=1;y"))
print(ask("get kvsname=a key=place"))
print(ask("spawn"))
print(ask("barrier_in"))
print(ask("finalize"))
print(name)
"""
    status, text = run(tmp_path, body, 1)
    *lines, name = text.splitlines()
    assert status == 0
    assert lines == [
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
        "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
        "cmd=appnum rc=0 appnum=0",
        "cmd=get_result rc=0 value=(vector,(0,1,1))",
        "cmd=get_result rc=1",
        "cmd=put_result rc=0",
        "cmd=get_result rc=0 value=x=1;y",
        "cmd=spawn_result rc=1",
        "cmd=barrier_out rc=0",
        "cmd=finalize_ack rc=0",
    ]
    # What another training shares, or has left behind, has another name.
    assert name.startswith("cmd=my_kvsname rc=0 kvsname=dnnstack_")
    assert run(tmp_path, body, 1)[1].splitlines()[-1] != name


def test_a_barrier_lets_nobody_through_before_all_have_come(tmp_path: Path) -> None:
    body = """
for turn in (0, 1):
    if rank == turn:
        time.sleep(0.4)
        open(f"{here}/came{turn}", "w").close()
    ask("barrier_in")
    assert os.path.exists(f"{here}/came{turn}")
"""
    assert run(tmp_path, f"here = {str(tmp_path)!r}\n{body}", 3) == (0, "")


@pytest.mark.parametrize(("body", "status"), cases(__file__, "one_that_ends_too_early_ends_all"))
def test_one_that_ends_too_early_ends_all(tmp_path: Path, body: str, status: int) -> None:
    began = time.monotonic()
    assert run(tmp_path, f"{body}time.sleep(100)\n", 3) == (status, "")
    assert time.monotonic() - began < 60


def test_one_that_has_left_lets_the_others_finish(tmp_path: Path) -> None:
    body = f"{LEAVES}if rank == 1: end(4)\ntime.sleep(0.5)\nprint(rank)\nend(3 * rank)\n"
    status, text = run(tmp_path, body, 3)
    assert (status, sorted(text.split())) == (4, ["0", "2"])
    assert run(tmp_path, f"{LEAVES}end(0)\n") == (0, "")


def test_without_a_thread_for_each_rank_all_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(OSError, match="can't start new thread"):
        run(tmp_path, f"time.sleep(5)\nopen({str(tmp_path / 'late')!r}, 'w').close()\n")
    assert not (tmp_path / "late").exists()


def test_signals_are_passed_on_unless_they_are_ignored(tmp_path: Path) -> None:
    body = """
import signal
signal.signal(signal.SIGUSR2, lambda *_: end(9))
open(f"{here}/ready{rank}", "w").close()
time.sleep(100)
"""
    ready = [tmp_path / f"ready{rank}" for rank in (0, 1)]

    def send() -> None:
        while not all(each.exists() for each in ready):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGUSR2)

    numbers = (signal.SIGHUP, signal.SIGUSR2)
    before = [signal.signal(n, signal.SIG_IGN) for n in numbers]
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        assert run(tmp_path, f"here = {str(tmp_path)!r}\n{body}", 2, numbers) == (9, "")
    finally:
        thread.join()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_room_in_shared_memory_is_looked_for_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs_result((4096, 4096, 20, 10, 10, 1, 1, 1, 0, 255))
    monkeypatch.setattr(world.os, "statvfs", lambda path: found)
    world.check_shared_memory(4, 10240)
    with pytest.raises(BackendUnavailableError) as caught:
        world.check_shared_memory(4, 10241)
    text = str(caught.value)
    assert "--ranks 4: MPI needs 0 MB of shared memory, but /dev/shm has 0 MB free;" in text
    assert "docker run --shm-size=1g" in text
    monkeypatch.undo()
    # Where there is none, MPI finds another way.
    monkeypatch.setattr(world, "SHARED", tmp_path / "none")
    world.check_shared_memory(4, 1 << 60)


@pytest.mark.parametrize(("chosen", "each"), [(None, 1_200_000), ("all", 6_000_000)])
def test_it_is_looked_for_by_the_transport(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str | None, each: int
) -> None:
    asked: list[tuple[int, int]] = []

    def check(*given: int) -> None:
        asked.append(given)  # type: ignore[arg-type]
        raise BackendUnavailableError("none")

    monkeypatch.setattr(world, "_REMOTE", ("NONE_",))
    monkeypatch.delenv("UCX_TLS", raising=False)
    if chosen:
        monkeypatch.setenv("UCX_TLS", chosen)
    (tmp_path / "hydra_pmi_proxy").touch()
    monkeypatch.setattr(world, "launcher", lambda: tmp_path / "mpiexec")
    monkeypatch.setattr(world, "check_mpi", lambda: None)
    monkeypatch.setattr(world, "check_shared_memory", check)
    with pytest.raises(BackendUnavailableError, match="none"):
        world.launch(5, [], ())
    assert asked == [(5, each)]


def test_more_processes_than_there_may_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_more(*given: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    (tmp_path / "hydra_pmi_proxy").touch()
    monkeypatch.setattr(world, "_REMOTE", ("NONE_",))
    monkeypatch.setattr(world, "launcher", lambda: tmp_path / "mpiexec")
    monkeypatch.setattr(world, "check_mpi", lambda: None)
    monkeypatch.setattr(world, "check_shared_memory", lambda *given: None)
    monkeypatch.setattr(world, "Ranks", no_more)
    monkeypatch.setattr(world.sys, "stdout", world.sys.__stdout__)
    with pytest.raises(BackendUnavailableError) as caught:
        world.launch(5, [], ())
    assert str(caught.value) == (
        "--ranks 5: so many processes cannot be started: Resource temporarily unavailable; use "
        "fewer ranks, or raise the limit: ulimit -u"
    )
