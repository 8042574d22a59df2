"""The block ``search``: what it says, and its mistakes with file, line and expectation."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs.load import load_config
from dnnstack.configs.search import Dimension, Search, load_search

from ..support.stored import beside, stored

HEAD = beside(__file__, "search_head.yaml")
START = HEAD.count("\n") + 1


def load(tmp_path: Path, block: str, head: str = HEAD) -> Search:
    path = tmp_path / "s.yaml"
    path.write_text(head + block, encoding="utf-8")
    return load_search(path)[1]


def test_a_whole_block(tmp_path):
    block = """\
  objective: [accuracy, loss]
  sampler: random
  seed: 5
  trials: 20
  epochs: 60
  keys:
    optimizer.lr: {low: 1e-3, high: 0.1, log: true}
    data.batch_size: {low: 32, high: 128, step: 32}
    optimizer.momentum: [0.0, 0.9]
    optimizer.nesterov: {values: [true, false], when: {optimizer.momentum: 0.9}}
    schedule: [fixed, {type: step, gamma: 0.5, step_size: 100}]
"""
    found = load(tmp_path, block)
    assert (found.objective, found.sampler, found.seed) == (("accuracy", "loss"), "random", 5)
    assert (found.trials, found.seconds, found.epochs, found.prune) == (20, None, 60, None)
    rate, batch, momentum, nesterov, schedule = found.dimensions
    assert rate == Dimension("optimizer.lr", 1e-3, 0.1, log=True)
    assert batch.grid() == [32, 64, 96, 128]
    assert momentum.values == (0.0, 0.9)
    assert nesterov.holds({"optimizer.momentum": 0.9})
    assert not nesterov.holds({"optimizer.momentum": 0.0})
    assert schedule.values[1] == {"type": "step", "gamma": 0.5, "step_size": 100}


def test_conditions_that_hold(tmp_path):
    """Numbers are compared as numbers, also after steps that floating point does not hit."""
    block = """\
  trials: 2
  keys:
    data.batch_size: {low: 32, high: 128, step: 32}
    optimizer.momentum: {low: 0.0, high: 0.9, step: 0.1}
    optimizer.lr: {values: [1], when: {data.batch_size: [64, 128], optimizer.momentum: 0.3}}
    optimizer.nesterov: {values: [false], when: {optimizer.momentum: 0}}
    seed: {low: 1, high: 9, when: {data.batch_size: 64}}
"""
    *_, rate, nesterov, seed = load(tmp_path, block).dimensions
    assert seed == Dimension("seed", 1, 9, step=1, whole=True, when={"data.batch_size": (64,)})
    assert nesterov.holds({"optimizer.momentum": 0.0})
    assert rate.holds({"data.batch_size": 64, "optimizer.momentum": 3 * 0.1})
    assert not rate.holds({"data.batch_size": 96, "optimizer.momentum": 0.3})
    assert not rate.holds({"data.batch_size": 64, "optimizer.momentum": 0.4})
    assert not Dimension("a", when={"b": (True,)}).holds({"b": 1})


def test_a_range_ends_where_its_steps_do(tmp_path):
    """Otherwise Optuna warns, and cuts it itself."""
    block = """\
  trials: 2
  keys:
    data.batch_size: {low: 32, high: 150, step: 32}
    optimizer.momentum: {low: 0, high: 0.9, step: 0.3}
    optimizer.lr: {low: 0.1, high: 0.75, step: 0.2}
"""
    batch, momentum, rate = load(tmp_path, block).dimensions
    assert (batch.high, momentum.high, rate.high) == (128, 0.9, 0.7)


def test_the_least_and_the_largest_numbers(tmp_path):
    block = """\
  prune: {after_trials: 1, after_validations: 0}
  seed: 9223372036854775807
  trials: 1
  seconds: 1e-9
  keys: {seed: [0]}
