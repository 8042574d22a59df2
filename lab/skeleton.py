"""The file that a student begins with: a right and slow kernel, in C, CUDA or Python."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import fill, indent

from ..common.errors import explaining
from ..common.files import atomic_write
from ..common.text import suggested
from .operations import OPERATIONS, LabError, Operation

SUFFIXES = {"c": ".c", "cuda": ".cu", "python": ".py"}
_LOOP = re.compile(r" *for (\w+) in range\((\w+)\):\n")
_RETURNS = "Return {} for sizes that it does not take: the library's call stays in its place."
_LAUNCHES = "{}_launch says how many threads; no blocks where it does not take the sizes."
_YOURS = "It is right and slow; from here on it is yours."
_WIDTH = 96


def write(name: str, language: str, overwrite: bool) -> Path:
    """Write the file of an operation in this folder. Raises LabError."""
    if name not in OPERATIONS:
        hint = suggested(name, [*OPERATIONS], f"known are {', '.join(OPERATIONS)}")
        raise LabError(f"'{name}' is no operation for a kernel; {hint}")
    path = Path(f"{name}{SUFFIXES[language]}")
    if path.exists() and not overwrite:
        raise LabError(f"{path} exists; move it, or let it be overwritten")
    with explaining(path, "cannot be written", kind=LabError):
        atomic_write(path, skeleton(OPERATIONS[name], language).encode())
    return path


def skeleton(operation: Operation, language: str) -> str:
    """The source; it is right as it stands."""
    python = language == "python"
    result = _RETURNS.format("None once it is done, 1" if python else "0 once it is done, 1")
    if language == "cuda":
        result = _LAUNCHES.format(operation.name)
    arrays = [
        f"{a.name}[{','.join(a.dims) or 1}]{' (given)' if a.is_input else ''}"
        for a in operation.arguments
    ]
    told = (f"{operation.name}: {operation.formula}.", f"{', '.join(arrays)}.", result, _YOURS)
    about = "\n".join(fill(each, _WIDTH, break_long_words=False) for each in told)
    if python:
        names = ", ".join((*(a.name for a in operation.arguments), *operation.numbers))
        body = re.sub(r"\b(int|float) (?=\w+ =)", "", operation.loops)
        return f'"""{about}"""\n\n\ndef {operation.name}({names}):\n{indent(body, "    ")}\n'
    head = f"/* {about} */\n"
    if language == "c":
        body = f"{_braced(_flat(operation, operation.loops))}\n    return 0;"
        return f"{head}{prototype(operation)}\n{{\n{body}\n}}\n"
    return head + _cuda(operation)


def prototype(operation: Operation, returns: str = "int") -> str:
    """The kernel's head in C."""
    arrays = [f"{'const ' * a.is_input}{a.dtype} *{a.name}" for a in operation.arguments]
    numbers = [f"{dtype} {number}" for number, dtype in operation.numbers.items()]
    text = f"{returns} {operation.name}({', '.join([*arrays, *numbers])})"
    return fill(text, _WIDTH, subsequent_indent="    ")


def _cuda(operation: Operation) -> str:
    """A thread for each turn of the outer loops, and a kernel that says how many."""
    loops, rest, sizes = [], operation.loops + "\n", list[str]()
    while found := _LOOP.match(rest):
        loops.append(found[1])
        sizes.append(found[2])
        rest = rest[found.end() :]
    count = " * ".join(sizes) or "1"
    lines, behind = [f"if (at >= {count}) return;"], ""
    for name, size in zip(loops[::-1], sizes[::-1], strict=True):
        lines.append(f"int {name} = at{behind} % {size};")
        behind += f" / {size}"
    depth = " " * 4 * len(loops)
    body = re.sub(f"^{depth}", "", rest.rstrip("\n"), flags=re.M)
    numbers = ", ".join(f"{dtype} {number}" for number, dtype in operation.numbers.items())
    return "\n".join([
        'extern "C" __global__ ' + prototype(operation, "void"),
        "{",
        "    int at = blockIdx.x * blockDim.x + threadIdx.x;",
        *[f"    {line}" for line in lines],
        _braced(_flat(operation, body)),
        "}",
        "",
        "/* launch: blocks in x, y, z; threads of a block in x, y, z; bytes of shared memory. */",
        f'extern "C" __global__ void {operation.name}_launch(int *launch, {numbers})',
        "{",
        f"    launch[0] = ({count} + 255) / 256;",
        "    launch[3] = 256;",
        "}",
        "",
    ])  # fmt: skip


def _flat(operation: Operation, text: str) -> str:
    """x[n,c] as x[n * C + c]."""
    dims = {argument.name: argument.dims for argument in operation.arguments}

    def index(found: re.Match[str]) -> str:
        first, *rest = found[2].split(",")
        for at, size in zip(rest, dims[found[1]][1:], strict=False):
            first = f"({first}) * {size} + {at}" if " " in first else f"{first} * {size} + {at}"
        return f"{found[1]}[{first}]"

    names = "|".join(dims)
    # An index may hold another array's.
    inner = re.sub(rf"\b({names})\[([^][]*)\](?=\])", index, text)
    return re.sub(rf"\b({names})\[((?:[^][]|\[[^][]*\])*)\]", index, inner)


def _braced(text: str) -> str:
    """Loops and conditions as C writes them."""
    lines, open_at = list[str](), list[int]()
    for line in [*text.splitlines(), ""]:
        depth = len(line) - len(line.lstrip())
        while open_at and depth <= open_at[-1]:
            lines.append(" " * open_at.pop() + "}")
        bare = line.strip()
        if found := re.fullmatch(r"for (\w+) in range\((\w+)\):", bare):
            name, size = found.groups()
            bare = f"for (int {name} = 0; {name} < {size}; {name}++) {{"
            open_at.append(depth)
        elif found := re.fullmatch(r"if (.*):", bare):
            bare = f"if ({found[1].replace(' and ', ' && ')}) {{"
            open_at.append(depth)
        elif bare:
            bare = re.sub(r"(\d\.\d(?:e\d+)?)\b", r"\1f", bare).replace("//", "/") + ";"
        lines += [" " * depth + bare] * bool(bare)
    return indent("\n".join(lines), "    ")
