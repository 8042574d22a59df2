"""What layers of a config share: the initialisers of their weights, and their name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, PrivateAttr, WithJsonSchema

from ...common.options import Count, Positive
from ...layers.initializers import SCALED
from .base import Aside, Named, NamedModel, matching, numbers
from .one_of import already, one_of

if TYPE_CHECKING:
    ScaledName = str
else:
    ScaledName = Literal[(*SCALED, "torch_uniform", "zeros", "ones")]


class InitializerConfig(NamedModel):
    noun: ClassVar[str] = "initializer"


class ScaledInitializerConfig(InitializerConfig):
    """Values whose spread follows from the layer's inputs and outputs (fan), or zeros, or ones."""

    type: ScaledName


class NormalConfig(InitializerConfig):
    """Normal distribution."""

    type: Literal["normal"] = "normal"
    mean: Annotated[float, "Mean."] = 0.0
    std: Annotated[Positive, "Standard deviation."]


class TruncatedNormalConfig(InitializerConfig):
    """Normal distribution, values beyond two standard deviations drawn again."""

    type: Literal["truncated_normal"] = "truncated_normal"
    mean: Annotated[float, "Mean."] = 0.0
    std: Annotated[Positive, "Standard deviation before truncation."]


class UniformConfig(InitializerConfig):
    """Uniform distribution between -limit and limit."""

    type: Literal["uniform"] = "uniform"
    limit: Annotated[Positive, "Largest absolute value."]


class FanInUniformConfig(InitializerConfig):
    """Uniform distribution between -gain / inputs and gain / inputs."""

    type: Literal["fan_in_uniform"] = "fan_in_uniform"
    gain: Annotated[Positive, "Largest absolute value, times the number of inputs."]


def _numbers(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and value:
        return tuple(map(_numbers, value))
    return float(numbers(value, "a number, or lists of numbers, none beyond 1e6")[0])


_NUMBERS = WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "array", "minItems": 1}]})


class ConstantConfig(InitializerConfig):
    """One value for every element, a filter for every channel, one for each, or all values."""

    type: Literal["constant"] = "constant"
    value: Annotated[Any, BeforeValidator(_numbers), _NUMBERS, "The value, or lists of values."]


class DiracConfig(InitializerConfig):
    """The first filters, one per channel, copy a channel; the others are drawn by ``base``."""

    type: Literal["dirac"] = "dirac"
    base: Annotated[ScaledName, "Initial values of the other filters."] = "torch_uniform"


class WhitenConfig(InitializerConfig):
    """Filters of the first conv2d that decorrelate the patches of the training pictures."""

    type: Literal["whiten"] = "whiten"
    samples: Annotated[Count, "Number of pictures whose patches are used."] = 5000
    eps: Annotated[Positive, "Added to the variance of each direction."] = 5e-4


if TYPE_CHECKING:
    Initializer = InitializerConfig
else:
    Initializer = one_of(
        already(
            ScaledInitializerConfig,
            NormalConfig,
            TruncatedNormalConfig,
            UniformConfig,
            FanInUniformConfig,
            ConstantConfig,
            DiracConfig,
            WhitenConfig,
        ),
        Named("initializer", "he_normal or normal: {std: 0.01}"),
    )

_NAME = matching(
    "[A-Za-z_][A-Za-z0-9_-]{0,63}",
    "a word of letters, digits, '_' and '-' (at most 64) that begins with a letter",
)


class LayerConfig(NamedModel):
    """What every layer may have; ``place`` says where it was written, "" if it was not."""

    noun: ClassVar[str] = "layer"
    type: str
    _written: Aside = PrivateAttr(default_factory=lambda: Aside(""))
    name: Annotated[
        Annotated[str, _NAME] | None,
        "Name in tables and checkpoints; default: type and number, as in dense_1.",
    ] = None

    @property
    def place(self) -> str:
        place: str = self._written.noted
        return place

    def mark(self, place: str) -> None:
        """Note where the layer was written."""
        self._written.noted = place
