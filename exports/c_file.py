"""The format ``c``: one C99 file for devices without a memory allocator."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ExportError
from ..graph.graph import Op
from .c_integers import answers
from .c_writer import OPS, Writer, comment, constant, size_of
from .door import Samples
from .format import Format, Twin
from .plain import Plain

Array = NDArray[Any]
# Compilers take minutes and gigabytes for more.
MOST_WEIGHTS = 4_000_000
_SELF_TESTS = 10


class C(Format):
    """A C99 file: constants, one arena, a function that answers, and a test of itself."""

    kind = "c"
    suffix = ".c"
    ops: ClassVar[frozenset[type[Op]]] = OPS

    def check(self, plain: Plain) -> None:
        super().check(plain)
        count = sum(array.size for array in plain.arrays.values())
        if count > MOST_WEIGHTS:
            raise ExportError(
                f"c: {count:,} weights are too many for a source file, which may have "
                f"{MOST_WEIGHTS:,}; choose another format, or compress the network first"
            )

    def files(self, plain: Plain) -> Mapping[str, bytes]:
        plain = plain.folded()
        return {"": _text(plain, Writer(plain)).encode()}

    def twin(self, path: Path, plain: Plain) -> Twin | None:
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        program = Program(path, plain, (compiler, "-std=c99", "-O2"))
        return Twin(program.by(), program)


class Program:
    """A file of the format, compiled by a command; called with raw (N, C, H, W), -> (N, K)."""

    def __init__(self, path: Path, plain: Plain, command: tuple[str, ...]) -> None:
        self._plain, self._command, self._source = plain, command, path
        self._program = path.with_name("program")
        self._compile(self._program, "-", path, "-lm", given=_driver(plain).encode())

    def __call__(self, raw: Array) -> Array:
        given = np.moveaxis(raw, 1, 3).astype(np.uint8 if self._plain.pixels else np.float32)
        out = _run(self._program, given=given.tobytes())
        return np.frombuffer(out, np.float32).reshape(len(raw), -1)

    def by(self) -> str:
        """The compiler, and the bytes that a device would need."""
        name = _run(self._command[0], "--version").decode().splitlines()[0]
        if (size := shutil.which("size")) is None:
            return name
        part = self._program.with_name("part.o")
        self._compile(part, "-Os", "-c", self._source)
        text, data, bss = _run(size, part).decode().splitlines()[1].split()[:3]
        return f"{name}: {int(text) + int(data):,} bytes of flash, {int(bss):,} of RAM"

    def _compile(self, output: Path, *arguments: str | Path, given: bytes = b"") -> None:
        _run(*self._command, "-o", output, "-x", "c", *arguments, given=given)


def _run(*command: str | Path, given: bytes = b"") -> bytes:
    try:
        done = subprocess.run(command, input=given, capture_output=True, check=True)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip() or f"status {error.returncode}"
        first = next((line for line in said.splitlines() if "error" in line), said)
        raise ExportError(f"c: {command[0]} failed: {first}; --no-check leaves it out") from None
    except OSError as error:
        reason = error.strerror
        raise ExportError(f"c: {command[0]}: {reason}; --no-check leaves it out") from None
    return done.stdout


def _driver(plain: Plain) -> str:
    """A program that answers to samples on its standard input."""
    return f"""#include <stdint.h>
