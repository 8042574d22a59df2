"""The explanation holds every operation that is run, with its calls and figures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.base import Backend, Limits
from dnnstack.backends.onednn import backend as backend_module
from dnnstack.backends.settling import DISTURBED
from dnnstack.configs import RunConfig
from dnnstack.graph.ops import Reshape
from dnnstack.graph.rewrites import rewritten
from dnnstack.reports import explain as report_module
from dnnstack.reports.explain import Explanation, Operation, explain
from dnnstack.reports.explain_text import as_text
from dnnstack.training.listener import Listener
from dnnstack.training.session import Session
from dnnstack.training.trainer import train
from numpy.typing import NDArray


def _explained(config: RunConfig, backend: Backend, measured: bool = False) -> Explanation:
    notices: list[str] = []
    found = explain(config, Path("tiny.yaml"), backend, measured, notices.append)
    assert notices == []
    return found


@pytest.mark.parametrize("fusion", ["true", "false"])
def test_every_operation_that_is_run_is_there_once(tiny, backend, fusion):
    found = _explained(tiny(f"run.fusion={fusion}"), backend)
    rewrites = backend.rewrites if fusion == "true" else {}
    expected = rewritten(found.plain, rewrites).ops
    assert [operation.op for operation in found.operations] == expected
    in_json = [op for layer in found.to_json()["layers"] for op in layer["operations"]]
    assert sorted(op["op"] for op in in_json) == sorted(op.name for op in expected)
    text = as_text(found)
    for op in expected:
        assert op.name in text
    if backend.name == "numpy":
        assert all(len(operation.calls) == 1 for operation in found.operations)
    for operation in found.operations:
        for call in operation.calls:
            assert call.bound.op == operation.op
            assert f"{call.bound.library} {call.bound.function}" in text


def test_figures_are_those_of_the_operations(tiny, reference):
    found = _explained(tiny(), reference, measured=True)
    assert found.limits is not None
    for operation in found.operations:
        assert operation.seconds is not None
        assert operation.seconds > 0
    totals = found.totals()
    assert totals["step"].flops == sum(o.op.flops() for o in found.operations)
    assert totals["step"].bytes == sum(o.op.bytes() for o in found.operations)
    assert totals["forward"].operations == sum(
        o.origin.phase == "forward" for o in found.operations
    )
    json.dumps(found.to_json(), allow_nan=False)


def test_no_share_is_above_the_limit(tiny, reference, monkeypatch):
    """Limits that a step was faster than are measured again, and the better ones count."""
    asked = []

    def limits(precision: str) -> Limits:
        asked.append(precision)
        return Limits(1e-3, 1e9) if len(asked) == 1 else Limits(2e-3, 1e8)

    monkeypatch.setattr(reference, "limits", limits)
    found = _explained(tiny(), reference, measured=True)
    # As often as it may be, for the machine does more than 2 MFLOP/s.
    assert (asked, found.limits) == (["auto"] * 3, Limits(2e-3, 1e9))
    assert found.whole is not None
    assert found.whole.limit_seconds == found.totals()["step"].limit_seconds
    in_json = found.to_json()
    assert in_json["whole_step"]["fraction_of_limit"] is None
    text = as_text(found)
    assert "faster than the limit: the data was still in a cache" in text
    for operation in found.operations:
        assert operation.limit_seconds is not None
        slower = operation.limit_seconds > (operation.seconds or 0.0)
        assert (operation.to_json()["fraction_of_limit"] is None) == slower
        timed = replace(found, operations=(_timed(operation, operation.limit_seconds),))
        assert timed.totals()["step"].limit_seconds == operation.limit_seconds
        assert "faster" not in as_text(timed).split("total")[0]
    assert not re.search(r"\d{3,}%", text.replace("100%", ""))

    monkeypatch.setattr(reference, "limits", lambda precision: Limits(1e9, 1e9))
    calm = as_text(_explained(tiny(), reference, measured=True))
    assert "faster" not in calm


def _timed(operation: Operation, seconds: float) -> Operation:
    calls = tuple(replace(call, seconds=seconds) for call in operation.calls)
    return replace(operation, calls=calls)


def test_every_call_is_there_and_measuring_trains_nothing(tiny, backend, monkeypatch):
    ended: list[tuple[int, dict[str, NDArray[np.float32]]]] = []
    close = Session.close

    def spy(session: Session) -> None:
        ended.append((len(session.executable.calls("train")), session.arrays()))
        close(session)

    monkeypatch.setattr(Session, "close", spy)
    config = tiny("train={max_steps: 1}")
    found = _explained(config, backend, measured=True)
    ((calls, arrays),) = ended
    assert sum(len(operation.calls) for operation in found.operations) == calls
    for tensor, first in found.network.initial_values(config.seed).items():
        np.testing.assert_array_equal(arrays[tensor.name], first)


@pytest.mark.parametrize(
    ("seconds", "counts"), [(0.25, [3, 4]), (0.26, [3]), (0.0, [3, 200]), (0.0049, [3, 200])]
)
def test_calls_are_timed_for_about_a_second(seconds, counts):
    ran: list[int] = []
    measure = lambda name, count: ran.append(count) or [seconds, 0.0]  # noqa: E731
    stretch = SimpleNamespace(graphs=lambda: [SimpleNamespace(name="train")])
    found = report_module._measure(
        SimpleNamespace(measure=measure),  # type: ignore[arg-type]
        stretch,  # type: ignore[arg-type]
        lambda number: number,
    )
    assert (ran, found) == (counts, {"train": [seconds, 0.0]})


def test_choices_made_beside_other_programs_are_told_once(tiny, onednn, monkeypatch, tmp_path):
    """In a line each, of ``explain`` and of ``train``."""
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "cache"))
    busy = SimpleNamespace(crowd=lambda threads: True)
    monkeypatch.setattr(backend_module, "Others", lambda: busy)
    monkeypatch.setattr(backend_module, "crowded", lambda threads: True)
    for _ in range(2):
        notices: list[str] = []
        explain(tiny(), Path("tiny.yaml"), onednn, False, notices.append)
        assert notices == [DISTURBED]
    listener = Listener()
    listener.notice = notices.append  # type: ignore[method-assign]
    train(tiny("train.max_steps=1"), onednn, Path("unused"), listener=listener)
    assert notices == [DISTURBED] * 2


def test_what_another_call_does_is_not_called_nothing(tiny, reference):
    """As a max-pool in a convolution's kernel; a view is nothing."""
    found = _explained(tiny(), reference)
    bare = [replace(each, calls=()) for each in found.operations]
    lines = as_text(replace(found, operations=bare)).splitlines()
    told = [line for line in lines if "no call" in line]
    assert len(told) == len(bare)
    views = sum(isinstance(each.op, Reshape) for each in bare)
    assert 0 < sum("nothing to compute" in line for line in told) == views
