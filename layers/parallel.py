"""The option that says what ranks share out of a layer: its units, or the rows of its pictures."""

from __future__ import annotations

from typing import Annotated, Any

from ..common.options import Form, OptionError

SPACE = "space"


def _form(*ways: str) -> Form:
    expected = " or ".join(f"{{split: {way}}}" for way in ways)

    def read(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"split"} and value["split"] in ways:
            return value["split"]
        raise OptionError(f"expected {expected}", words=ways)

    kind = {"type": "object", "properties": {"split": {"enum": [*ways]}}, "required": ["split"]}
    return Form(read, lambda value: {"split": value}, {**kind, "additionalProperties": False})


SplitUnits = Annotated[str, _form("units")]
SplitFilters = Annotated[str, _form("filters", SPACE)]
SplitSpace = Annotated[str, _form(SPACE)]
PARALLEL = (
    "{split: %s}: with several ranks each has its share of the %s, and inputs and outputs are sent "
    "instead of gradients."
)
BY_SPACE = (
    "{split: space}: with several ranks each computes a band of rows of every picture, from the "
    "first layer to the last that says so."
)
