"""The option ``parallel`` of a layer: what ranks share out, its units or the rows of its pictures.

What they make of it is in ``passes/units.py`` and ``passes/bands.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ..common.options import Check, Form, Option, OptionError

SPACE = "space"


def _form(*ways: str) -> Form:
    expected = " or ".join(f"{{split: {way}}}" for way in ways)

    def read(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"split"} and value["split"] in ways:
            return value["split"]
        raise OptionError(f"expected {expected}", words=ways)

    kind = {"type": "object", "properties": {"split": {"enum": [*ways]}}, "required": ["split"]}
    return Form(read, lambda value: {"split": value}, {**kind, "additionalProperties": False})


def _whole_filters(parallel: str | None, others: Mapping[str, Any]) -> None:
    if parallel == "filters" and (
        others.get("groups", 1) != 1 or others.get("connections") is not None
    ):
        what = "groups" if others.get("groups", 1) != 1 else "connections"
        raise OptionError(f"cannot be combined with {what}; leave one of them out")


def _option(text: str, *ways: str) -> Option:
    checks = (Check(_whole_filters),) if "filters" in ways else ()
    return Option("parallel", Annotated[str, _form(*ways)] | None, checks, text, None)


_UNITS = (
    "{split: %s}: with several ranks each has its share of the %s, and inputs and outputs are sent "
    "instead of gradients."
)
_ROWS = (
    "{split: space}: with several ranks each computes a band of rows of every picture, from the "
    "first layer to the last that says so."
)
_OPTIONS = {
    "dense": _option(_UNITS % ("units", "units"), "units"),
    "conv2d": _option(f"{_UNITS % ('filters', 'filters')} {_ROWS}", "filters", SPACE),
    "conv1d": _option(_UNITS % ("filters", "filters"), "filters"),
    "max_pool2d": _option(_ROWS, SPACE),
    "avg_pool2d": _option(_ROWS, SPACE),
}


def split_options(layer: type) -> list[Option]:
    """The option of a class of layers, none if ranks can share out nothing of it."""
    kinds = (vars(each).get("kind", "") for each in layer.__mro__)
    return [_OPTIONS[kind] for kind in kinds if kind in _OPTIONS][:1]
