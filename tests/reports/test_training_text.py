"""A training as text: how far it is."""

from __future__ import annotations

import pytest
from dnnstack.reports.training_text import epochs, of_epochs, one_epoch, summary

from ..support.resuming import Make, _one_step_a_chunk, go  # noqa: F401
from ..support.stored import cases


@pytest.mark.parametrize(
    ("epoch", "total", "shown"), cases(__file__, "a_few_steps_are_no_0_epochs")
)
def test_a_few_steps_are_no_0_epochs(epoch, total, shown):
    assert of_epochs(epoch, total) == shown


def test_an_epoch_alone():
    assert [one_epoch(count) for count in (0, 1, 0.25, 3 / 859)] == [
        "0.00",
        "1.00",
        "0.25",
        "0.0035",
    ]
    assert [epochs(count) for count in (0, 1, 0.25, 3 / 859)] == ["0", "1", "0.25", "0.0035"]


@pytest.mark.parametrize(
    ("stop_at", "said"),
    [(6, "over the 64 pictures up to step 4"), (8, "over the last 64 pictures")],
)
def test_the_last_line_of_the_log_may_be_older_than_the_end(tiny, reference, stop_at, said):
    done = go(tiny("train.log_every=4"), reference, stop_at=stop_at)
    assert done.step == stop_at
    assert f"({said})\n" in summary(done)
