"""JSON from files that anybody may have written: read into types, within bounds."""

from __future__ import annotations

import sys
from typing import Annotated, Any, TypeVar

from annotated_types import Interval, MaxLen

T = TypeVar("T")

Count = Annotated[int, Interval(ge=0, le=2**53)]
Finite = Annotated[float, Interval(ge=-sys.float_info.max, le=sys.float_info.max)]
Name = Annotated[str, MaxLen(1000)]
_LONGEST_REASON = 200
_ADAPTERS: dict[Any, Any] = {}


def from_json(text: bytes | str, kind: type[T]) -> T:
    """The value of a type, such as a dataclass, that a JSON text says.

    Nothing is converted, text to a number for example; fields that the type does not have are left
    out. Raises ValueError that says in one line where the text differs.
    """
    from pydantic import TypeAdapter, ValidationError

    adapter = _ADAPTERS.get(kind)
    if adapter is None:
        adapter = _ADAPTERS[kind] = TypeAdapter(kind)
    try:
        found: T = adapter.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = f"{where}: {first['msg']}" if where else str(first["msg"])
        raise ValueError(reason[:_LONGEST_REASON]) from None
    return found
