"""Several cases of a table in one test: each is tried, and a failure names its own."""

from __future__ import annotations

import pytest

from .support.rows import AT_ONCE, rows


def table(words, test):
    """The test as it is called, and the groups of its cases."""
    made = rows("word", words)(test)
    (mark,) = made.pytestmark
    return made, [group.values[0] for group in mark.args[1]]


def test_every_case_is_in_one_test():
    words = [str(number) for number in range(2 * AT_ONCE + 3)]
    met = []

    def meets(word, more):
        met.append((word, more))

    made, groups = table(words, meets)
    assert len(groups) == 3
    assert max(map(len, groups)) <= AT_ONCE
    for group in groups:
        made(word=group, more=1)
    assert sorted(met) == sorted((word, 1) for word in words)


def test_a_failure_names_its_case():
    def fails(word):
        assert word != "b", "wrong"

    made, _ = table("abc", fails)
    with pytest.raises(AssertionError, match="word 'b': wrong"):
        made(word=["a", "b", "c"])


def test_it_is_skipped_where_all_cases_are():
    met = []

    def skips(word):
        met.append(word)
        if word != "c":
            pytest.skip(f"no {word}")

    made, _ = table("abc", skips)
    with pytest.raises(pytest.skip.Exception, match="no a"):
        made(word=["a", "b"])
    made(word=["a", "c"])
    assert met == ["a", "b", "a", "c"]
