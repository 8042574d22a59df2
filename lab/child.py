"""The process in which a kernel is tried: it may fail in any way."""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..backends.own_code import Call, Guarded
from .operations import OPERATIONS, Array

# In front of what a run has written: its seconds, and whether it took the sizes.
HEAD = struct.Struct("<d?")
# Bytes that a kernel may print.
PRINTED = 1 << 16
TOLD = "\nlab: "


def loaded(language: str, path: Path, operation: str, timed: bool = False) -> Call:
    """A kernel, called in this process on plain arrays; path: that of its source; timed: whether
    the seconds are wanted, for which one on a GPU runs several times more."""
    if language == "c":
        return Guarded(path.with_suffix(".so")).call
    if language == "cuda":
        from ..backends.cuda.operations.own_kernel import OwnKernel

        numbers = [*OPERATIONS[operation].numbers.values()]
        return OwnKernel(path.name, path.read_text("utf-8"), operation, numbers, timed).call
    found: dict[str, Any] = {"__name__": operation, "__file__": str(path)}
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), found)
    return partial(_called, found[operation])


def _called(
    function: Any, arrays: Mapping[str, Array], numbers: Sequence[float]
) -> tuple[float, bool]:
    given = [int(number) if number == int(number) else number for number in numbers]
    begin = time.perf_counter()
    status = function(*arrays.values(), *given)
    return time.perf_counter() - begin, not status


def main(folder: str) -> None:
    """Do what job.json of a folder says, and write what each run has given."""
    job = json.loads(Path(folder, "job.json").read_bytes())
    out = os.fdopen(os.dup(1), "wb")
    # Whatever the kernel prints is no answer.
    os.dup2(2, 1)
    if job["language"] != "cuda":
        # Whose compiler keeps files.
        resource.setrlimit(resource.RLIMIT_FSIZE, (PRINTED, PRINTED))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    path = Path(folder, job["file"])
    try:
        _work(job, path, out)
    except (Exception, SystemExit) as error:
        trace = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in trace if frame.filename == str(path)]
        where = f" in line {lines[-1]}" if lines else ""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        sys.stderr.write(f"{TOLD}fails{where}: {text}\n")
        sys.exit(3)


def _work(job: Mapping[str, Any], path: Path, out: BinaryIO) -> None:
    operation = OPERATIONS[job["operation"]]
    call = loaded(job["language"], path, job["operation"], timed=True)
    guarded = Guarded(path.with_suffix(".so")) if job["language"] == "c" else None
    given = [argument.name for argument in operation.arguments if argument.is_input]
    if guarded:
        guarded.watch()
    with np.load(path.with_name("arrays.npz"), allow_pickle=False) as held:
        before = dict(held)
    for number, numbers in enumerate(job["numbers"]):
        for run in range(job["runs"]):
            arrays = {a.name: before[f"{number}.{a.name}"].copy() for a in operation.arguments}
            for name in given:
                arrays[name].flags.writeable = False
            if guarded:
                seconds, took = guarded.guarded(arrays, numbers, given, late=run % 2 == 0)
            else:
                seconds, took = call(arrays, numbers)
            out.write(HEAD.pack(seconds, took))
            for name, array in arrays.items():
                if name not in given:
                    out.write(array.tobytes())
            out.flush()
