"""The sampler of a search with its options, and keys that exclude each other."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs.overrides import exclude_each_other
from dnnstack.configs.search import Search, load_search

from ..support.stored import cases, stored
from .test_search import HEAD, ONE, START, load

KEYS = "  trials: 2\n  keys: {optimizer.lr: [0.1]}\n"


def options(search: Search) -> tuple[Any, ...]:
    return search.sampler, search.startup_trials, search.multivariate, search.population


@pytest.mark.parametrize(("written", "expected"), cases(__file__, "a_word_or_a_mapping"))
def test_a_word_or_a_mapping(tmp_path, written, expected):
    assert options(load(tmp_path, f"  sampler: {written}\n{KEYS}")) == (*expected,)


@pytest.mark.parametrize(("written", "said"), stored(__file__, "sampler_errors.txt"))
def test_mistakes_have_their_place(tmp_path, written, said):
    """In the column that is told first."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"  sampler: {written}\n{KEYS}")
    column, _, message = said.partition(": ")
    assert f"{tmp_path / 's.yaml'}:{START}:{column}: search.{message}" in str(caught.value)


def test_every_mistake_is_told_at_once(tmp_path):
    written = "{type: tqe, startup_trials: x, multivariate: 3, population: 0, seed: 1}"
    with pytest.raises(ConfigError, match="5 errors"):
        load(tmp_path, f"  sampler: {written}\n{KEYS}")


def test_a_grid_in_a_mapping_needs_no_budget(tmp_path):
    block = "  sampler: {type: grid}\n  keys: {optimizer.lr: [0.1, 0.2]}\n"
    assert len(load(tmp_path, block).grid()) == 2


def test_overrides(tmp_path):
    path = tmp_path / "s.yaml"
    for written in ("nsga2", "{type: nsga2, population: 7}"):
        path.write_text(f"{HEAD}  sampler: {written}\n{KEYS}", encoding="utf-8")
        found = load_search(path, ("search.sampler.population=20",))[1]
        assert options(found) == ("nsga2", 10, None, 20)
        changes = ("search.sampler.type=tpe", "search.sampler.multivariate=true")
        if written == "nsga2":
            assert options(load_search(path, changes)[1]) == ("tpe", 10, True, 50)
        assert load_search(path, ("search.sampler=random",))[1].sampler == "random"
    with pytest.raises(ConfigError, match=r"--set search.sampler.population=1: search.sampler.pop"):
        load_search(path, ("search.sampler.population=1",))
    path.write_text(f"{HEAD}  sampler: nsgaii\n{KEYS}", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"s.yaml:{START}:12: search.sampler: expected tpe"):
        load_search(path, ("search.seed=1",))


def test_keys_that_exclude_each_other(tmp_path):
    block = f"{ONE}train.max_steps: [100, 200]\n    train.epochs: {{low: 1, high: 3}}\n"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, block)
    assert str(caught.value) == (
        f"{tmp_path / 's.yaml'}:{START + 3}:5: search.keys.train.epochs: cannot be set beside "
        "train.max_steps, which is searched too; search one of them, or use 'when'"
    )
    # Beside a value that does not fit by itself.
    with pytest.raises(ConfigError, match="2 errors") as caught:
        load(tmp_path, block.replace("low: 1", "low: -1"))
    assert "-1 does not fit: " in str(caught.value)


@pytest.mark.parametrize(("first", "second", "meet"), cases(__file__, "conditions_keep_keys_apart"))
def test_conditions_keep_keys_apart(tmp_path, first, second, meet):
    batch = "{values: [16], when: {seed: 3}}" if "16" in first + second else "[8, 9]"
    block = f"""\
{ONE}seed: [1, 2, 3]
    data.batch_size: {batch}
    train.epochs: {{values: [1, 2], when: {{{first}}}}}
    train.max_steps: {{values: [10], when: {{{second}}}}}
"""
    if meet:
        with pytest.raises(ConfigError, match="max_steps: cannot be set beside"):
            load(tmp_path, block)
    else:
        assert len(load(tmp_path, block).dimensions) == 4


def test_the_same_words_elsewhere_do_not_exclude_each_other():
    assert exclude_each_other("train.max_steps", "train.epochs")
    assert not exclude_each_other("train.max_steps", "checkpoint.epochs")
    assert not exclude_each_other("train.epochs", "train.epochs")
    assert not exclude_each_other("train.epochs", "train.goal")
