"""The learning-rate range test: its rates, where it stops, and the fall that it chooses."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from dnnstack.common.errors import UsageError
from dnnstack.reports.rate_range import RateRange, find_rate
from dnnstack.training.range_test import RangeTest, _diverged, range_test, valley
from dnnstack.training.session import Session

from ..support.trainings import session_of

GROUPS = (
    "optimizer.groups=[{parameters: dense_1.*, lr: 0.1, schedule: {type: cosine, min_lr: 0.01}}]"
)


def _longest(losses):
    """Length, end and start of the longest fall, by trying all; of equals the earliest end."""
    for count in range(len(losses), 1, -1):
        falls = [
            (at[-1], at[0])
            for at in combinations(range(len(losses)), count)
            if all(losses[b] < losses[a] for a, b in pairwise(at))
        ]
        if falls:
            return count, min(falls)[0]
    return None


def test_the_valley_is_the_longest_fall():
    drawn = np.random.default_rng(1)
    for _ in range(200):
        losses = drawn.integers(0, 6, drawn.integers(0, 9)).tolist()
        found, want = valley(losses), _longest(losses)
        assert (found is None) == (want is None), losses
        if want is not None:
            count, end = want
            assert found == (end - count + 1, end), losses
    assert valley([3.0, 2.0, 1.0, float("nan")]) == (0, 2)


def test_the_rate_grows_until_the_loss_has_diverged(tiny, backend, monkeypatch):
    setup = session_of(tiny("optimizer.ema={decay: 0.9}", GROUPS), backend).setup
    plans = []
    begin = Session.begin
    monkeypatch.setattr(Session, "begin", lambda s, at: (plans.append(s.plan), begin(s, at))[1])
    found = range_test(setup, backend, 1e-4, 1e3, 36)
    assert found.diverged
    assert 4 < len(found.rates) < 36
    ratios = [b / a for a, b in pairwise(found.rates)]
    assert ratios == pytest.approx([10 ** (7 / 35)] * len(ratios), rel=1e-5)
    assert found.rates[0] == pytest.approx(1e-4)
    (plan,) = plans
    assert not len(plan.validation)
    rates, decays = plan.tables["rates.0"], plan.tables["ema.decays"]
    assert rates == pytest.approx(2 * plan.rates, rel=1e-6)
    assert len(decays) == plan.total_steps == 36
    assert set(decays.tolist()) == {np.float32(0.9)}
    # The average of Adam's first moment, with its correction.
    weights = [0.9 ** (len(found.losses) - 1 - at) for at in range(len(found.losses))]
    mean = np.dot(weights, found.losses) / sum(weights)
    assert found.smoothed[-1] == pytest.approx(mean, rel=1e-6, nan_ok=True)
    *before, last = found.smoothed
    assert not last <= 4 * min(before)
    assert all(each <= 4 * min(before[: at + 1]) for at, each in enumerate(before))
    first, end = valley(before)
    assert found.suggested == found.rates[(first + 2 * end) // 3]


def test_a_loss_has_diverged_above_four_times_the_best():
    for losses, diverged in (
        ([], False), ([1, 4], False), ([1, 4.001], True), ([2, 1, 3], False), ([1, math.nan], True),
    ):  # fmt: skip
        assert _diverged(losses) == diverged, losses


def test_a_range_test_begins_as_a_training_and_writes_nothing(tiny, backend, tmp_path):
    session = session_of(tiny("train.log_every=1"), backend)
    session.run(1)
    loss = session.training_metrics().loss
    found = range_test(session.setup, backend, 1e-7, 1e-6, 3)
    assert len(found.rates) == 3
    assert not found.diverged
    assert found.losses[0] == pytest.approx(loss, rel=1e-6)
    assert list(tmp_path.iterdir()) == []


def test_what_a_range_test_says(tiny, backend):
    found = range_test(session_of(tiny(), backend).setup, backend, 1e-4, 1e3, 40)
    told = RateRange("tiny.yaml", 0.05, found)
    text = told.as_text()
    assert text.splitlines()[1].split() == ["0.0001", *[f"{found.losses[0]:.4f}"] * 2]
    assert f"the loss diverged at {found.rates[-1]:.3g}\n" in text
    assert text.endswith(f"suggested: optimizer.lr={found.suggested:.2g} (now 0.05)")
    assert json.loads(json.dumps(told.to_json()))["suggested"] == told.suggested
    assert told.picture("png").startswith(b"\x89PNG")
    flat = range_test(session_of(tiny(), backend).setup, backend, 1e-30, 1e-29, 2)
    assert (flat.diverged, len(flat.rates)) == (False, 2)
    losses = tuple(np.linspace(3, 1, 40).tolist())
    falls = RangeTest(tuple(np.linspace(1, 40, 40).tolist()), losses, losses, 27.0, False)
    *rows, _, ended, suggested = RateRange("x", 0.05, falls).as_text().splitlines()
    shown = " ".join(row.split()[0] for row in rows)
    assert shown == "rate 1 4 7 11 14 17 21 24 27 30 33 37 40"
    assert (ended, suggested[:12]) == ("the loss had not diverged at 40", "suggested: o")
    lost = replace(falls, rates=(1.0,), losses=(math.inf,), smoothed=(math.nan,), suggested=None)
    told = RateRange("x", 0.05, lost).to_json()
    assert (told["losses"], told["smoothed"]) == ([None], [None])
    assert "the loss did not fall at any of these rates" in RateRange("x", 0.05, lost).as_text()


def test_rates_that_do_not_grow_are_refused():
    for low, high, steps, said in (
        (1, 1, 9, "from 1 to 1 do not grow"), (0, 1, 9, "from 0 to 1"), (1, math.inf, 9, "to inf"),
        (1, 2, 1, "steps: expected a whole number of at least 2 (got 1)"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=re.escape(said)):
            find_rate("x", None, None, low, high, steps)
