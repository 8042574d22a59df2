"""Runs command lines in children that signal, kill or mislead themselves at a chosen point.

A script: it imports everything once and forks for each job, so that a start takes milliseconds. One
thread and the numpy backend alone make forking safe. A job is a line of JSON, ``argv``, ``cwd``,
``out`` (a file for both outputs) and the points of ``_arm``; the answer is the wait status. Curves
are written, but not drawn, which takes longer than all else that these trainings do.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dnnstack.configs
import numpy as np
from commands import import_everything  # beside this script
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.reference.executable import ReferenceExecutable
from dnnstack.backends.reference.kernels import KERNELS, Kernel
from dnnstack.cli.main import main
from dnnstack.common import files
from dnnstack.graph.ops import SgdUpdate
from dnnstack.reports import plots
from dnnstack.training import divergence, pace, trainer
from dnnstack.training.records.formats import store as checkpoint_store
from dnnstack.training.reporter import Reporter
from dnnstack.training.session import Session

Call = Callable[..., Any]

# Where the phases of a training begin.
PHASES: dict[str, tuple[Any, str]] = {
    "config": (dnnstack.configs, "load_config"),
    "data": (trainer, "load_data"),
    "compile": (ReferenceBackend, "compile"),
    "train": (Session, "run"),
    "validation": (ReferenceExecutable, "run"),
    "before validation": (Session, "validate"),
    "saving": (checkpoint_store, "write_checkpoint"),
    "end": (Reporter, "_summary"),
}
SYSTEM_CALLS = ("open", "fdopen", "fsync", "replace", "close")


def _around(owner: Any, name: str, wrap: Callable[[Call, Any, Any], Any]) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        return wrap(real, args, kwargs)

    setattr(owner, name, call)


def _signal_in(phase: str, number: int, at_call: int, seconds: float, again: int | None) -> None:
    """Send the signal at the n-th call of what begins the phase, which then takes so long.

    ``again``: another one as soon as the first was noticed.
    """
    left, sent = [at_call], threading.Event()

    def wrap(real: Call, args: Any, kwargs: Any) -> Any:
        if phase != "validation" or args[1] == "evaluate":
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), number)
                sent.set()
                if again is not None:
                    time.sleep(0.5)
                    os.kill(os.getpid(), again)
                time.sleep(seconds)
        return real(*args, **kwargs)

    _around(*PHASES[phase], wrap)
    if phase == "saving" and at_call == 1:
        # A thread saves: the few steps that are left could be done before it comes to signal.
        _around(Session, "run", functools.partial(_wait_after_first_epoch, sent))


def _wait_after_first_epoch(sent: threading.Event, real: Call, args: Any, kwargs: Any) -> Any:
    if args[0].step >= args[0].plan.steps_per_epoch:
        sent.wait(30)
    return real(*args, **kwargs)


def _count_calls(kill_at: int, count_file: str | None) -> None:
    """SIGKILL at the n-th point: before and after each system call of a write, each deletion.

    0 kills never. ``count_file`` learns how many points there are.
    """
    points = [0]
    # The thread that saves and the one that trains both come by.
    lock = threading.Lock()

    def point() -> None:
        with lock:
            points[0] += 1
            if points[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if count_file is not None:
                Path(count_file).write_text(str(points[0]))

    def wrap(real: Call, args: Any, kwargs: Any) -> Any:
        point()
        result = real(*args, **kwargs)
        point()
        return result

    class System:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

    system = System()
    for name in SYSTEM_CALLS:
        setattr(system, name, functools.partial(_wrapped, getattr(os, name), wrap))
    files.os = system  # type: ignore[assignment]
    _around(os, "unlink", wrap)


def _wrapped(real: Call, wrap: Callable[[Call, Any, Any], Any], *args: Any, **kwargs: Any) -> Any:
    return wrap(real, args, kwargs)


def _nan_at(step_wanted: int, above: float) -> None:
    """A gradient that is nan at a step, as long as the learning rate is above so much."""
    kernel = KERNELS[SgdUpdate]

    def compute(op: SgdUpdate, gradients: Any, rates: Any, step: Any, *rest: Any) -> Any:
        if int(step[0]) == step_wanted - 1 and rates[int(step[0])] > above:
            gradients = (gradients[0] * np.float32(np.nan), *gradients[1:])
        return kernel.compute(op, gradients, rates, step, *rest)

    KERNELS[SgdUpdate] = Kernel(compute, kernel.function)
    # When the parameters are looked at depends on the clock; here only where they must be.
    divergence._SHARE = 1e-9


def _slow_disk(seconds: float, steps_file: str) -> None:
    """Let every checkpoint take so long, and the file say how many steps are done."""
    pace.CHUNK_SECONDS = 0.0
    file = os.open(steps_file, os.O_WRONLY)

    def count(real: Call, args: Any, kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        # In one call: a kill leaves the old number or the new one.
        os.pwrite(file, f"{args[0].step:9}".encode(), 0)
        return result

    def wait(real: Call, args: Any, kwargs: Any) -> Any:
        time.sleep(seconds)
        return real(*args, **kwargs)

    _around(Session, "run", count)
    _around(checkpoint_store, "write_checkpoint", wait)


def _arm(job: dict[str, Any]) -> None:
    if "signal" in job:
        _signal_in(
            job["phase"],
            job["signal"],
            job.get("at_call", 1),
            job.get("seconds", 0.0),
            job.get("again"),
        )
    if "kill_at" in job:
        _count_calls(job["kill_at"], job.get("count_file"))
    if "save_seconds" in job:
        _slow_disk(job["save_seconds"], job["steps_file"])
    if "nan_at" in job:
        _nan_at(job["nan_at"], job["nan_above"])


def _child(job: dict[str, Any]) -> None:
    status = 99
    try:
        out = os.open(job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(job["cwd"])
        _arm(job)
        status = main(job["argv"])
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def serve() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        began = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            _child(job)
        if "kill_after" in job:
            time.sleep(job["kill_after"])
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(json.dumps([status, time.perf_counter() - began]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    import_everything()
    plots._png = lambda points, run: b"a picture" * 1000
    serve()
