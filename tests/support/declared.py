"""Options of kinds, drawn or least, from their declarations: a new kind needs no word here."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from annotated_types import Interval
from dnnstack.common.options import Option, Size, options_of
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

SIZE = get_args(Size)[0]


def drawn_options(kind: type, draw: DrawFn) -> dict[str, Any]:
    """Small values of the options; what can be left out and is not known here is left out."""
    found = {each.name: _strategy(each) for each in options_of(kind)}
    missing = [each.name for each in required(kind) if found[each.name] is None]
    assert not missing, f"{kind.__name__}: say how to draw {missing}"
    return {name: draw(strategy) for name, strategy in found.items() if strategy is not None}


def least_options(kind: type) -> dict[str, Any]:
    """The required options alone, at plain values."""
    plain = {int: 4, float: 0.5, bool: True, SIZE: 1}
    return {each.name: plain[each.type] for each in required(kind)}


def required(kind: type) -> list[Option]:
    return [each for each in options_of(kind) if each.is_required]


def _strategy(option: Option) -> SearchStrategy[Any] | None:
    if option.type is bool:
        return st.booleans()
    if option.type == SIZE:
        return st.integers(1, 3)
    if get_origin(option.type) is Literal:
        return st.sampled_from(get_args(option.type))
    low, high = _bounds(option)
    if option.type is int:
        return st.integers(max(int(low), 1), min(int(high), 6))
    if option.type is float:
        return st.floats(max(low, -2.0), min(high, 2.0), width=32)
    return None


def _bounds(option: Option) -> tuple[float, float]:
    low, high = -2.0, 6.0
    for mark in option.marks:
        if isinstance(mark, Interval):
            # An open end is kept away from.
            low = float(mark.ge) if mark.ge is not None else low  # type: ignore[arg-type]
            low = float(mark.gt) + 0.125 if mark.gt is not None else low  # type: ignore[arg-type]
            high = float(mark.le) if mark.le is not None else high  # type: ignore[arg-type]
            high = float(mark.lt) - 0.125 if mark.lt is not None else high  # type: ignore[arg-type]
    return low, high
