"""Signals that ask for an end in every phase of a training, by real signals to real processes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from dnnstack.training.records.formats.store import checkpoint_steps, newest_checkpoint

Child = Callable[..., Any]
Run = Callable[..., subprocess.CompletedProcess[str]]

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
# What schedulers of jobs send before the time ends.
SCHEDULERS = {signal.SIGUSR1: 138, signal.SIGUSR2: 140, signal.SIGXCPU: 152}
TRAIN = ("train", "--config", "tiny.yaml", "--device", "numpy", "--threads", "1")


@pytest.fixture
def folder(run, tmp_path):
    """It holds ``tiny.yaml``: 2 epochs of 13 steps, a validation and a checkpoint after each."""
    with (tmp_path / "tiny.yaml").open("a") as file:
        file.write("checkpoint: {every_epochs: 1}\n")
    return tmp_path


def _same_as(trained: Path, folder: Path) -> None:
    """The run of ``folder`` ended in the bits of the undisturbed one, its metrics too."""
    ends = [
        newest_checkpoint(place / "runs" / "tiny" / "checkpoints") for place in (trained, folder)
    ]
    one, two = ({n: a.tobytes() for n, a in end.arrays.items()} for end in ends)
    assert one == two
    assert ends[0].state.best == ends[1].state.best
    rows = [(place / "runs/tiny/metrics.csv").read_text("utf-8") for place in (trained, folder)]
    assert rows[0] == rows[1]


def _go_on(child: Child, folder: Path, text: str) -> str:
    """Run the command that the last line names; what it prints."""
    line = text.splitlines()[-1]
    assert re.match(r"(resume|start) with +dnnstack train ", line), text
    ended = child(folder, *shlex.split(line.partition("dnnstack ")[2]))
    assert ended.status == 0, ended.text
    return str(ended.text)


@pytest.mark.parametrize(
    ("phase", "number"),
    [("config", signal.SIGHUP), ("data", signal.SIGINT), ("compile", signal.SIGTERM)],
)
def test_before_the_first_step_there_is_nothing_to_save(child, folder, trained, phase, number):
    # Reading the data would take a minute, which nobody waits for.
    seconds = 60.0 if phase == "data" else 0.0
    ended = child(folder, *TRAIN, phase=phase, signal=number, seconds=seconds)
    assert ended.status == SIGNALS[number], ended.text
    assert "interrupted before the first step; there was nothing to save" in ended.text
    assert "saves and ends" not in ended.text
    if number == signal.SIGINT and phase != "config":
        assert "dnnstack: ends before the first step; Ctrl-C again ends now\n" in ended.text
    assert not (folder / "runs").exists()
    assert ended.seconds < 30
    _go_on(child, folder, ended.text)
    _same_as(trained, folder)


@pytest.mark.parametrize(
    ("phase", "at_call", "number"),
    [
        ("train", 2, signal.SIGHUP),
        ("validation", 1, signal.SIGINT),
        ("saving", 1, signal.SIGTERM),
        *(("train", 2, number) for number in SCHEDULERS),
    ],
)
def test_a_signal_saves_and_the_rest_is_as_if_it_had_not_come(
    child, folder, trained, phase, at_call, number
):
    seconds = 0.3 if phase == "saving" else 0.0
    ended = child(folder, *TRAIN, phase=phase, signal=number, at_call=at_call, seconds=seconds)
    assert ended.status == {**SIGNALS, **SCHEDULERS}[number], ended.text
    match = re.search(r"^interrupted at step (\d+) of 26 ", ended.text, re.MULTILINE)
    assert match is not None
    step = int(match[1])
    assert checkpoint_steps(folder / "runs/tiny/checkpoints")[0] == step
    if phase == "validation":
        assert step == 13
        assert "validation loss" not in ended.text
    resumed = _go_on(child, folder, ended.text)
    assert f"resumed     at step {step} (epoch {step / 13:.2f}), from runs/tiny" in resumed
    _same_as(trained, folder)


@pytest.mark.parametrize("phase", ["before validation", "saving", "end"])
def test_a_signal_in_the_last_moments(child, folder, trained, phase):
    """The last validation is made up for; a training that has finished stays finished."""
    at_call = 1 if phase == "end" else 2
    seconds = 0.3 if phase == "saving" else 0.0
    ended = child(folder, *TRAIN, phase=phase, signal=15, at_call=at_call, seconds=seconds)
    assert ended.status == 143, ended.text
    if phase == "before validation":
        assert "interrupted at step 26 of 26" in ended.text
        resumed = _go_on(child, folder, ended.text)
        assert "already at its end" not in resumed
        assert "epoch 2: validation loss" in resumed
    else:
        assert "finished    at step 26 of 26" in ended.text
        assert ended.text.splitlines()[-1] == "next        dnnstack eval"
    _same_as(trained, folder)


@contextmanager
def _start(
    command: list[str], folder: Path, environment: dict[str, str], **more: Any
) -> Iterator[Any]:
    """A training without an end."""
    text = (folder / "tiny.yaml").read_text("utf-8").replace("epochs: 2", "epochs: 100000")
    (folder / "long.yaml").write_text(text, encoding="utf-8")
    with subprocess.Popen(
        [*command, "train", "--config", "long.yaml", "--device", "numpy", "--threads", "1"],
        cwd=folder,
        env=environment,
        stdout=more.pop("stdout", subprocess.PIPE),
        stderr=more.pop("stderr", subprocess.PIPE),
        **more,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_for_steps(process: Any) -> None:
    for line in process.stdout:
        if line.startswith(b"step "):
            return
    raise AssertionError(process.communicate())


def test_a_second_interrupt_does_not_wait_for_saving(child, folder):
    """The first comes while a step is computed, the second while that is saved, slowly."""
    ended = child(
        folder, *TRAIN, phase="saving", signal=signal.SIGINT, seconds=60.0, again=signal.SIGINT
    )
    assert ended.status == -signal.SIGINT
    assert ended.seconds < 30


def test_what_an_interrupt_does_is_told_on_a_line_of_its_own(command, folder, environment):
    with _on_terminal(command, folder, environment) as (process, parent):
        shown = b""
        os.write(parent, b"\x03")
        with suppress(OSError):
            while piece := os.read(parent, 4096):
                shown += piece
        assert process.wait(60) == 130
    os.close(parent)
    lines = shown.decode().replace("\r", "\n").split("\n")
    assert "dnnstack: saves and ends after this step; Ctrl-C again ends now, unsaved" in (lines)


@contextmanager
def _on_terminal(
    command: list[str], folder: Path, environment: dict[str, str]
) -> Iterator[tuple[Any, int]]:
    """A training on a terminal of its own, once it has shown a loss, and that terminal's end."""

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    parent, terminal = pty.openpty()
    ends = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    with _start(command, folder, environment, **ends, preexec_fn=own_terminal) as process:
        os.close(terminal)
        shown = b""
        while b"loss" not in shown:
            shown += os.read(parent, 4096)
        yield process, parent


