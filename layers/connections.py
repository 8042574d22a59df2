"""Which input maps each filter of a convolution sees, if it does not see all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from ..common.errors import ShapeError
from ..common.options import LARGEST, Form, OptionError, is_whole

Table = tuple[tuple[int, ...], ...]

LENET5: Table = (
    *(tuple(sorted((k + i) % 6 for i in range(3))) for k in range(6)),
    *(tuple(sorted((k + i) % 6 for i in range(4))) for k in range(6)),
    *(tuple(sorted(((k + i) % 6) for i in (0, 1, 3, 4))) for k in range(3)),
    tuple(range(6)),
)
"""The 16 filters of LeNet-5's C3 over the 6 maps of S2: LeCun et al. 1998, Table I."""

TABLES = {"lenet5": LENET5}


def _read(value: Any) -> Any:
    if isinstance(value, str) and value in TABLES:
        return value
    lists = value if isinstance(value, (list, tuple)) else ()
    good = lists and all(isinstance(maps, (list, tuple)) and maps for maps in lists)
    if not good or not all(is_whole(m) and 0 <= m <= LARGEST for maps in lists for m in maps):
        raise OptionError(
            "expected lenet5, or for each filter the list of the input maps that it sees, "
            "counted from 0",
            words=tuple(TABLES),
        )
    return tuple(tuple(maps) for maps in lists)


def _written(value: Any) -> Any:
    return value if isinstance(value, str) else [list(maps) for maps in value]


_MAPS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_FORMS = [{"enum": list(TABLES)}, {"type": "array", "items": _MAPS, "minItems": 1}]

Connections = Annotated[str | Sequence[Sequence[int]], Form(_read, _written, {"anyOf": _FORMS})]
"""For each filter the input maps that it sees, or the name of a published table."""


def connected(table: Connections, filters: int, channels: int) -> Table:
    """The input maps, counted from 0, of every filter; a name stands for a published table.

    Raises ShapeError if the table does not match the numbers of filters and channels.
    """
    if isinstance(table, str):
        table = TABLES[table]
    if len(table) != filters:
        raise ShapeError(
            f"connections has {len(table)} lists of input maps, but there are {filters} filters; "
            "give one list for each filter"
        )
    for number, maps in enumerate(table):
        if len(set(maps)) != len(maps):
            raise ShapeError(f"connections of filter {number}: expected each map once, got {maps}")
        if max(maps) >= channels:
            raise ShapeError(
                f"connections of filter {number}: {list(maps)} names a map that does not exist; "
                f"the input has the maps 0 to {channels - 1}"
            )
    return tuple(tuple(maps) for maps in table)
