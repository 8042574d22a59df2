"""Tables of a thousand cases, several to a test: a test costs as much as a case of milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

AT_ONCE = 8


def rows(argument: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """As ``parametrize`` does, with AT_ONCE cases a test, far apart in the table.

    A failure names its case. A test is skipped where all of its cases are.
    """
    table = list(cases)
    tests = -(-len(table) // AT_ONCE)
    groups = [pytest.param(table[first::tests], id=str(table[first])) for first in range(tests)]

    def decorated(test: Callable[..., None]) -> Any:
        @wraps(test)
        def each(**given: Any) -> None:
            group, skipped = given.pop(argument), []
            for row in group:
                try:
                    test(**given, **{argument: row})
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except Exception as error:
                    raise AssertionError(f"{argument} {row!r}: {error}") from error
            if len(skipped) == len(group):
                raise skipped[0]

        return pytest.mark.parametrize(argument, groups)(each)

    return decorated
