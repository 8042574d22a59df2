"""A kernel in a file: compiled, and tried in a process of its own under a limit of time."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..common.files import read_regular
from ..common.records import dataclass
from .child import HEAD, TOLD
from .operations import OPERATIONS, Array, Case, LabError, Operation
from .skeleton import SUFFIXES, prototype

_LARGEST = 1 << 20
_COMPILE_SECONDS = 60.0
_CHILD = "import sys, pathlib; from {}.child import main; main(pathlib.Path(sys.argv[1]))"
# What tells the folder of a run, which may come from a stranger.
_OF_RUN = ("checkpoints", "log.jsonl")


@dataclass(frozen=True)
class Ran:
    """One run of a case: seconds, whether it took the sizes, and what it has written, by name."""

    seconds: float
    took: bool
    written: Mapping[str, Array]


@dataclass(frozen=True)
class Program:
    """A kernel that was compiled; ``source``: its copy; ``limit``: seconds of a process."""

    path: Path
    source: Path
    operation: Operation
    language: str
    limit: float

    def tried(self, cases: Sequence[Case], runs: int) -> tuple[list[list[Ran]], str]:
        """Each case so many times, and what went wrong, "" for nothing.

        After a fault only the runs before it are there.
        """
        folder, arguments = self.source.parent, self.operation.arguments
        written = [argument.name for argument in arguments if not argument.is_input]
        job = {
            "language": self.language,
            "file": self.source.name,
            "operation": self.operation.name,
            "runs": runs,
            "arrays": [argument.name for argument in arguments],
            "given": [argument.name for argument in arguments if argument.is_input],
            "written": written,
            "numbers": [case.numbers for case in cases],
        }
        (folder / "job.json").write_text(json.dumps(job), "utf-8")
        arrays = {f"{i}.{k}": v for i, case in enumerate(cases) for k, v in case.arrays.items()}
        np.savez(folder / "arrays.npz", allow_pickle=False, **arrays)
        out, fault = self._answered(folder)
        found = [list[Ran]() for _ in cases]
        for case, ran in ((case, ran) for case, ran in zip(cases, found, strict=True)):
            size = HEAD.size + sum(case.arrays[name].nbytes for name in written)
            while len(ran) < runs and len(out) >= size:
                seconds, took = HEAD.unpack_from(out)
                at, values = HEAD.size, {}
                for name in written:
                    like = case.arrays[name]
                    flat = np.frombuffer(out, like.dtype, like.size, at)
                    values[name], at = flat.reshape(like.shape), at + like.nbytes
                ran.append(Ran(seconds, took, values))
                out = out[size:]
        return found, fault

    def _answered(self, folder: Path) -> tuple[bytes, str]:
        """What a process has answered, and how it ended, "" if well."""
        command = [sys.executable, "-c", _CHILD.format(__package__), str(folder)]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=folder,
                start_new_session=True,
            )
            try:
                out, _ = process.communicate(timeout=self.limit)
                fault = ""
            except subprocess.TimeoutExpired:
                fault = f"takes more than {self.limit:g} s"
            finally:
                # Whatever it has begun ends with it.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if fault:
                out, _ = process.communicate()
            said.seek(0)
            text = said.read().decode(errors="replace")
        return out, fault or _ended(process.returncode, text, out)


def _ended(status: int, text: str, out: bytes) -> str:
    if status == -signal.SIGXFSZ:
        return "prints more than 64 KiB"
    if TOLD in text:
        return text.rpartition(TOLD)[2].strip()
    if status < 0:
        return f"is ended by {signal.Signals(-status).name}"
    if status:
        return f"ends the process with status {status}"
    return ""


@contextmanager
def opened(path: Path, limit: float, compiler: str | None = None) -> Iterator[Program]:
    """A kernel, compiled in a folder that goes with the block.

    The file is code, and whoever calls this has decided that it may run. Raises LabError.
    """
    languages = {suffix: language for language, suffix in SUFFIXES.items()}
    if path.suffix not in languages or not re.fullmatch(r"\w+", path.stem):
        raise LabError(
            f"{path}: a kernel is a file of letters, digits and '_' that ends in "
            f"{', '.join(languages)}"
        )
    if any((path.resolve().parent / name).exists() for name in _OF_RUN):
        raise LabError(f"{path}: kernels are not taken from the folder of a run; copy it elsewhere")
    try:
        code = read_regular(path, _LARGEST)
    except OSError as error:
        raise LabError(f"{path}: cannot be read: {error.strerror}") from None
    names = "|".join(OPERATIONS)
    found = re.findall(
        rf"^\s*(?:def|int|.*\bvoid)\s+({names})\s*\(", code.decode(errors="replace"), re.M
    )
    if len(set(found)) != 1:
        raise LabError(
            f"{path}: defines {', '.join(dict.fromkeys(found)) or 'no operation'}; a kernel is one "
            f"function of {', '.join(OPERATIONS)}"
        )
    with tempfile.TemporaryDirectory(prefix="dnnstack-lab-") as folder:
        source = Path(folder, path.name)
        source.write_bytes(code)
        program = Program(path, source, OPERATIONS[found[0]], languages[path.suffix], limit)
        if program.language == "c":
            _compile(program)
        yield program


def _compile(program: Program) -> None:
    """Make the shared library beside the source. Raises LabError with the compiler's first word."""
    folder, operation = program.source.parent, program.operation
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise LabError(f"{program.path}: there is no C compiler; install gcc or clang")
    arrays = [f"a[{i}]" for i in range(len(operation.arguments))]
    numbers = [f"n[{i}]" for i in range(len(operation.numbers))]
    head, guard = f"{prototype(operation)};\n", resources.files(__package__).joinpath("guard.c")
    call = f"int lab_call(void **a, const double *n) {{ return {operation.name}({', '.join(arrays + numbers)}); }}"
    (folder / "lab.h").write_text(head, "utf-8")
    (folder / "lab.c").write_text(f"{guard.read_text('utf-8')}\n{head}{call}\n", "utf-8")
    options = "-O3 -march=native -fopenmp -shared -fPIC -include lab.h".split()
    command = [
        compiler,
        *options,
        "-o",
        program.source.with_suffix(".so"),
        "lab.c",
        program.source.name,
        "-lm",
    ]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        raise LabError(
            f"{program.path}: takes more than {_COMPILE_SECONDS:g} s to compile"
        ) from None
    said = done.stderr.decode(errors="replace").splitlines()
    if done.returncode:
        first = next((line for line in said if "error" in line), *said[:1] or ["it says nothing"])
        raise LabError(f"{program.path}: does not compile: {first}")
