"""A training step at a glance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .units import quantity, time_text

if TYPE_CHECKING:
    from .explain import Call, Explanation, Operation

_WHY = "docs/explain.md#why-a-call-is-slow"
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
    takes = f"computes {quantity(told.totals()['step'].flops, 'FLOP')}; --measure says what helps"
    advice = max(gains, key=gains.__getitem__) if step else None
    if step and advice:
        takes = f"takes {time_text(step.seconds)}; what would help {gains[advice]:.0%}: {advice}"
    named = ", ".join("{operation} ({share:.0%})".format(**each) for each in most)
    text = f"at a glance: the step {takes} ({_WHY}); most is in {named}"
    return {"text": text, "most": most, "help": advice, "see": _WHY}
