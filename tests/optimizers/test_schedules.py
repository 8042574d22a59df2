"""Learning rates against values written out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import parse_config
from dnnstack.optimizers.schedules.schedule import Length, in_steps, training_steps
from dnnstack.passes.average import lookahead_decays
from dnnstack.training.rate_tables import make_schedule

from ..support.stored import cases

HEAD = """
data: {dataset: mnist}
layers: [flatten, {dense: {units: 10}}]
optimizer: {type: sgd, lr: 0.5}
train: {epochs: 1}
"""


def rates(text: str, lr: float = 0.5, per_epoch: int = 4, total: int = 8) -> np.ndarray:
    source = f"{HEAD}schedule: {text}\n"
    schedule = make_schedule(parse_config(source, "x.yaml").schedule)
    return schedule.table(lr, Length(total, per_epoch))


def close(found: np.ndarray, expected: list[float]) -> None:
    assert found.dtype == np.float32
    assert found.shape == (len(expected),)
    np.testing.assert_array_equal(found, np.array(expected, np.float64).astype(np.float32))


@pytest.mark.parametrize(("text", "total", "expected"), cases(__file__, "rates"))
def test_rates(text, total, expected):
    found = rates(text, total=total)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "wanted"), cases(__file__, "a_milestone_that_is_never_reached_is_an_error")
)
def test_a_milestone_that_is_never_reached_is_an_error(text, wanted):
    with pytest.raises(ConfigError, match="never reached") as caught:
        rates(text)
    assert wanted in str(caught.value)


@pytest.mark.parametrize(("options", "ends"), cases(__file__, "where_cycles_end"))
def test_where_cycles_end(options, ends):
    text = f"{{type: cosine_restarts, {options}}}"
    schedule = make_schedule(parse_config(f"{HEAD}schedule: {text}\n", "x.yaml").schedule)
    found = schedule.cycle_ends(Length(12, 4))
    assert found is not None
    assert found.tolist() == ends
    rate = schedule.rates(1.0, Length(12, 4))
    assert [t for t in range(12) if rate[t] == 1] == [0, *(end for end in ends if end < 12)]


@pytest.mark.parametrize(("options", "message"), cases(__file__, "cycles_that_are_none"))
def test_cycles_that_are_none(options, message):
    with pytest.raises(ConfigError, match=message):
        rates(f"{{type: cosine_restarts, {options}}}")


@pytest.mark.parametrize("total", [1, 2, 3])
def test_one_cycle_is_finite_in_the_shortest_training(total):
    found = rates("{type: one_cycle, peak_fraction: 0.1}", total=total)
    assert np.isfinite(found).all()
    assert found[0] == np.float32(0.5)


def test_compounding_of_the_lecture_project_has_died_out_at_its_end():
    found = rates("{type: compounding, decay: 0.00005}", lr=0.02, total=1600)
    expected = 0.02 * math.exp(-sum(math.log1p(5e-5 * i) for i in range(1, 1600)))
    np.testing.assert_allclose(found[-1], expected, rtol=1e-6)
    assert found[-1] < 1e-28


def test_every_rate_is_rounded_once():
    found = rates("{type: inv, gamma: 1e-4, power: 0.75}", lr=0.01, total=100_000)
    t = 99_999
    assert found[t] == np.float32(0.01 * (1 + 1e-4 * t) ** -0.75)


def test_length_of_training():
    assert training_steps(None, 70, 10) == 70
    assert training_steps(2.5, None, 10) == 25
    assert training_steps(0.01, None, 10) == 1
    assert in_steps(0.26, 10) == 3


def test_a_begun_step_of_the_training_is_done_whole():
    """9.9 epochs of 48 steps are 475.2: PyTorch recipes count them as 476."""
    assert training_steps(9.9, None, 48) == 476
    # 0.07 * 100 is 7.000000000000001 in binary.
    assert training_steps(0.07, None, 100) == 7


def test_piecewise_is_a_triangle_in_shares_of_the_training():
    """np.interp over t with the corners 0, int(0.23 * 476) = 109 and 476."""
    text = "{type: piecewise, at_fractions: [0, 0.23, 1], factors: [0.2, 1, 0.07]}"
    found = rates(text, lr=1.0, per_epoch=48, total=training_steps(9.9, None, 48))
    wanted = {
        0: 0.2,
        1: 0.2073394495,
        54: 0.5963302752,
        108: 0.9926605505,
        109: 1.0,
        110: 0.9974659401,
        300: 0.5159945504,
        475: 0.0725340599,
    }
    np.testing.assert_allclose([found[t] for t in wanted], list(wanted.values()), rtol=1e-7)


def lookahead(text: str, total: int) -> np.ndarray:
    source = HEAD.replace("data: mnist", "data: {dataset: mnist}")
    source = source.replace("lr: 0.5}", f"lr: 0.5, lookahead: {text}}}")
    config = parse_config(source, "x.yaml").optimizer.lookahead
    assert config is not None
    return lookahead_decays(**config.options(), total_steps=total)


def test_lookahead_grows_towards_the_end_where_it_takes_the_slow_weights():
    d = 0.95**5
    wanted = [-1, -1, -1, -1, d * (5 / 12) ** 3, -1, -1, -1, -1, d * (10 / 12) ** 3, -1, 1]
    close_to = np.array(wanted, np.float64).astype(np.float32)
    np.testing.assert_array_equal(lookahead("{}", 12), close_to)
    np.testing.assert_array_equal(lookahead("{}", 10)[-1], np.float32(d))


def test_lookahead_may_be_the_same_throughout():
    found = lookahead("{every: 2, decay: 0.5, power: 0}", 6)
    np.testing.assert_array_equal(found, np.array([-1, 0.25] * 3, np.float32))


@pytest.mark.parametrize(("fraction", "step"), [(0.57, 57), (0.29, 29), (0.155, 15), (1.0, 100)])
def test_a_fraction_is_rounded_down_to_a_step(fraction, step):
    """0.57 * 100 is 56.99999999999999 in floating point; 57 is meant."""
    text = f"{{type: piecewise, at_fractions: [0, {fraction}], factors: [0, 1]}}"
    found = rates(text, total=100)
    close(found, [0.5 * min(t / step, 1.0) for t in range(100)])
