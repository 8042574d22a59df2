"""A training step at a glance, and its calls as a trace in Chrome's format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .units import quantity, time_text

if TYPE_CHECKING:
    from .explain import Call, Explanation, Operation

_WHY = "dnnstack help explain#why-a-call-is-slow"
_TIMES = "microseconds; each call was timed alone, and stands behind the one before in its stream"
# What would help a call of which this is true; below 8 FLOP a byte, machines wait for memory.
_HELP: tuple[tuple[Callable[[Operation, Call], bool], str], ...] = (
    (lambda o, c: c.bound.library == "numpy", "--device cpu, or layers that the library knows"),
    (lambda o, c: c.bound.implementation[:3] in ("ref", "sim", "gem"), "other strides or padding"),
    (lambda o, c: (c.seconds or 0.0) < 2e-5, "larger batches"),
    (lambda o, c: "reorder" in c.bound.function, "channels in multiples of 16"),
    (lambda o, c: o.op.flops() < 8 * o.bytes, "run.fusion, and layers in the usual order"),
    (lambda o, c: True, "fewer floating-point operations, or channels in multiples of 16"),
)


def glance(told: Explanation) -> dict[str, Any]:
    """What a step takes, what most of it is, and what would help; all of FLOP if not measured."""
    step, gains = told.whole, defaultdict[str, float](float)
    calls = [(c.seconds or 0.0, o, c) for o in told.operations for c in o.calls]
    if step is None:
        calls = [(float(o.op.flops()), o, o.calls[-1]) for o in told.operations if o.calls]
    whole = sum(cost for cost, *_ in calls) or 1.0
    for cost, o, c in calls:
        gains[next(text for holds, text in _HELP if holds(o, c))] += cost / whole
    most: list[dict[str, Any]] = [
        {"operation": o.title, "call": c.bound.function, "share": cost / whole}
        for cost, o, c in sorted(calls, key=lambda each: -each[0])[:3]
    ]
    total = told.totals()["step"]
    takes = f"computes {quantity(total.flops, 'FLOP')}; --measure says what helps"
    if told.foreseen:
        takes = f"takes at least {time_text(total.limit_seconds)}, by the card's limits"
    advice = max(gains, key=gains.__getitem__) if step else None
    if step and advice:
        helped = f"{advice} would help calls of {gains[advice]:.0%} of it"
        takes = f"takes {time_text(step.seconds)}; {helped}"
    named = ", ".join("{operation} ({share:.0%})".format(**each) for each in most)
    text = f"at a glance: the step {takes} ({_WHY}); most is in {named}"
    return {"text": text, "most": most, "help": advice, "see": _WHY}


def trace(told: Explanation) -> str:
    """The calls in the format of Chrome's tracing, which Perfetto opens, with a row a stream."""
    ends, events = defaultdict[int, float](float), list[dict[str, Any]]()
    for operation, call in ((o, c) for o in told.operations for c in o.calls):
        stream, micro = int(call.bound.arguments.get("stream", 0)), 1e6 * (call.seconds or 0.0)
        where = {"ph": "X", "pid": 0, "tid": stream, "ts": ends[stream], "dur": micro}
        said = {"for": operation.title, **call.to_json()}
        events.append({"name": call.bound.function, **where, "args": said})
        ends[stream] += micro
    row = {"name": "thread_name", "ph": "M", "pid": 0}
    events += [{**row, "tid": stream, "args": {"name": f"stream {stream}"}} for stream in ends]
    about = {"times": _TIMES, "config": told.config, "backend": told.backend}
    return json.dumps({"traceEvents": events, "otherData": about})
