"""Pruning, as a config says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from ...common.options import is_number
from .base import Model, problem


def _shares(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise problem(
            "expected a mapping of names of parameters to shares, such as {dense_1.weight: 0.1}"
        )
    if not all(is_number(share) and 0 < share <= 1 for share in value.values()):
        raise problem("expected shares above 0 and at most 1")
    return {str(name): float(value[name]) for name in value}


Shares = Annotated[
    dict[str, float],
    BeforeValidator(_shares),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            "minProperties": 1,
        }
    ),
]
"""A share for each of some parameters."""


class PruneConfig(Model):
    """Weights that are 0 from the first step on, and stay 0.

    Those of the smallest magnitude among the weights that training begins with.
    """

    keep: Annotated[
        Shares,
        "Share of the weights that is kept, for each parameter by name; * and ? stand for any "
        "text, and the first name that matches holds.",
    ]
