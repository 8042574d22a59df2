"""Strict YAML: the core schema of YAML 1.2, and nothing that a config has no use for."""

from __future__ import annotations

import math

import pytest
import yaml
from dnnstack.common.errors import ConfigError
from dnnstack.configs import parse_config
from dnnstack.configs.document import Problem
from dnnstack.configs.load import compose
from dnnstack.configs.scalars import as_yaml, resolve
from hypothesis import given
from hypothesis import strategies as st

from ..support.stored import cases, stored

REST = """\
data: {dataset: mnist}
layers: [flatten]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


def message(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize(("text", "value"), cases(__file__, "what_resolves"))
def test_what_resolves(text, value):
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    (
        "yes no on off y tRUE 12:30 1_000 0b11 0o8 0x -0x1 1e e3 . + - 1,5 2020-01-01 nUll "
        "<< = \u0663 " + "9" * 101
    ).split(),
)
def test_what_stays_a_word(text):
    assert resolve(text) == text


def test_nan():
    assert math.isnan(resolve(".NaN"))  # type: ignore[arg-type]


def test_quoted_numbers_are_text_and_plain_words_need_no_quotes():
    assert parse_config(REST + "name: '12'", "x.yaml").name == "12"
    assert parse_config(REST + "name: no", "x.yaml").name == "no"
    assert parse_config("\ufeff" + REST.replace("\n", "\r\n"), "x.yaml").optimizer.lr == 0.1


@given(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.sampled_from(["null", "~", "1e3", "0x1", "true", ".inf", "", "a: b", "- a", "#", "-"]),
        st.integers(-(10**18), 10**18),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.none(),
    )
)
def test_scalars_written_read_back(value):
    events = list(yaml.parse(f"[{as_yaml(value)}]"))  # type: ignore[arg-type]
    assert len(events) == 7
    scalar = events[3]
    found = resolve(scalar.value) if scalar.style is None else scalar.value
    assert found == value
    assert type(found) is type(value)


SYNTAX = [
    *stored(__file__, "syntax_errors.txt"),
    ("", "x.yaml:1:1: the file is empty; a config needs data, layers, optimizer and train"),
    (
        "# only\n# comments\n",
        "x.yaml:1:1: the file is empty; a config needs data, layers, optimizer and train",
    ),
    ("data:\n\tdataset: mnist", "x.yaml:2:1: data: found a tab; indent YAML with spaces"),
    ("a: \x07", "x.yaml:1:4: the character U+0007 is not allowed in YAML"),
    ("a: 1\nb:  \x01", "x.yaml:2:5: the character U+0001 is not allowed in YAML"),
    (REST + "---\n" + REST, "x.yaml:5:1: a second document begins here; a config is one document"),
    (
        "a: " + "[" * 1000,
        "x.yaml:1:53: a.0.0: nested more than 50 levels deep; too deep for a config",
    ),
    (
        "a: " + "{a: " * 1000,
        "x.yaml:1:197: a.a.a: nested more than 50 levels deep; too deep for a config",
    ),
]


@pytest.mark.parametrize(("text", "expected"), SYNTAX, ids=lambda text: repr(text[-30:]))
def test_message(text, expected):
    assert message(text) == expected


def test_what_could_not_be_read_hides_no_other_error():
    assert message("seed: *a\nname: &b [1]\n" + REST.replace("0.1", "fast")) == (
        "x.yaml: 4 errors\n"
        "x.yaml:1:7: seed: alias '*a': aliases are not supported; repeat it\n"
        "x.yaml:2:7: name: anchor '&b': anchors are not supported; remove it\n"
        "x.yaml:2:7: name: expected text (got [1])\n"
        "x.yaml:5:28: optimizer.lr: expected a number (got 'fast')"
    )


@given(st.text(max_size=60))
def test_any_text_gives_a_config_error(text):
    with pytest.raises(ConfigError):
        parse_config(text, "x.yaml")


@given(st.text("{}[]:,-&*!|>'\"%@` \n#ab1", max_size=60))
def test_any_punctuation_gives_a_config_error(text):
    with pytest.raises(ConfigError):
        parse_config(text, "x.yaml")


def test_a_document_is_read_once_and_changed_by_nobody_else():
    """What an override, or a reader, does to the tree of one load is not there in the next."""
    text = "a: {b: [1, {c: 2}]}\nd: e\n"
    problems: list[Problem] = []
    first = compose(text, "x.yaml", problems)
    assert first is not None
    wanted = first.plain()
    assert isinstance(first.value, dict)
    inner = first.value["a"].value
    assert isinstance(inner, dict)
    inner["b"].items[1].value = 3
    inner["b"].items.append(first.value.pop("d"))
    first.value["a"].path = ("elsewhere",)
    again = compose(text, "x.yaml", problems)
    assert again is not None
    assert (again.plain(), again.child("a").path) == (wanted, ())  # type: ignore[union-attr]
    # The same text of another file has other places, and what is wrong is told each time.
    other = compose(text, "y.yaml", problems)
    assert other is not None
    assert (other.place.source, again.place.source) == ("y.yaml", "x.yaml")
    assert not problems
    for count in (1, 2):
        compose("a: 1\na: 2\n", "x.yaml", problems)
        assert len(problems) == count


def test_a_text_is_no_longer_than_a_file_may_be():
    """It may come from a checkpoint, in which a thousand times as much is packed."""
    longest = f"{REST}#".ljust(2**20, "x")
    assert parse_config(longest, "x.yaml").train.epochs == 1
    said = "x.yaml:1:1: larger than 1 MiB, which is too large for a config"
    assert message(f"{longest}x") == said