#include <stdio.h>
int {plain.name}_predict(const {_element(plain)} *given, float *answer);
int main(void)
{{
    static {_element(plain)} given[{plain.x.size}];
    static float answer[{plain.y.size}];
    while (fread(given, sizeof given, 1, stdin)) {{
        {plain.name}_predict(given, answer);
        fwrite(answer, sizeof answer, 1, stdout);
    }}
    return 0;
}}
"""


def _element(plain: Plain) -> str:
    return "uint8_t" if plain.pixels else "float"


def _text(plain: Plain, writer: Writer) -> str:
    name, upper, y = plain.name, plain.name.upper(), plain.y
    given, order = "values", "numbers"
    if plain.pixels:
        given, order = "picture", "bytes as decoders of PNG give them"
    lines = [re.sub(r"\bgiven\b", given, line) for line in writer.lines]
    if writer.places[y] is not None:
        # An answer is in the order of channels, rows and columns.
        lines.append(f"reshape({writer(y)}, {_sizes(y)}, answer, 1, 1, {y.size}, 4);")
    if plain.trained.data.kind in ("class", "distribution"):
        lines += ["int best = 0;", f"for (int k = 1; k < {y.size}; k++)"]
        lines += ["    if (answer[k] > answer[best]) best = k;", "return best;"]
    else:
        lines.append("return 0;")
    functions = _functions(" ".join(lines))
    h, w, c = size_of(plain.x)
    sizes = {"HEIGHT": h, "WIDTH": w, "CHANNELS": c, "OUTPUTS": y.size}
    sizes |= {"CONSTANT_BYTES": writer.bytes, "ARENA_BYTES": 4 * writer.arena}
    macros = [f"#define {upper}_{key} {value}" for key, value in sizes.items()]
    if "MOST_RUNS" in functions:
        macros.append(f"#define MOST_RUNS {writer.most_runs}")
    includes = ["#include <stdint.h>", *["#include <math.h>"] * ("expf" in functions)]
    about = [comment(f"   {key}: {value}") for key, value in plain.about.items()]
    signature = f"int {name}_predict(const {_element(plain)} *{given}, float *answer)"
    arena = [f"static float arena[{writer.arena}];", ""] * (writer.arena > 0)
    parts = [
        f"/* {name}, written by dnnstack: C99 that allocates no memory and needs expf alone.",
        "",
        f"   {given}: {h} x {w} x {c} {order}: rows, their pixels, their channels.",
        f"   answer: {y.size} numbers. Returns the class of the largest, or 0 if there are none.",
        f"   Constants: {writer.bytes:,} bytes; arena: {4 * writer.arena:,}; one call at a time.",
        f"   With {upper}_SELF_TEST defined it is a program that fails if its answers are wrong.",
        "",
        *[*about, "*/", "", *includes, "", *macros, "", f"{signature};", ""],
        *[functions, *writer.constants, "", *arena, signature, "{"],
        *[f"    {line}" for line in lines],
        *["}", "", _self_test(plain)],
    ]
    return "\n".join(parts)


def _sizes(tensor: Any) -> str:
    return ", ".join(map(str, size_of(tensor)))


def _self_test(plain: Plain) -> str:
    raw = plain.raw(Samples.drawn(plain.trained).stored[:_SELF_TESTS])
    expected = answers(plain, raw)
    name, count = plain.name, plain.y.size
    return f"""#ifdef {name.upper()}_SELF_TEST
#include <stdio.h>

{constant("samples", np.moveaxis(raw, 1, 3), _element(plain))}
{constant("expected", expected)}

int main(void)
{{
    float answer[{count}];
    int wrong = 0;
    for (int i = 0; i < {expected.size}; i++) {{
        if (i % {count} == 0) {name}_predict(samples + i / {count} * {plain.x.size}, answer);
        float right = expected[i], apart = answer[i % {count}] - right;
        float most = 1e-4f * (1 + (right < 0 ? -right : right));
        wrong += !(apart <= most && apart >= -most);
    }}
    printf("{name}: %d of {expected.size} numbers are wrong\\n", wrong);
    return wrong > 0;
}}
#endif
"""


@cache
def _known() -> dict[str, str]:
    """Types and functions by name, with their comments, in order."""
    text = resources(__package__).joinpath("c_functions.c").read_text("utf-8")
    # Templates: a function that has TYPE in its name, and what it has of types.
    text = re.sub(r"(?:/\*[^/]*\*/\n)?static void \w+_TYPE[\s\S]*?\n}\n\n", _typed, text)
    about, head = (
        r"(?:/\*(?:(?!\*/)[\s\S])*\*/\n)?",
        r"(?:typedef struct|static [^(]*?(\w+)\([^{]*)",
    )
    one = about + head + r"\s*\{(?:.*\}|[\s\S]*?\n\}(?: (\w+);)?)\n"
    return {found[1] or found[2]: found[0] for found in re.finditer(one, text)}


_FLOATS = {"TYPE": "floats", "VALUE": "float", "WEIGHT": "float", "SUM": "float"}
_INTEGERS = {"TYPE": "integers", "VALUE": "uint8_t", "WEIGHT": "int8_t", "SUM": "int32_t"}


def _typed(template: re.Match[str]) -> str:
    """A function for floats, and one for integers."""
    found = ""
    for types, number in ((_FLOATS, r"\1"), (_INTEGERS, r"((\1 ^ sign) - sign)")):
        text = re.sub(r"OF\((.*?)\)", number, template[0])
        found += re.sub("TYPE|VALUE|WEIGHT|SUM", lambda word: types[word[0]], text)  # noqa: B023
    return found


def _functions(body: str) -> str:
    """What the statements use, also through each other."""
    known, used, waiting = _known(), set[str](), [body]
    while waiting:
        names = set(re.findall(r"\w+", waiting.pop())) & known.keys() - used
        used |= names
        waiting += [known[name] for name in names]
    return "\n".join(text for name, text in known.items() if name in used)
