"""Runs command lines in forked children, in which the shim is armed.

A script, started with the shim in LD_PRELOAD. It runs a training, an evaluation and a prediction
once itself, so that a child has everything imported; these use NumPy alone, which can be forked. A
job is a line of JSON; the answer is the wait status.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import dnnstack.cli.group_screen
import dnnstack.cli.sweep_screen
import dnnstack.many.side_by_side
import dnnstack.many.sweep_work
import dnnstack.training.records.resume  # noqa: F401  # imported before the fork
from consent import Typed  # beside this script
from dnnstack.cli.main import main
from dnnstack.reports import compress_plots, plots, sensitivity_report
from tqdm import tqdm

SHIM = ctypes.CDLL(None)
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux


def arm(job: dict[str, Any]) -> None:
    trace = os.open(job["trace"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    fault = job["fault"]
    SHIM.faults_arm(
        os.fsencode(job["root"]),
        trace,
        fault["kinds"],
        fault["number"],
        fault["action"],
        fault["error"],
        fault["lasting"],
        int(job["data"]),
    )


def enter(job: dict[str, Any]) -> None:
    """Take the job's folders and outputs."""
    os.chdir(job["cwd"])
    os.environ["DNNSTACK_CACHE"] = str(Path(job["root"]) / "cache")
    os.environ["XDG_STATE_HOME"] = str(Path(job["root"]) / "state")
    if job.get("answer"):
        # As on a wide terminal without colours.
        os.environ.update(TERM="dumb", COLUMNS="9999")
        sys.stdin = Typed(job["answer"])
        sys.stderr.isatty = lambda: True  # type: ignore[method-assign]
    for number, name in ((1, "out"), (2, "err")):
        opened = os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(opened, number)
        os.close(opened)
        if Path(job[name]).is_relative_to(job["root"]):
            SHIM.faults_track(number, os.fsencode(job[name]))


def child(job: dict[str, Any]) -> None:
    status = 99
    try:
        enter(job)
        if job["trace"]:
            arm(job)
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
        if job.get("warm"):
            out = os.dup(1)
            enter(job)
            for argv in job["argv"]:
                main(argv)
            sys.stdout.flush()
            os.dup2(out, 1)
            status = 0
        else:
            pid = os.fork()
            if pid == 0:
                child(job)
            _, status = os.waitpid(pid, 0)
            with suppress(ChildProcessError):
                while True:
                    os.wait()
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    # Workers whose first process was killed come to this one, which waits for their end.
    SHIM.prctl(_SUBREAPER, 1, 0, 0, 0)
    # To draw takes longer than all the rest; the file is written in the same way.
    tqdm.monitor_interval = 0  # its thread must not be there when a child is forked
    plots._png = lambda points, title: b"a picture" * 1000
    compress_plots.drawn = sensitivity_report.drawn = lambda draw: b"a picture" * 1000
    serve()
