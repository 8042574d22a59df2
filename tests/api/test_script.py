"""As in a notebook or a script: many calls in one process, in an event loop, in a thread.

The script has no ``if __name__ == "__main__"``. Nothing may be printed that was not asked for, and
nobody's handlers of signals may be taken.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.ran import ran
from ..support.training_fixtures import TINY

# What the cells of a notebook would do; each ends in a state that the next one relies on.
CELLS = """
import asyncio, logging, signal, sys, threading, warnings
warnings.simplefilter("error")
import dnnstack
assert "numpy" not in sys.modules
before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

def unchanged():
    return before == {number: signal.getsignal(number) for number in before}

config = dnnstack.load_config("tiny.yaml", {"run.device": DEVICE}).model_dump()
first = dnnstack.train(config)
assert unchanged()

import numpy as np
model = dnnstack.load(first.run, device=DEVICE)
pictures = np.zeros((5, 28, 28), np.uint8)
answers = model.predict(pictures)

async def serve():
    # A call in the loop's own thread, one in another, and two trainings at once.
    assert (model.predict(pictures) == answers).all()
    found = await asyncio.to_thread(model.predict_proba, pictures)
    assert (model.classes_[found.argmax(1)] == answers).all()
    handlers = signal.getsignal(signal.SIGINT)
    here = dnnstack.train(config)
    assert signal.getsignal(signal.SIGINT) is handlers
    both = await asyncio.gather(*(asyncio.to_thread(dnnstack.train, config) for _ in "ab"))
    return [here, *both]

more = asyncio.run(serve())
assert len({history.run for history in (first, *more)}) == 4
assert all(history.history == first.history for history in more)
assert unchanged()

taken = []
def in_thread():
    taken.append(dnnstack.train(config, callbacks=[lambda logs: taken.append(unchanged())]))
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
assert all(taken)

assert dnnstack.load(device=DEVICE).evaluate().count == 20
try:
    dnnstack.load("none")
except dnnstack.DnnstackError as error:
    assert "none: no such run" in str(error)
else:
    raise AssertionError
assert logging.getLogger().handlers == []
assert unchanged()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    return tmp_path


def _environment(folder: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DNNSTACK_")}
    return {**kept, "DNNSTACK_CACHE": str(folder / "cache"), "DNNSTACK_OFFLINE": "1"}


def _run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text, encoding="utf-8")
    return ran([sys.executable, "script.py"], cwd=folder, env=_environment(folder), check=False)


@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_a_notebook_in_one_process(folder, device):
    done = _run(folder, f"DEVICE = {device!r}\n{CELLS}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_is_asked_for_is_printed(folder):
    text = "import dnnstack\ndnnstack.train('tiny.yaml', device='numpy', verbose=True)\n"
    done = _run(folder, text)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "run         runs/tiny"
    assert any(re.fullmatch(r"step +\d+/25  epoch .*", line) for line in lines)
    assert any(line.startswith("epoch 1: validation loss ") for line in lines)
    assert any(line.startswith("finished    at step 25 of 25") for line in lines)


def test_logging_shows_what_the_commands_note(folder):
    text = (
        "import logging\nlogging.basicConfig(level=logging.INFO)\nimport dnnstack\n"
        "dnnstack.train('tiny.yaml', device='numpy')\ndnnstack.load(device='numpy')\n"
    )
    done = _run(folder, text)
    assert done.returncode == 0
    assert "INFO:dnnstack:using runs/tiny, the latest run" in done.stderr


_INTERRUPTED = """
import os, signal, dnnstack
def press(logs):
    if logs["step"] >= 10:
        os.kill(os.getpid(), signal.SIGINT)
try:
    dnnstack.train("tiny.yaml", device="numpy", callbacks=[press])
except KeyboardInterrupt as error:
    print(error)
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(dnnstack.train("tiny.yaml", device="numpy", resume=True).step)
"""


def test_ctrl_c_saves_and_is_raised(folder):
    done = _run(folder, _INTERRUPTED)
    assert done.stderr == ""
    first, kept, resumed = done.stdout.splitlines()
    found = re.fullmatch(
        r"training was interrupted at step (\d+) and saved; continue with resume='runs/tiny'", first
    )
    assert found is not None
    assert 10 <= int(found[1]) < 25
    assert (kept, resumed) == ("True", "25")


def test_a_program_with_its_own_handler_keeps_it(folder):
    own = "heard = []\nsignal.signal(signal.SIGINT, lambda *given: heard.append(1))\n"
    text = _INTERRUPTED.replace("def press", f"{own}def press", 1)
    done = _run(folder, f"{text}print(bool(heard))\n")
    assert (done.returncode, done.stdout) == (0, "25\nTrue\n")


def test_an_ignored_interrupt_stays_ignored(folder):
    """As under nohup or in the background of a shell script."""
    done = _run(
        folder,
        _INTERRUPTED.replace(
            "def press", "signal.signal(signal.SIGINT, signal.SIG_IGN)\ndef press", 1
        ),
    )
    assert (done.returncode, done.stdout) == (0, "25\n")
    assert signal.getsignal(signal.SIGINT) is not None