"""
    found = load(tmp_path, block)
    assert (found.prune, found.seed, found.trials) == ((1, 0), 2**63 - 1, 1)
    assert found.seconds == 1e-9


def test_a_grid_with_conditions(tmp_path):
    """A key that is not set makes no combination of its own, nor does what depends on it."""
    block = """\
  sampler: grid
  keys:
    optimizer.momentum: [0.0, 0.9, 0]
    optimizer.nesterov: {values: [false, true], when: {optimizer.momentum: 0.9}}
    optimizer.lr: {values: [0.1, 0.2], when: {optimizer.nesterov: true}}
    seed: {low: 1, high: 2}
"""
    short = ("optimizer.momentum", "optimizer.nesterov", "optimizer.lr", "seed")
    found = load(tmp_path, block).grid()
    assert all(list(each) == [key for key in short if key in each] for each in found)
    assert [tuple(each.values()) for each in found] == [
        *((0.0, 1), (0.0, 2), (0.9, False, 1), (0.9, False, 2)),
        *((0.9, True, 0.1, 1), (0.9, True, 0.1, 2), (0.9, True, 0.2, 1), (0.9, True, 0.2, 2)),
    ]


def test_a_value_is_tried_with_all_that_it_depends_on(tmp_path):
    """nesterov needs the momentum, of which the seed's own condition does not speak."""
    head = HEAD.replace(", momentum: 0.9", "")
    block = """\
  trials: 2
  keys:
    optimizer.momentum: [0.0, 0.5, 0.9]
    optimizer.nesterov: {values: [true], when: {optimizer.momentum: [0.5, 0.9]}}
    seed: {values: [3], when: {optimizer.nesterov: true}}
    optimizer.lr: {values: [1], when: {optimizer.nesterov: true, optimizer.momentum: [0.9, 0.5]}}
    data.batch_size: {values: [8], when: {optimizer.lr: 1, optimizer.momentum: 0.9}}
"""
    (tmp_path / "s.yaml").write_text(head + block, encoding="utf-8")
    search = load_search(tmp_path / "s.yaml")[1]
    fits = {"optimizer.momentum": 0.5, "optimizer.nesterov": True}
    assert [*search.needed(search.dimensions[2]).items()] == [*fits.items()]
    assert search.needed(search.dimensions[4]) == {
        **fits, "optimizer.momentum": 0.9, "optimizer.lr": 1
    }  # fmt: skip
    # Where nothing fits both, what the first one asks for.
    other = Dimension("seed", values=(1,), when={"optimizer.momentum": (0.0,)})
    for pair, value in (((other, search.dimensions[1]), 0.0), ((search.dimensions[1], other), 0.5)):
        assert search.needed(*pair)["optimizer.momentum"] == value
    with pytest.raises(ConfigError, match=r"nesterov: True does not fit"):
        load(tmp_path, block.replace("[0.5, 0.9]}", "0.0}"), head)


ONE = "  trials: 2\n  keys:\n    "


@pytest.mark.parametrize(("block", "said"), stored(__file__, "search_errors.txt"))
def test_mistakes_have_their_place(tmp_path, block, said):
    """In the line of the block that is told first."""
    line, _, message = said.partition(": ")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"{block}\n")
    text = str(caught.value)
    assert f"{tmp_path / 's.yaml'}:{START + int(line)}:" in text
    assert ": search." in text
    assert message in text


def test_every_mistake_is_told_at_once(tmp_path):
    with pytest.raises(ConfigError, match="3 errors"):
        load(tmp_path, "  trials: x\n  sampler: y\n  keys: {optimizer.lr: 1}\n")


def test_values_are_tried_beside_other_mistakes(tmp_path):
    """But not those of a key whose condition is wrong, or that depends on such a key."""
    block = """\
  trials: 2
  sampler: tbe
  keys:
    optimizer.momentum: [0.9, 1.5]
    optimizer.nesterov: {values: [maybe], when: {optimizer.momentun: 0.9}}
    seed: {values: [x], when: {optimizer.nesterov: maybe}}
"""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, block)
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("s.yaml: 3 errors")
    sampler = "search.sampler: expected tpe, random, nsga2 or grid"
    assert f"{sampler} (got 'tbe'; did you mean 'tpe'?)" in lines[0]
    assert "momentum: 1.5 does not fit: expected a number below 1 (got 1.5)" in lines[1]
    assert "is not a key of this search; did you mean 'optimizer.momentum'?" in lines[2]


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("momentum", "is not a key of this search; did you mean 'optimizer.momentum'?"),
        ("train.epochs", "; the keys above are optimizer.lr, optimizer.momentum"),
        ("data.batch_size", "is searched further below; a key can depend only on keys above it"),
    ],
)
def test_a_condition_on_what_is_not_above(tmp_path, key, answer):
    block = f"""\
  trials: 2
  keys:
    optimizer.lr: [0.1, 0.2]
    optimizer.momentum: [0.0, 0.9]
    optimizer.nesterov: {{values: [true], when: {{{key}: 0.9}}}}
    data.batch_size: [32, 64]
"""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, block)
    assert answer in str(caught.value)


