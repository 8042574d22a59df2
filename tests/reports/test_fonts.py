"""Names of classes in pictures: drawn where the font has their characters, never as boxes."""

from __future__ import annotations

import logging

from dnnstack.common.printable import set_output_encoding
from dnnstack.reports import fonts
from PIL.ImageFont import FreeTypeFont

NAMES = ("äpfel", "кошка", "γάτα", "قطة", "emoji \N{GRINNING FACE}", "plain")


def test_the_font_is_that_of_the_curves():
    found = fonts.font(15)
    assert isinstance(found, FreeTypeFont)
    assert found.getname() == ("DejaVu Sans", "Book")


def test_most_alphabets_are_drawn(caplog):
    assert fonts.drawable(NAMES, 20) == list(NAMES)
    assert caplog.messages == []


def test_a_name_that_the_font_lacks_becomes_a_number_and_is_told_once(caplog):
    names = ("plain", "a \N{CJK UNIFIED IDEOGRAPH-732B}", "x\x1b[2J", "a rather long name")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert fonts.drawable(names, 10) == ["plain", "class 1", "x\\x1b[2J", "a rather …"]
    assert caplog.messages == [
        f"the font of pictures lacks characters of {names[1]!r}; "
        "these classes have their numbers instead"
    ]


def test_some_names_that_the_font_lacks_stand_for_all(caplog):
    fonts.drawable(tuple("\u6f22\u6f23\u6f24\u6f25"), 10)
    assert "'\u6f22', '\u6f23', '\u6f24' and 1 more" in caplog.messages[0]


def test_names_of_files_have_escapes_of_what_the_font_lacks():
    signs = fonts.drawable_signs("ü \u7d2b\uff54\x1b/\U0001f9ff.png")
    assert "".join(signs) == fonts.written("ü \u7d2b\uff54\x1b/\U0001f9ff.png")
    assert "".join(signs) == "ü \\u7d2b\\uff54\\x1b/\\U0001f9ff.png"
    assert "\\u7d2b" in signs


def test_a_terminal_without_unicode_shortens_no_name_in_a_picture():
    set_output_encoding("ascii")
    try:
        assert fonts.drawable(("γάτα",), 5) == ["γάτα"]
    finally:
        set_output_encoding(None)
