"""Steps on noise: how many are timed in a row, and what they leave as it was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.training import timing


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [
        (0.2, [1]),
        (0.1, [1, 2]),
        # More than a tenth of a second is enough.
        (0.0125, [1, 2, 4, 8, 16]),
        (1e-9, [1, 2, 4, 8, 16, 32, 64, 128]),
    ],
)
def test_steps_are_timed_in_series_that_are_long_enough(seconds, counts):
    ran = []
    found = timing.long_enough(lambda count: [seconds, ran.append(count)][0])
    assert (ran, found) == (counts, 200 if counts[-1] == 128 else counts[-1])


def test_ranks_agree_upon_the_length_of_a_series():
    agreed = iter([0, 0, 1])
    assert timing.long_enough(lambda count: 1.0, lambda number: next(agreed)) == 4


def test_a_series_begins_at_the_first_step(tiny, backend, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    with timing.made_up(tiny("train={max_steps: 1}"), Path("x"), backend, print) as session:
        assert session.plan.total_steps == 400
        run = timing.series(session)
        before, starts = session.arrays(), []
        stretch = session.stretches[0]
        spied = SimpleNamespace(
            first=0,
            go_to=lambda executable, step: starts.append(step),
            run=lambda executable, count, wait=True: now.__setitem__(0, now[0] + count * 3.0),
        )
        session.stretches = (spied,)
        assert timing.series(session)(4) == 3.0
        assert starts == [0, 0]
        session.stretches = (stretch,)
        run(300)
        for name, array in session.arrays().items():
            np.testing.assert_array_equal(array, before[name])
