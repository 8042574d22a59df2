"""Pruning and the sharing of weights, as a config says them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from ...common.options import Count, is_number, is_whole
from .base import Model, problem, tupled


def _shares(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise problem("expected a mapping of names to shares, such as {dense_1.weight: 0.1}")
    for name, share in value.items():
        if not is_number(share) or not 0 < share <= 1:
            raise problem(f"'{name}' has {share!r}; a share is above 0 and at most 1")
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


_HIGHEST_QUALITY = 100


def _qualities(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise problem(
            "expected a mapping of names of parameters to factors, such as {dense_1.weight: 1.5}"
        )
    for name, quality in value.items():
        if not is_number(quality) or not 0 < quality <= _HIGHEST_QUALITY:
            raise problem(
                f"'{name}' has {quality!r}; a factor is above 0 and at most {_HIGHEST_QUALITY}"
            )
    return {str(name): float(value[name]) for name in value}


Qualities = Annotated[
    dict[str, float],
    BeforeValidator(_qualities),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": _HIGHEST_QUALITY,
            },
            "minProperties": 1,
        }
    ),
]
"""A factor for each of some parameters."""


class PruneConfig(Model):
    """Weights that are 0 from the first step on, and stay 0.

    Those of the smallest magnitude among the weights that training begins with.
    """

    keep: Annotated[
        Shares | None,
        "Share of the weights that is kept, for each parameter by name; * and ? stand for any "
        "text, and the first name that matches holds.",
    ] = None
    sensitivity: Annotated[
        Qualities | None,
        "Instead of a share, for each parameter by name: weights are kept from this factor times "
        "their standard deviation on.",
    ] = None

    @field_validator("sensitivity")
    @classmethod
    def _something(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.data.get("keep", 0) is None:
            raise problem("expected keep, sensitivity, or both")
        return value

    @property
    def patterns(self) -> tuple[str, ...]:
        """Names of the parameters that are pruned, with * and ?."""
        return (*(self.keep or ()), *(self.sensitivity or ()))


_MOST_BITS = 12


def _bits(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise problem(
            "expected a mapping of names of parameters to numbers of bits, such as "
            "{dense_1.weight: 5}"
        )
    for name, bits in value.items():
        if not is_whole(bits) or not 1 <= bits <= _MOST_BITS:
            raise problem(f"'{name}' has {bits!r}; bits are a whole number from 1 to {_MOST_BITS}")
    return {str(name): value[name] for name in value}


Bits = Annotated[
    dict[str, int],
    BeforeValidator(_bits),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1, "maximum": _MOST_BITS},
            "minProperties": 1,
        }
    ),
]
"""Bits for each of some parameters."""


class ShareConfig(Model):
    """Weights that share their values: 2 ** bits centroids, found by k-means, then trained.

    The gradient of a centroid is the sum of those of its weights. Weights that are 0 stay 0.
    """

    bits: Annotated[
        Bits,
        "Bits of a weight, for each parameter by name; * and ? stand for any text, and the first "
        "name that matches holds.",
    ]
    start: Annotated[
        Literal["linear", "density", "random"],
        "Where the centroids are before k-means: evenly from the least weight to the greatest, "
        "evenly by the number of weights, or at weights that are drawn.",
    ] = "linear"


class QuantizeConfig(Model):
    """Weights and activations of 8 bits: no training, the last stage.

    Weights are integers from -127 to 127 with a scale for each filter or unit; activations are
    integers from 0 to 255, or from -128 to 127 if some are negative, with a scale for each layer.
    """

    pictures: Annotated[
        Count, "Training pictures, evenly spread, on which the activations are looked at."
    ] = 1000
    range: Annotated[
        Literal["mse", "max", "percentile"],
        "The largest activation that an integer stands for: that with the smallest mean squared "
        "error, the largest that occurs, or a percentile; larger ones are cut.",
    ] = "mse"
    percentile: Annotated[
        float, Field(gt=50, le=100), "Which percentile; with range: percentile."
    ] = 99.99
    float32: Annotated[
        tuple[str, ...],
        BeforeValidator(tupled),
        "Layers that stay in float32, by name; * and ? stand for any text.",
    ] = ()
