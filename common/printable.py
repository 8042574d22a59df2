r"""Text from outside, such as names in files of other people, in a form that is safe to print.

A terminal obeys control characters: they set its title, erase its screen, overwrite a line. A name
with a line break forges a line of ours. Here each such character is written as Python writes it in
a string, ``\x1b`` or ``\n``. Accents, other scripts and emoji are shown as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_OBEYED = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters: C0, DEL, C1
    "\u2028\u2029"  # ends of lines and paragraphs
    "\u202a-\u202e\u2066-\u2069"  # direction of writing: what follows is shown in another order
    "\ud800-\udfff"  # bytes of a path that are not text
    "]"
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: object) -> str:
    """The text as one line in which a terminal finds nothing to obey."""
    return _OBEYED.sub(_written, str(text))


def paragraph(lines: Iterable[object]) -> str:
    """These lines as one text; a line break inside one of them does not begin another one."""
    return "\n".join(map(printable, lines))


def printable_lines(text: str) -> str:
    """The same of a text whose line breaks are known to be ours."""
    return paragraph(text.split("\n"))


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