def test_a_closed_terminal(command, folder, environment):
    """The kernel sends SIGHUP and no word can be written any more; it saves all the same."""
    with _on_terminal(command, folder, environment) as (process, parent):
        os.close(parent)
        assert process.wait(60) == 129
    newest = newest_checkpoint(folder / "runs" / "long" / "checkpoints")
    log = (folder / "runs" / "long" / "log.jsonl").read_text("utf-8").splitlines()
    assert '"state": "interrupted"' in log[-1]
    assert newest.state.step > 0


def test_nohup_is_obeyed(command, folder, environment):
    ignoring = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command]
    with _start(ignoring, folder, environment) as process:
        _wait_for_steps(process)
        process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert b"loss" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143


def test_a_reader_that_goes_away_does_not_end_a_training(command, folder, environment):
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 2; echo "${PIPESTATUS-}"', "sh", *command, *TRAIN],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""
    assert checkpoint_steps(folder / "runs/tiny/checkpoints")[0] == 26


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_config_that_never_comes_can_be_given_up(tmp_path, command, environment, number):
    os.mkfifo(tmp_path / "pipe")
    with (
        subprocess.Popen(
            [*command, "train", "--config", "pipe"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        # Whoever writes waits for a reader: from then on the command reads, and nothing comes.
        (tmp_path / "pipe").open("wb"),
    ):
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == SIGNALS[number]
    assert out.startswith("interrupted before the first step; there was nothing to save\n")
