"""Pruning and the sharing of weights, as a config says them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from ...common.options import Count, Form, is_number, is_whole
from .base import Formed, Model, problem, tupled


def _by_name(
    expected: str, fault: str, right: Callable[[Any], bool], to: type, schema: dict[str, Any]
) -> Formed:
    """The form of a mapping of names to numbers; ``fault`` is said of one that is not right."""

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping) or not value:
            raise problem(f"expected a mapping of {expected}")
        for name, number in value.items():
            if not right(number):
                raise problem(f"'{name}' has {number!r}; {fault}")
        return {str(name): to(number) for name, number in value.items()}

    whole = {"type": "object", "additionalProperties": schema, "minProperties": 1}
    return Formed(Form(read, schema=whole))


_HIGHEST_QUALITY = 100
_MOST_BITS = 12
Shares = Annotated[
    dict[str, float],
    _by_name(
        "names to shares, such as {dense_1.weight: 0.1}",
        "a share is above 0 and at most 1",
        lambda share: is_number(share) and 0 < share <= 1,
        float,
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    ),
]
"""A share for each of some parameters."""
Qualities = Annotated[
    dict[str, float],
    _by_name(
        "names of parameters to factors, such as {dense_1.weight: 1.5}",
        f"a factor is above 0 and at most {_HIGHEST_QUALITY}",
        lambda quality: is_number(quality) and 0 < quality <= _HIGHEST_QUALITY,
        float,
        {"type": "number", "exclusiveMinimum": 0, "maximum": _HIGHEST_QUALITY},
    ),
]
"""A factor for each of some parameters."""
Bits = Annotated[
    dict[str, int],
    _by_name(
        "names of parameters to numbers of bits, such as {dense_1.weight: 5}",
        f"bits are a whole number from 1 to {_MOST_BITS}",
        lambda bits: is_whole(bits) and 1 <= bits <= _MOST_BITS,
        int,
        {"type": "integer", "minimum": 1, "maximum": _MOST_BITS},
    ),
]
"""Bits for each of some parameters."""


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
