"""Workers that crash, fail or are asked to end; in a process of their own, which forks them."""

from __future__ import annotations

import sys
from pathlib import Path

from ..support.ran import ran

_SCRIPT = r"""
import os, signal, sys, time
from pathlib import Path
from dnnstack.common.errors import DatasetError, DnnstackError, Interrupted
from dnnstack.many.screen import Said, Screen
from dnnstack.many.workers import Crew
from dnnstack.training.signals import StopSignals

def crash(say, ends):
    if not Path("lost").exists():
        say(Said("begun", 4))
        os.kill(os.getpid(), signal.SIGSEGV)

def crash_first(say, ends):
    os.kill(os.getpid(), signal.SIGSEGV)

def fail(say, ends):
    try:
        os.close(os.open("first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        while not ends():
            time.sleep(0.02)
        Path("ended").touch()
        return
    raise DatasetError("no such data", "  in b.idx\x1b[1m")

def nothing_saved(say, ends):
    try:
        os.close(os.open("asked", os.O_CREAT | os.O_EXCL))
        os.kill(MAIN, signal.SIGINT)
    except FileExistsError:
        pass  # a second signal would end it at once
    while not ends():
        time.sleep(0.02)
    raise Interrupted("interrupted before the first step; there was nothing to save")

def leave(say, ends):
    os._exit(1)

def asked(say, ends):
    os.kill(os.getpid(), signal.SIGTERM)
    while not ends():
        time.sleep(0.02)
    os._exit(128 + signal.SIGTERM)

MAIN = os.getpid()

def lost(trial, why):
    print(trial, why)
    Path("lost").touch()

with StopSignals() as stop:
    try:
        Crew(globals()[sys.argv[1]], Screen(), lost, stop.requested).run(2)
    except DnnstackError as error:
        print(type(error).__name__, error)
"""


def _ended(work: str, folder: Path) -> str:
    done = ran([sys.executable, "-W", "error", "-c", _SCRIPT, work], cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_trial_that_crashes_again_and_again_is_given_up(tmp_path):
    text = _ended("crash", tmp_path)
    assert text == "4 its process was ended by SIGSEGV, 3 times\n"


def test_workers_that_crash_before_they_have_a_trial_are_not_started_for_ever(tmp_path):
    text = _ended("crash_first", tmp_path)
    assert text.startswith("TrainingError 3 workers were ended by SIGSEGV before they had a trial")


def test_a_worker_that_leaves_is_an_error_and_one_that_was_asked_to_is_none(tmp_path):
    text = _ended("leave", tmp_path)
    assert text == "TrainingError a worker has ended with status 1; its messages are above\n"
    assert _ended("asked", tmp_path) == ""


def test_workers_that_are_ended_before_they_have_saved_anything_are_no_error(tmp_path):
    assert _ended("nothing_saved", tmp_path) == ""


def test_an_error_of_one_ends_the_others_and_is_told_once(tmp_path):
    text = _ended("fail", tmp_path)
    assert text == "TrainingError no such data\n  in b.idx\\x1b[1m\n"
    assert (tmp_path / "ended").exists()
