"""The layers of LeNet-5 (LeCun et al. 1998) and of the perceptron."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from .base import LARGEST, Border, Pair, is_whole, problem
from .layer_base import Initializer, LayerConfig, ScaledInitializerConfig

_TABLES = ("lenet5",)


def _connections(value: Any) -> Any:
    if isinstance(value, str) and value in _TABLES:
        return value
    lists = value if isinstance(value, (list, tuple)) else ()
    good = lists and all(isinstance(maps, (list, tuple)) and maps for maps in lists)
    if not good or not all(is_whole(m) and 0 <= m <= LARGEST for maps in lists for m in maps):
        raise problem(
            "expected lenet5, or for each filter the list of the input maps that it sees, "
            "counted from 0",
            words=_TABLES,
        )
    return tuple(tuple(maps) for maps in lists)


def _listed(value: Any) -> Any:
    return value if isinstance(value, str) else [list(maps) for maps in value]


_MAPS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}

Connections = Annotated[
    str | tuple[tuple[int, ...], ...],
    BeforeValidator(_connections),
    PlainSerializer(_listed),
    WithJsonSchema(
        {"anyOf": [{"enum": list(_TABLES)}, {"type": "array", "items": _MAPS, "minItems": 1}]}
    ),
]
"""For each filter the input maps that it sees, or the name of a published table."""


def _pool_size(data: dict[str, Any]) -> tuple[int, int]:
    size: tuple[int, int] = data.get("pool_size", (1, 1))
    return size


class ScaledSubsamplingConfig(LayerConfig):
    """Coefficient * sum over the window + bias, both trained, one a map: LeNet-5's subsampling."""

    type: Literal["scaled_subsampling"] = "scaled_subsampling"
    pool_size: Pair = Field(
        default=(2, 2), description="Size of the window: number or [height, width]."
    )
    stride: Pair = Field(
        default_factory=_pool_size, description="Step of the window; default: pool_size."
    )
    pooling: Literal["sum", "average"] = Field(
        default="sum", description="What the coefficient multiplies: sum or average of the window."
    )
    kernel_initializer: Initializer = Field(
        default=ScaledInitializerConfig(type="ones"),
        description="First values of the coefficients.",
    )
    bias_initializer: Initializer = Field(
        default=ScaledInitializerConfig(type="zeros"), description="First values of the bias."
    )


class Pad2dConfig(LayerConfig):
    """A border around the picture, of a value that the input may have elsewhere."""

    type: Literal["pad2d"] = "pad2d"
    padding: Border = Field(
        description="Width on either side: number or [height, width], of which one may be 0."
    )
    value: float = Field(default=0.0, description="Value of the border, after normalisation.")


class RbfConfig(LayerConfig):
    """Minus the squared distance to a fixed 7x12 bitmap of each digit; expects 84 inputs."""

    type: Literal["rbf"] = "rbf"


class ScaledTanhConfig(LayerConfig):
    """1.7159 * tanh(2 * x / 3)."""

    type: Literal["scaled_tanh"] = "scaled_tanh"


class HeavisideConfig(LayerConfig):
    """1 where x is positive, else 0; has no gradient, so it wants the loss perceptron."""

    type: Literal["heaviside"] = "heaviside"
