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

import numpy as np

from ..common.errors import explaining
from ..common.files import read_regular
from ..common.native import end_with_parent
from ..common.records import dataclass
from .child import HEAD, TOLD
from .operations import OPERATIONS, Array, Case, LabError, Operation
from .skeleton import SUFFIXES, prototype

_LARGEST = 1 << 20
_COMPILE_SECONDS = 60.0
_OPTIONS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-include", "lab-call.h")
# Files beside the kernel are no modules of Python's.
_CHILD = "import sys; del sys.path[0]; from {}.child import main; main(sys.argv[1])"
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
            "numbers": [case.numbers for case in cases],
        }
        (folder / "job.json").write_text(json.dumps(job), "utf-8")
        arrays = {f"{i}.{k}": v for i, case in enumerate(cases) for k, v in case.arrays.items()}
        np.savez(folder / "arrays.npz", allow_pickle=False, **arrays)
        out, fault = self._answered(folder)
        found, at = [list[Ran]() for _ in cases], 0
        for case, ran in zip(cases, found, strict=True):
            likes = {name: case.arrays[name] for name in written}
            size = HEAD.size + sum(like.nbytes for like in likes.values())
            while len(ran) < runs and len(out) - at >= size:
                seconds, took = HEAD.unpack_from(out, at)
                ran.append(Ran(seconds, took, _read(out, at + HEAD.size, likes)))
                at += size
        return found, fault

    def _answered(self, folder: Path) -> tuple[bytes, str]:
        """What a process has answered, and how it ended, "" if well."""
        command = [sys.executable, "-c", _CHILD.format(__package__), str(folder)]
        out, fault = b"", ""
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=folder,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
            try:
                out, _ = process.communicate(timeout=self.limit)
            except subprocess.TimeoutExpired:
                fault = f"takes more than {self.limit:g} s"
            finally:
                # Whatever it has begun ends with it.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if fault:
                # What has left its session may hold the pipe.
                with suppress(subprocess.TimeoutExpired):
                    out, _ = process.communicate(timeout=1)
            said.seek(0)
            text = said.read().decode(errors="replace")
        return out, fault or _ended(process.returncode, text)


def _read(out: bytes, at: int, likes: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of the types and shapes of these, which lie one behind the other."""
    found = {}
    for name, like in likes.items():
        found[name] = np.frombuffer(out, like.dtype, like.size, at).reshape(like.shape)
        at += like.nbytes
    return found


def _ended(status: int, text: str) -> str:
    """How a process has ended, by its status and what it has said."""
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
def opened(path: Path, limit: float) -> Iterator[Program]:
    """A kernel, compiled in a folder that goes with the block; ``limit``: seconds of a trial.

    The file is code, and whoever calls this has decided that it may run. Raises LabError.
    """
    languages = {suffix: language for language, suffix in SUFFIXES.items()}
    if path.suffix not in languages or not re.fullmatch(r"\w+", path.stem):
        known = ", ".join(languages)
        raise LabError(f"{path}: expected a name of letters, digits and '_' that ends in {known}")
    if any((path.resolve().parent / name).exists() for name in _OF_RUN):
        raise LabError(f"{path}: kernels are not taken from the folder of a run; copy it elsewhere")
    with explaining(path, "cannot be read", kind=LabError):
        code = read_regular(path, _LARGEST)
    head = rf"^\s*(?:def|int|.*\bvoid)\s+({'|'.join(OPERATIONS)})\s*\("
    found = set(re.findall(head, code.decode(errors="replace"), re.M))
    if len(found) != 1:
        defined = ", ".join(sorted(found)) or "no operation"
        known = ", ".join(OPERATIONS)
        raise LabError(f"{path}: defines {defined}; a kernel is one function of {known}")
    with tempfile.TemporaryDirectory(prefix="dnnstack-lab-") as folder:
        source = Path(folder, path.name)
        source.write_bytes(code)
        program = Program(path, source, OPERATIONS[found.pop()], languages[path.suffix], limit)
        if program.language == "c":
            _compile(program)
        yield program


def _compile(program: Program) -> None:
    """Make the shared library beside the source. Raises LabError with the first fault."""
    folder, path, operation = program.source.parent, program.path, program.operation
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise LabError(f"{path}: there is no C compiler; install gcc or clang")
    given = [f"a[{i}]" for i in range(len(operation.arguments))]
    given += [f"n[{i}]" for i in range(len(operation.numbers))]
    head, guard = prototype(operation), resources.files(__package__).joinpath("guard.c")
    call = f"    return {operation.name}({', '.join(given)});"
    text = f"{guard.read_text('utf-8')}\nint lab_call(void **a, const double *n)\n{{\n{call}\n}}\n"
    (folder / "lab-call.h").write_text(f"{head};\n", "utf-8")
    (folder / "lab-call.c").write_text(text, "utf-8")
    files = ("-o", program.source.with_suffix(".so"), "lab-call.c", program.source.name, "-lm")
    command = (compiler, *_OPTIONS, *files)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        raise LabError(f"{path}: does not compile in {_COMPILE_SECONDS:g} s") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines()
        first = next((line for line in said if "error" in line), "the compiler says nothing")
        raise LabError(f"{path}: does not compile: {first}")