def test_a_config_without_a_block_and_a_mistake_in_the_config(tmp_path):
    head = HEAD.replace("search:\n", "")
    with pytest.raises(ConfigError, match="has no block 'search'"):
        load(tmp_path, "", head)
    with pytest.raises(ConfigError, match=r"s.yaml:7:.*epoch.*did you mean 'epochs'"):
        load(tmp_path, f"{ONE}seed: [1]\n", HEAD.replace("epochs: 3", "epoch: 3"))
    # A range that fits at one end only.
    with pytest.raises(ConfigError, match=r"keys.optimizer.momentum: 1.5 does not fit"):
        load(tmp_path, f"{ONE}optimizer.momentum: {{low: 0.5, high: 1.5}}\n")


def test_a_training_says_whose_the_block_is(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(HEAD + "  trials: 2\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}:{START - 1}:1: search: a config with a search is for dnnstack ")


def test_overrides_of_the_block(tmp_path):
    """As those of a config; points within a key that is searched are its own."""
    path = tmp_path / "s.yaml"
    path.write_text(
        HEAD + "  trials: 2\n  prune: true\n  keys:\n"
        "    optimizer.lr: {low: 0.1, high: 0.9}\n    optimizer.momentum: [0.0, 0.9]\n",
        encoding="utf-8",
    )
    config, found = load_search(
        path,
        (
            *("search.trials=7", "search.sampler=random", "search.prune.after_trials=3"),
            *("search.keys.optimizer.lr.high=0.5", "search.keys.optimizer.momentum=[0.5]"),
            *("search.keys.seed={low: 1, high: 4}", "optimizer.momentum=0.1"),
        ),
    )
    assert (found.trials, found.sampler, found.prune) == (7, "random", (3, 1))
    rate, momentum, seed = found.dimensions
    assert (rate.low, rate.high, momentum.values) == (0.1, 0.5, (0.5,))
    assert seed == Dimension("seed", 1, 4, step=1, whole=True)
    assert config.config.optimizer.momentum == 0.1
    for change, message in (
        ("search.trails=3", r"--set search.trails=3: search.trails: unknown key; did you mean 'tr"),
        ("search.trials=x", r"--set search.trials=x: search.trials: expected a whole number"),
        ("search.prune=maybe", r"--set search.prune=maybe: search.prune: expected a mapping"),
        ("search", r"--set search: expected search.key=value, as in search.trials=20"),
        (
            "search.keys.optimizer.lr.high=0",
            r"--set search.keys.optimizer.lr.high=0: search.keys.optimizer.lr: the range is empty",
        ),
        (
            "search.keys.optimizer.lr.low=-1",
            r"--set search.keys.optimizer.lr.low=-1: search.keys.optimizer.lr: -1 does not fit",
        ),
        (
            "search.keys.optimizer.lr.high=.inf",
            r"search.keys.optimizer.lr.high: expected a finite number \(got .inf\)",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            load_search(path, (change,))


def test_a_block_of_overrides_alone(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(HEAD.replace("search:\n", ""), encoding="utf-8")
    _, found = load_search(path, ("search.trials=2", "search.keys.optimizer.lr=[0.1, 0.2]"))
    assert (found.trials, found.dimensions[0].values) == (2, (0.1, 0.2))
    with pytest.raises(ConfigError, match="'search' is not a key"):
        load_config(path, ("search.trials=2",))
