r"""Text from outside, such as names in files of other people, in a form that is safe to print.

A terminal obeys control characters: they set its title, erase its screen, overwrite a line. A name
with a line break forges a line of ours. Here each such character is written as Python writes it in
a string, ``\x1b`` or ``\n``. Accents, other scripts and emoji are shown as they are.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_OBEYED = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters: C0, DEL, C1
    "\u2028\u2029"  # ends of lines and paragraphs
    "\u202a-\u202e\u2066-\u2069"  # direction of writing: what follows is shown in another order
    "\ud800-\udfff"  # bytes of a path that are not text
    "]"
)
UTF8_LOCALE = "set PYTHONUTF8=1 or LC_ALL=C.UTF-8"
_HANDLER = "dnnstack.escaped"
_encoding: str | None = None
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


def escaped(text: str) -> str:
    r"""Every character that is not ASCII as in a string of Python: ``\xfc``, ``\u7d2b``."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


def set_output_encoding(encoding: str | None) -> None:
    """Say in which encoding this process prints, on both streams; None for any of Unicode."""
    global _encoding
    unicode = encoding is None or codecs.lookup(encoding).name.startswith("utf")
    _encoding = None if unicode else encoding


def encodable(text: str) -> str:
    """The text as it is printed: what the encoding of the output lacks is escaped.

    An ellipsis becomes a dot, so that a shortened name stays as long as its column.
    """
    if _encoding is None or text.isascii():
        return text
    return text.encode(_encoding, _HANDLER).decode(_encoding)


def unnameable(path: str) -> bool:
    """Whether no file can have this name because the encoding of the locale lacks characters."""
    try:
        os.fsencode(path)
    except UnicodeError:
        return True
    return False


def misread(name: str) -> str:
    """What a name of a file would be in a UTF-8 locale, if this locale makes it unprintable."""
    if codecs.lookup(sys.getfilesystemencoding()).name == "utf-8":
        return ""
    try:
        text = os.fsencode(name).decode("utf-8")
    except UnicodeError:
        return ""
    return text if text.isprintable() and not text.isascii() else ""


def _handled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join("." if sign == "…" else escaped(sign) for sign in lacking), error.end


codecs.register_error(_HANDLER, _handled)


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def html_table(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A title, and a table of rows that have the keys of the first, as HTML."""

    def cells(kind: str, values: Any) -> str:
        texts = (f"{each:.5g}" if isinstance(each, float) else str(each) for each in values)
        return "".join(f"<{kind}>{escape(printable(text))}</{kind}>" for text in texts)

    body = "".join(f"<tr>{cells('td', row.values())}</tr>" for row in rows)
    head = cells("th", rows[0] if rows else ())
    return f"<p>{escape(printable(title))}</p><table><tr>{head}</tr>{body}</table>"


def html_text(text: str) -> str:
    """Lines in columns, as HTML."""
    return f"<pre>{escape(text)}</pre>"
