"""What bench finds of a step, says of it, and holds against an earlier measurement."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dnnstack
import pytest
from dnnstack.backends.base import Limits
from dnnstack.common.errors import ConfigError, UsageError
from dnnstack.configs import load_mapping
from dnnstack.configs.write import effective_yaml
from dnnstack.reports import bench as module
from dnnstack.reports.bench import Bench, Timed, bench
from dnnstack.reports.summary import summarize
from dnnstack.training.records.formats.record import read_typed

STEP = (1e-3, 2e-3, 3e-3)
FOUND = Bench(
    "tiny.yaml",
    "onednn",
    {"threads": "2"},
    (
        Timed(
            64,
            {
                "forward": STEP,
                "backward": STEP,
                "update": STEP,
                "step": STEP,
                "torch": (9, 9.5, 10),
            },
            {"torch": 1.5},
            2048,
            0.251,
        ),
    ),
)


def _loaded(tiny, *changes):
    return load_mapping(tiny(*changes).model_dump())


def test_every_batch_size_is_timed_in_rounds_that_alternate(tiny, reference, monkeypatch):
    ran = []
    ours = iter(range(1, 100))

    begin = module.series

    def series(session):
        begin(session)
        return lambda count: [ran.append(("ours", count)), 0.001 * next(ours)][1]

    def peers(session, backend, notice):
        notice(f"batch {session.plan.batch_size}")
        theirs = iter(range(1, 100))
        return {"torch": lambda count: [ran.append(("theirs", count)), 0.004 * next(theirs)][1]}

    monkeypatch.setattr(module, "series", series)
    monkeypatch.setattr(module, "long_enough", lambda run: 7)
    monkeypatch.setattr(reference, "limits", lambda precision: Limits(100.0, 100.0))
    told = []
    found = bench(_loaded(tiny), reference, [8], peers, told.append)
    assert told == ["batch 8"]
    assert ran == [("ours", 7), ("theirs", 7)] * 9
    (timed,) = found.batches
    # Of 1 to 9.
    assert timed.seconds["step"] == pytest.approx((0.003, 0.005, 0.007))
    assert timed.seconds["torch"] == pytest.approx((0.012, 0.02, 0.028))
    assert timed.ratios == {"torch": pytest.approx(4)}
    assert timed.bytes == summarize(tiny("data.batch_size=8"), Path("x")).training.total
    assert timed.fraction_of_limit is not None
    assert 0 < timed.fraction_of_limit < 1


def test_phases_are_those_of_the_calls(tiny, reference, monkeypatch):
    """Each call takes a second, so that their numbers are the times."""
    calls = {}

    def measure(section, repeats):
        calls[section] = plain = executable.graphs[section].ops
        return [float(repeats) / 3] * len(plain)

    def peers(session, backend, notice):
        nonlocal executable
        executable = session.executable
        monkeypatch.setattr(executable, "measure", measure)
        return {}

    executable = SimpleNamespace()
    changes = "train.accumulate=4"
    (timed,) = bench(_loaded(tiny, changes), reference, [8], peers, print).batches
    wanted = dict.fromkeys(("forward", "backward", "update"), 0)
    for section, ops in calls.items():
        for op in ops:
            phase = op.origin[0].phase
            times = 4 if section == "train" else 1
            wanted["forward" if phase in ("data", "loss") else phase] += times
    assert len(calls) == 2
    assert {name: timed.seconds[name] for name in wanted} == {
        name: (count,) * 3 for name, count in wanted.items()
    }


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ([], [8, 16, 32]),
        (["data.batch_size=168"], [84, 168]),
        (["data.batch_size=1"], [1, 2]),
        (["data.batch_size=12", "train.accumulate=4"], [12, 24]),
    ],
)
def test_sizes_are_the_configs_its_half_and_its_double(
    tiny, reference, monkeypatch, changes, sizes
):
    monkeypatch.setattr(module, "_timed", lambda config, *how: config.data.batch_size)
    monkeypatch.setattr(reference, "limits", lambda precision: None)
    assert [*bench(_loaded(tiny, *changes), reference, None, None, print).batches] == sizes
    with pytest.raises(UsageError, match="batch sizes: expected whole numbers of at least 1"):
        bench(_loaded(tiny), reference, [4, 0], None, print)
    with pytest.raises(ConfigError, match="auto is chosen when a training"):
        bench(_loaded(tiny, "data.batch_size=auto"), reference, None, None, print)


def test_what_is_slower_by_more_than_the_noise_of_both(tmp_path):
    path = tmp_path / "before.json"
    path.write_text(json.dumps(FOUND.to_json()))
    before = read_typed(path, 1 << 20, Bench)
    assert before == FOUND
    assert FOUND.slower(before) == []

    def now(**seconds):
        batch = FOUND.batches[0]
        return replace(FOUND, batches=(replace(batch, seconds={**batch.seconds, **seconds}),))

    assert now(step=(3e-3, 4e-3, 5e-3)).slower(before) == []
    slow = (math.nextafter(3e-3, 1), 4e-3, 5e-3)
    assert now(step=slow, torch=(11, 12, 13)).slower(before) == [
        "batch 64, step: 2.00 ms -> 4.00 ms"
    ]
    assert len(now(update=slow, forward=slow).slower(before)) == 2
    others = replace(FOUND.batches[0], batch_size=32)
    for other in ({"config": "x.yaml"}, {"backend": "cuda"}, {"batches": (others,)}):
        with pytest.raises(UsageError, match=r"is of tiny.yaml on onednn, with batch sizes of 64;"):
            replace(FOUND, **other).slower(before)


def test_a_row_for_each_program():
    rows = [line.split() for line in FOUND.as_text().splitlines()[3:]]
    assert " ".join(rows[1]) == (
        "64 dnnstack 2.00 ms 2.00 ms 2.00 ms 2.00 ms 1.00 ms to 3.00 ms 32,000 2.00 KiB 25%"
    )
    assert " ".join(rows[2]) == "64 torch 9500.00 ms 9000.00 ms to 10000.00 ms 7 1.50"
    assert "64" in FOUND._repr_html_()
    bare = replace(FOUND.batches[0], ratios={}, bytes=None, fraction_of_limit=None)
    assert bare.rows()[0][-3:] == ["", "", ""]
    # What compares is shown where there is something to compare with.
    texts = [replace(FOUND, batches=each).as_text() for each in ((bare,), (bare, *FOUND.batches))]
    assert ["/ ours" in text for text in texts] == [False, True]
    assert all("of limit" in text for text in texts)


def test_a_program_may_ask(tiny, tmp_path):
    config = tmp_path / "tiny.yaml"
    config.write_text(effective_yaml(tiny()))
    found = dnnstack.bench(config, batch_sizes=[4], device="numpy")
    assert (found.config, found.backend) == (str(config), "numpy")
    low, middle, high = found.batches[0].seconds["step"]
    assert 0 < low <= middle <= high
    with pytest.raises(UsageError, match="compare"):
        dnnstack.bench(config, compare="jax")
