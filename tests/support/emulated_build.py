"""Kernels that are compiled for the processor, by g++."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dnnstack.backends.cuda.libraries import kernels

HERE = Path(__file__).with_name("emulated")
SOURCES = Path(kernels.__file__).parents[1]
COMPILER = shutil.which("g++")
# Static numbers of a template would else be those of the library that was loaded first.
# Threads jump between stacks; a fortified longjmp, as with Ubuntu's compilers, ends the process.
USUAL = (
    *("-std=c++17", "-Og", "-w", "-fPIC", "-fno-strict-aliasing", "-fno-gnu-unique"),
    "-U_FORTIFY_SOURCE",
)
EXACT = ("-fsanitize=alignment", "-fno-sanitize-recover=all", "-ffp-contract=off")
"""An address that is no multiple of what is read or written there ends the process."""


def library(
    name: str, folder: Path, defines: Mapping[str, object], options: tuple[str, ...] = ()
) -> ctypes.CDLL:
    """That of emulated/``name``.cpp, compiled in ``folder``, whose own files come first."""
    found, numbers = folder / f"{name}.so", folder / "numbers.hpp"
    lines = (f"#define {each} {value}\n" for each, value in defines.items())
    numbers.write_text("".join(lines), "utf-8")
    kinds = (*USUAL, *options)
    # The defines come behind the standard library's headers, which use some of these names.
    before = ("-include", str(_headers(kinds)), "-include", str(numbers))
    places = (folder, SOURCES / "sources", SOURCES / "fused")
    words = [*kinds, *before, *(f"-I{place}" for place in places), "-shared"]
    run([*words, str(HERE / f"{name}.cpp"), str(machine(kinds)), "-o", str(found)])
    return ctypes.CDLL(str(found))


def run(words: list[str]) -> None:
    """Compile."""
    assert COMPILER is not None
    subprocess.run([COMPILER, *words], check=True)


@cache
def machine(options: tuple[str, ...]) -> Path:
    """What each library needs of emulated/machine.cpp, which takes longer than most kernels."""
    found = _folder() / "machine.o"
    run([*options, "-c", str(HERE / "machine.cpp"), "-o", str(found)])
    return found


@cache
def _headers(options: tuple[str, ...]) -> Path:
    """The standard library's headers that the files of emulated/ need, compiled beforehand.

    They take a quarter of a compilation.
    """
    header = _folder() / "standard.hpp"
    lines = {line for file in HERE.glob("*.hpp") for line in file.read_text("utf-8").splitlines()}
    header.write_text("\n".join(sorted(line for line in lines if line.startswith("#include <"))))
    run([*options, "-x", "c++-header", str(header), "-o", f"{header}.gch"])
    return header


def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="dnnstack-emulated-")
    _KEPT.append(folder)
    return Path(folder.name)


# Until this process ends.
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
