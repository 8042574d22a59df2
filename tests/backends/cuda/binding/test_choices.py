"""The texts of choices, and what they say."""

from __future__ import annotations

import re

import pytest
from dnnstack.backends.compiling import ChoiceError
from dnnstack.backends.cuda.binding.choices import (
    AsForward,
    AtEnd,
    Bare,
    Direct,
    Plan,
    Through,
    Tiled,
    Warpgroups,
    WarpgroupsThrough,
    parsed,
    plan_of,
)

KNOWN = {
    "0": Plan((0,)),
    "17": Plan((17,)),
    "f3": AsForward((3,)),
    "b4": Bare((4,)),
    "d1": Direct((1,)),
    "t1": Tiled((1,)),
    "t2-8-16": Tiled((2, 8, 16)),
    "w4-2-3": Warpgroups((4, 2, 3)),
    "p2-8": Through((2, 8)),
    "pw4-0": WarpgroupsThrough((4, 0)),
    "e2-2-2-2": AtEnd((2, 2, 2, 2)),
}
UNKNOWN = ("", "t", "pw", "tx", "x", "u2-2", "-1", "t-1", "t1-", "t1--2", "1-2", "f1-2", "b1-2")
UNKNOWN += ("d1-2", "wp1", "t1 ", "t\u0661", "1t")


@pytest.mark.parametrize("text", KNOWN)
def test_a_choice_is_what_its_text_says(text):
    assert parsed("c", text) == KNOWN[text]
    assert type(parsed("c", text)) is type(KNOWN[text])
    assert KNOWN[text].text == text


@pytest.mark.parametrize("text", UNKNOWN)
def test_a_text_that_says_nothing_known_is_an_error(text):
    with pytest.raises(ChoiceError, match=f"^{re.escape(ascii(text))} for 'train/c'$"):
        parsed("train/c", text)


def test_a_library_takes_its_own_plans_alone():
    assert plan_of("c", None) is None
    assert plan_of("c", Plan((7,))) == Plan((7,))
    assert Plan((7,)).number == 7
    for text in sorted(KNOWN.keys() - {"0", "17"}):
        with pytest.raises(ChoiceError, match=f"^'{text}' for 'c'$"):
            plan_of("c", KNOWN[text])
