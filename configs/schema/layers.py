"""The layers of a config; names are Keras's in snake_case."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from .base import Count, NotNegative, Padding, Pair, Positive, problem
from .classic import (
    Connections,
)
from .layer_base import Initializer, LayerConfig, ScaledInitializerConfig


class _Weighted(LayerConfig):
    written_last: ClassVar[tuple[str, ...]] = ("use_bias", "kernel_initializer", "bias_initializer")
    use_bias: bool = Field(default=True, description="Add a trained bias to each output.")
    kernel_initializer: Initializer = Field(
        default=ScaledInitializerConfig(type="glorot_uniform"),
        description="First values of the weights.",
    )
    bias_initializer: Initializer = Field(
        default=ScaledInitializerConfig(type="zeros"), description="First values of the bias."
    )


class DenseConfig(_Weighted):
    """Fully connected layer: y = W x + b. Expects a flat input."""

    type: Literal["dense"] = "dense"
    units: Count = Field(description="Number of outputs.")


class Conv2dConfig(_Weighted):
    """Convolution (cross-correlation) over height and width."""

    type: Literal["conv2d"] = "conv2d"
    filters: Count = Field(description="Number of output channels.")
    kernel_size: Pair = Field(description="Size of the window: number or [height, width].")
    stride: Pair = Field(
        default=(1, 1), description="Step of the window: number or [height, width]."
    )
    padding: Padding = Field(
        default=(0, 0),
        description="Zeros added on either side: number, [height, width], same or valid (none). "
        "same gives ceil(input / stride) outputs, the odd zero at the bottom and right.",
    )
    dilation: Pair = Field(default=(1, 1), description="Distance between the window's elements.")
    groups: Count = Field(
        default=1, description="Channels are split into this many groups, convolved apart."
    )

    algorithm: Literal["auto", "im2col"] = Field(
        default="auto",
        description="auto: the library's convolution; im2col: unroll, then multiply matrices.",
    )
    connections: Connections | None = Field(
        default=None,
        description="The input maps that each filter sees, a list of them for each filter, or "
        "lenet5; default: all.",
    )

    @field_validator("groups")
    @classmethod
    def _divides(cls, groups: int, info: ValidationInfo) -> int:
        filters = info.data.get("filters", groups)
        if filters % groups:
            raise problem(f"expected a number that divides filters, which is {filters}")
        return groups


def _pool_size(data: dict[str, Any]) -> tuple[int, int]:
    size: tuple[int, int] = data.get("pool_size", (1, 1))
    return size


class _Pool2d(LayerConfig):
    pool_size: Pair = Field(
        default=(2, 2), description="Size of the window: number or [height, width]."
    )
    stride: Pair = Field(
        default_factory=_pool_size, description="Step of the window; default: pool_size."
    )
    padding: Padding = Field(
        default=(0, 0),
        description="Padding on either side, at most half of pool_size: number, [height, width], "
        "same or valid (none); it is never the maximum and does not count in an average.",
    )
    ceil_mode: bool = Field(default=False, description="Round the output size up, as Caffe does.")

    @field_validator("padding")
    @classmethod
    def _inside(cls, padding: Any, info: ValidationInfo) -> Any:
        size = info.data.get("pool_size")
        if size and padding != "same":
            rows, columns = size[0] // 2, size[1] // 2
            if padding[0] > rows or padding[1] > columns:
                most = rows if rows == columns else [rows, columns]
                raise problem(f"expected at most {most}, half of pool_size")
        return padding


class MaxPool2dConfig(_Pool2d):
    """Largest value of each window; ties go to the first."""

    type: Literal["max_pool2d"] = "max_pool2d"


class AvgPool2dConfig(_Pool2d):
    """Mean of the values of each window that lie inside the picture."""

    type: Literal["avg_pool2d"] = "avg_pool2d"


class GlobalAvgPool2dConfig(LayerConfig):
    """Mean of each channel; the output is flat."""

    type: Literal["global_avg_pool2d"] = "global_avg_pool2d"


class FlattenConfig(LayerConfig):
    """All values of a picture in one row, in the order channel, height, width."""

    type: Literal["flatten"] = "flatten"


class ScaleConfig(LayerConfig):
    """factor * x."""

    type: Literal["scale"] = "scale"
    factor: float = Field(description="The factor.")


class SoftmaxConfig(LayerConfig):
    """Probabilities: exp(x) / sum of exp(x) over the classes."""

    type: Literal["softmax"] = "softmax"


class ReluConfig(LayerConfig):
    """max(x, 0)."""

    type: Literal["relu"] = "relu"


class LeakyReluConfig(LayerConfig):
    """x where positive, negative_slope * x elsewhere."""

    type: Literal["leaky_relu"] = "leaky_relu"
    negative_slope: NotNegative = Field(default=0.01, description="Slope for negative inputs.")


class SigmoidConfig(LayerConfig):
    """1 / (1 + exp(-x))."""

    type: Literal["sigmoid"] = "sigmoid"


class TanhConfig(LayerConfig):
    """Hyperbolic tangent."""

    type: Literal["tanh"] = "tanh"


class EluConfig(LayerConfig):
    """x where positive, alpha * (exp(x) - 1) elsewhere."""

    type: Literal["elu"] = "elu"
    alpha: Positive = Field(default=1.0, description="Limit for very negative inputs is -alpha.")


class SoftplusConfig(LayerConfig):
    """log(1 + exp(x))."""

    type: Literal["softplus"] = "softplus"


class SiluConfig(LayerConfig):
    """x * sigmoid(x)."""

    type: Literal["silu"] = "silu"


class GeluConfig(LayerConfig):
    """x * Phi(x), Phi the normal distribution function."""

    type: Literal["gelu"] = "gelu"
    approximate: bool = Field(default=False, description="Use the tanh approximation of Phi.")
