"""The forms that several keys share: words, numbers by name, notes beside a model."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import load_config
from dnnstack.configs.schema.base import Aside
from dnnstack.configs.schema.compression import Bits, Qualities, Shares
from dnnstack.configs.schema.init_from import InitFrom
from dnnstack.configs.schema.pictures import Normalize
from dnnstack.configs.schema.plugins import Plugins
from pydantic import TypeAdapter, ValidationError

_OF_SHARES = "'a' has {!r}; a share is above 0 and at most 1"
_OF_FACTORS = "'a' has {!r}; a factor is above 0 and at most 100"
_OF_BITS = "'a' has {!r}; bits are a whole number from 1 to 12"


def read(kind, value):
    return TypeAdapter(kind).validate_python(value)


def said(kind, value):
    with pytest.raises(ValidationError) as caught:
        read(kind, value)
    return caught.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "message"),
    [
        (Shares, (1e-6, 1), (0, 1.001, True, "x"), _OF_SHARES),
        (Qualities, (1e-6, 100), (0, 100.5, True, "x"), _OF_FACTORS),
        (Bits, (1, 12), (0, 13, 2.5, True), _OF_BITS),
    ],
)
def test_numbers_by_name(kind, right, wrong, message):
    for value in right:
        found = read(kind, {"a": value})
        assert found == {"a": value}
        assert type(found["a"]) is (int if kind is Bits else float)
    for value in wrong:
        assert said(kind, {"b": right[0], "a": value}) == message.format(value)
    for value in ({}, 3, None):
        assert said(kind, value).startswith("expected a mapping of names ")


@pytest.mark.parametrize("key", ["name", "layers.0.name"])
def test_longest_names(key):
    longest = "a" * 64
    load_config("lenet.yaml", [f"{key}={longest}"])
    with pytest.raises(ConfigError, match=r"\(at most 64\)"):
        load_config("lenet.yaml", [f"{key}={longest}a"])


def test_a_run_is_not_the_latest():
    assert load_config("lenet.yaml", ["name=latest-1"]).config.name == "latest-1"
    with pytest.raises(ConfigError, match="and not 'latest'"):
        load_config("lenet.yaml", ["name=latest"])


def test_plugins_by_name_and_hash():
    digest = "0" * 64
    (short,) = read(Plugins, "mine.py")
    (whole,) = read(Plugins, [{"file": "mine.py", "sha256": digest}])
    assert short.model_dump() == "mine.py"
    assert whole.model_dump() == {"file": "mine.py", "sha256": digest}
    message = "expected 64 hexadecimal digits in lower case"
    for wrong in (digest[1:], f"{digest}0", "A" * 64):
        assert said(Plugins, {"file": "mine.py", "sha256": wrong}) == message
    assert said(Plugins, "mine.txt").startswith("expected the name of a Python file in the")
    assert said(Plugins, ["mine.py", "mine.py"]) == "expected each file once"


def test_short_forms():
    assert read(InitFrom, "run-1").model_dump() == "run-1"
    skipping = {"source": "run-1", "skip": "a"}
    assert read(InitFrom, skipping).model_dump() == skipping
    assert said(InitFrom, 3).startswith("expected a run, a file or a model, or")
    assert read(Normalize, "measured").model_dump() == "measured"
    assert not read(Normalize, {"std": 2}).measured
    assert said(Normalize, "x") == "expected 'measured' or a mapping with mean and std"


def test_notes_are_no_part_of_a_value():
    assert Aside("here") == Aside("there")
    assert Aside("here") != "here"


@pytest.mark.parametrize("key", ["data.balance", "checkpoint.snapshots"])
def test_false_is_written_as_if_it_were_not_there(key):
    section, name = key.split(".")
    for value, kept in (("false", None), ("null", None), ("true", True)):
        changes = [f"{key}={value}", "schedule=cosine"]
        written = load_config("lenet.yaml", changes).config.model_dump()
        assert written[section].get(name) is kept
