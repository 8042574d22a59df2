"""Lines of Python files: none is longer than a person's, but for data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from ..common.printable import printable

WIDTH = 100
# What files say in code.
_IN_CODE = ("classes", "input", "preprocessing")


def quoted(text: str) -> str:
    """A string, in the quotes that need no escapes."""
    plain = repr(text)
    return plain if '"' in plain else f'"{plain[1:-1]}"'


def about(entries: Mapping[str, str]) -> dict[str, str]:
    """What a file says of itself, each in one line."""
    kept = {key: value for key, value in entries.items() if key not in _IN_CODE}
    return {key: printable(" ".join(value.split())) for key, value in kept.items()}


def listed(begin: str, items: Sequence[str], end: str = "") -> str:
    """A list, in several lines if it is too long."""
    line = f"{begin}[{', '.join(items)}]{end}"
    if len(line) <= WIDTH:
        return line
    # Spaces inside an item are no places to break a line.
    text = " ".join(f"{item},".replace(" ", "\0") for item in items)
    lines = textwrap.wrap(text, WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    inside = textwrap.indent("\n".join(lines).replace("\0", " "), "    ")
    return f"# fmt: off\n{begin}[\n{inside}\n]{end}\n# fmt: on"


def wrapped(line: str) -> str:
    """A line with a call, or a comment, in several if it is too long."""
    if len(line) <= WIDTH:
        return line
    if line.startswith("#"):
        return "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="#   "))
    margin = line[: len(line) - len(line.lstrip())]
    opening, closing = "[]" if line.lstrip().startswith("[") else "()"
    begin, _, inside = line.partition(opening)
    inside, _, end = inside.rpartition(closing)
    deeper = f"{margin}    "
    if len(parts := _parts(inside)) > 1 and len(deeper + inside) > WIDTH:
        inside = "\n".join(wrapped(f"{deeper}{part},") for part in parts)
    else:
        inside = wrapped(deeper + inside)
    return f"{begin}{opening}\n{inside}\n{margin}{closing}{end}" if parts[0] else line


def _parts(inside: str) -> list[str]:
    """What commas separate that no brackets enclose."""
    depth, parts = 0, [""]
    for sign in inside:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]
