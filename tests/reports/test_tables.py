"""Tables: aligned by displayed columns, fitted into a width."""

from __future__ import annotations

from dnnstack.common.cells import cells
from dnnstack.reports.tables import table

ROWS = [("class", "count"), ("猫", 3), ("a\u0301ccent", 12), ("\U0001f415\U0001f415\U0001f415", 1)]


def test_columns_are_aligned_by_what_is_shown():
    lines = table(ROWS)
    assert lines[1:] == [
        "猫          3",
        "a\u0301ccent     12",
        "\U0001f415\U0001f415\U0001f415      1",
    ]
    assert {cells(line) for line in lines} == {13}


def test_prose_goes_on_below_itself():
    rows = [("key", "value", "because it is the best that there is"), ("other", "x", "so")]
    assert table(rows, "<", 32, prose=True) == [
        "key    value  because it is the",
        "              best that there is",
        "other  x      so",
    ]
