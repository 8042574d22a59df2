"""NVRTC by ctypes: CUDA C++ to the code of a GPU; as a script, for one process after the other.

NVRTC compiles one program at a time: a lock of its own lets no other thread of the process in. So
``compilers.py`` starts this file as a script in processes of their own, which needs nothing but
Python's standard library. A script reads jobs from its standard input and answers to its standard
output, until there are no more.
"""

from __future__ import annotations

import ctypes as C
import json
import struct
import sys
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from typing import BinaryIO

# What goes in front of a job, and of an answer: whether it is code (else a message), and bytes.
JOB, ANSWER = struct.Struct("<Q"), struct.Struct("<?Q")


class CompileError(Exception):
    """NVRTC refuses a source, or cannot be called; the message is its log."""


def version(library: str) -> tuple[int, int]:
    """Major and minor number of the NVRTC at a path."""
    major, minor = c_int(), c_int()
    _checked(C.CDLL(library).nvrtcVersion(byref(major), byref(minor)))
    return major.value, minor.value


def architecture(library: str, capability: tuple[int, int]) -> str:
    """The option that makes code for a GPU of a compute capability; PTX where NVRTC is older."""
    dll, count = C.CDLL(library), c_int()
    _checked(dll.nvrtcGetNumSupportedArchs(byref(count)))
    known = (c_int * count.value)()
    _checked(dll.nvrtcGetSupportedArchs(known))
    wanted = 10 * capability[0] + capability[1]
    if wanted in known:
        return f"-arch=sm_{wanted}"
    return f"-arch=compute_{max([arch for arch in known if arch < wanted], default=min(known))}"


def compiled(library: str, source: str, options: Sequence[str]) -> bytes:
    """The code of a source. Raises CompileError, OSError where there is no such library."""
    dll, program = C.CDLL(library), c_void_p()
    _checked(dll.nvrtcCreateProgram(byref(program), source.encode(), b"kernels.cu", 0, None, None))
    try:
        given = (c_char_p * len(options))(*(option.encode() for option in options))
        if dll.nvrtcCompileProgram(program, len(options), given):
            raise CompileError(_text(dll, program, "ProgramLog").decode(errors="replace"))
        kind = "PTX" if any("compute_" in option for option in options) else "CUBIN"
        return _text(dll, program, kind)
    finally:
        dll.nvrtcDestroyProgram(byref(program))


def _text(dll: C.CDLL, program: c_void_p, what: str) -> bytes:
    size = c_size_t()
    _checked(getattr(dll, f"nvrtcGet{what}Size")(program, byref(size)))
    held = C.create_string_buffer(size.value)
    _checked(getattr(dll, f"nvrtcGet{what}")(program, held))
    return held.raw


def _checked(status: int) -> None:
    if status:
        raise CompileError(f"NVRTC answers with status {status}")


def ask(process_input: BinaryIO, source: str, options: Sequence[str]) -> None:
    """Write a job."""
    job = json.dumps([source, list(options)]).encode()
    process_input.write(JOB.pack(len(job)) + job)
    process_input.flush()


def answer(process_output: BinaryIO) -> bytes:
    """The code that a script has made. Raises CompileError, EOFError where it has ended."""
    good, size = ANSWER.unpack(_exactly(process_output, ANSWER.size))
    found = _exactly(process_output, size)
    if not good:
        raise CompileError(found.decode(errors="replace"))
    return found


def _exactly(stream: BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def serve(library: str, jobs: BinaryIO, answers: BinaryIO) -> None:
    """Compile what is asked for, until there is nothing more."""
    while head := jobs.read(JOB.size):
        source, options = json.loads(_exactly(jobs, JOB.unpack(head)[0]))
        try:
            good, found = True, compiled(library, source, options)
        except (CompileError, OSError) as error:
            good, found = False, str(error).encode()
        answers.write(ANSWER.pack(good, len(found)) + found)
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer)
