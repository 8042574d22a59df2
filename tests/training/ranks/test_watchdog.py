"""A process that waits for others too long ends; one that does something else does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from dnnstack.training.ranks import watchdog
from dnnstack.training.ranks.watchdog import Watchdog, condition

ARMED = """
import time
from dnnstack.training.ranks.watchdog import Watchdog
watchdog = Watchdog({deadline}, lambda: "no answer")
{body}
print("went on")
"""
WAITS = "with watchdog.armed():\n    time.sleep(60)"
WORKS = "time.sleep(1.5)\nwith watchdog.armed():\n    pass\ntime.sleep(1.0)"
# Ten short waits are not one long one.
OFTEN = "for _ in range(10):\n    with watchdog.armed():\n        time.sleep(0.3)"
NESTED = "with watchdog.armed():\n    with watchdog.armed():\n        pass\n    time.sleep(60)"


@pytest.mark.parametrize(
    ("body", "ends"), [(WAITS, True), (WORKS, False), (OFTEN, False), (NESTED, True)]
)
def test_only_a_long_wait_for_others_ends_a_process(body, ends):
    code = ARMED.format(deadline=1.0, body=body)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    told = ("dnnstack: error: no answer\n", "") if ends else ("", "went on\n")
    assert (done.returncode, done.stderr, done.stdout) == (int(ends), *told)


def test_time_stands_still_while_the_process_itself_is_stopped():
    body = "print('waits', flush=True)\nwith watchdog.armed():\n    time.sleep(2.0)"
    code = ARMED.format(deadline=4.0, body=body)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    os.kill(process.pid, signal.SIGSTOP)
    while condition(process.pid) != "stopped":
        time.sleep(0.01)
    time.sleep(5.0)
    os.kill(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=50)[0] == "went on\n"
    assert process.returncode == 0
    assert condition(process.pid) == "ended"


def test_looks_are_counted_from_the_first_that_finds_it_armed(monkeypatch):
    looks = []
    found = Watchdog.__new__(Watchdog)
    found.deadline, found._turn, found._message = 1.0, 1, lambda: "no answer"
    monkeypatch.setattr(watchdog.time, "sleep", looks.append)
    monkeypatch.setattr(watchdog, "end", sys.exit)
    with pytest.raises(SystemExit, match="no answer"):
        found._look()
    assert looks == [watchdog.TICK] * 11
