from __future__ import annotations

import pickle
import sys
import unicodedata

import pytest
from dnnstack.common.cells import cells, padded
from dnnstack.common.errors import ConfigError, DnnstackError
from dnnstack.common.printable import (
    encodable,
    paragraph,
    printable,
    printable_lines,
    set_output_encoding,
)
from dnnstack.common.text import cut

from ..support.stored import cases


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2J", r"a\x1b[2J"),
        ("\a\b\x00\x7f", r"\x07\x08\x00\x7f"),
        ("\x85\x9b31m", r"\x85\x9b31m"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("\udcff", r"\udcff"),
        ("", ""),
        ("\u00e9 \u00a0 \u65e5\u672c \u05d0\u0628 \U0001f642\U0001f3fd", None),
        ("C:\\new", None),
    ],
)
def test_printable(text, shown):
    assert printable(text) == (text if shown is None else shown)
    assert printable(printable(text)) == printable(text)


def test_every_character_is_shown_or_written_out():
    """All of Unicode, by the categories and directions of its database."""
    overrides = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    for code in range(sys.maxunicode + 1):
        sign = chr(code)
        obeyed = (
            unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp")
            or unicodedata.bidirectional(sign) in overrides
        )
        assert (printable(sign) != sign) == obeyed, ascii(sign)


def test_a_name_begins_no_line():
    assert paragraph(["one\ntwo", "three"]) == "one\\ntwo\nthree"
    assert printable_lines("one\ntwo\r") == "one\ntwo\\r"


def test_a_message_has_the_lines_that_it_was_given():
    error = DnnstackError("a\nb: wrong", "  first\x1b", "second")
    assert str(error) == "a\\nb: wrong\n  first\\x1b\nsecond"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    placed = ConfigError("a", "b").after("x\ny: ")
    assert (type(placed), str(placed)) == (ConfigError, "x\\ny: a\nb")
    assert str(DnnstackError().after("x")) == "x"


@pytest.mark.parametrize(
    ("encoding", "shown"), cases(__file__, "what_the_output_cannot_show_is_escaped_and_counted")
)
def test_what_the_output_cannot_show_is_escaped_and_counted(encoding, shown):
    set_output_encoding(encoding)
    try:
        text = "aü\u7d2b\U0001f642"
        assert encodable(text) == shown
        assert cells(text) == cells(shown)
        assert cells(encodable(padded(text, 30))) == 30
        # No escape is cut in two, and what tells that something is cut is shown.
        short = encodable(cut("\u7d2b" * 3, 13))
        assert short == (r"\u7d2b\u7d2b." if shown[-1] == "2" else "\u7d2b" * 3)
    finally:
        set_output_encoding(None)
