"""What happens to pictures on their way into the network: normalisation, augmentation, views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from ...graph.augmentations import AUGMENTATIONS, disorder
from .base import Model, Named, NamedModel, numbers, omitting, one_or_more, problem, short
from .declared import config_models
from .one_of import Models, one_of

_MEASURED = "measured"


def _per_channel(value: Any) -> Any:
    found = numbers(value, "a number or a list with one number for each channel")
    return tuple(map(float, found))


PerChannel = Annotated[
    tuple[float, ...], BeforeValidator(_per_channel), short, one_or_more({"type": "number"})
]


class NormalizeConfig(Model):
    """x = (pixel / 255 - mean) / std; one number, or a list with one for each channel."""

    mean: Annotated[PerChannel, "Mean, in units of pixel / 255."] = (0.0,)
    std: Annotated[PerChannel, "Standard deviation, in units of pixel / 255."] = (1.0,)
    measured: Annotated[
        bool,
        "Use the mean and deviation of the training pictures; short form: normalize: measured.",
    ] = False

    @field_validator("std")
    @classmethod
    def _usable(cls, std: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        if min(std) <= 0:
            raise problem("expected numbers above 0")
        channels = len(info.data.get("mean", std))
        if 1 < channels != len(std) > 1:
            raise problem(f"expected as many numbers as mean has ({channels})")
        return std

    @field_validator("measured")
    @classmethod
    def _alone(cls, measured: bool, info: ValidationInfo) -> bool:
        if measured and (info.data.get("mean"), info.data.get("std")) != ((0.0,), (1.0,)):
            raise problem("mean and std are measured; give neither, or remove 'measured'")
        return measured

    def shortened(self, options: dict[str, Any]) -> Any:
        return _MEASURED if options.pop("measured") else options


def _long(value: Any) -> Any:
    """``{measured: true}`` for ``measured``."""
    if isinstance(value, str) and value != _MEASURED:
        raise problem(f"expected '{_MEASURED}' or a mapping with mean and std")
    return {"measured": True} if isinstance(value, str) else value


_Word = Annotated[str, WithJsonSchema({"enum": [_MEASURED]})]
Normalize = Annotated[
    NormalizeConfig, BeforeValidator(_long, json_schema_input_type=_Word | NormalizeConfig)
]


class AugmentationConfig(NamedModel):
    noun: ClassVar[str] = "augmentation"
    type: str


_MODELS = Models[AugmentationConfig]({})


def augmentation_type(kinds: Mapping[str, type]) -> Any:
    """The type of an augmentation in a config: one known before, or one of these kinds."""
    global _MODELS
    new = config_models(kinds, AugmentationConfig, suffix="Augmentation")
    _MODELS = _MODELS.with_others(new)
    return one_of(_MODELS, Named("augmentation", "random_flip or random_crop: {padding: 4}"))


if TYPE_CHECKING:
    Augmentation = AugmentationConfig
else:
    Augmentation = augmentation_type(AUGMENTATIONS)


def _in_order(augment: tuple[Any, ...]) -> tuple[Any, ...]:
    if found := disorder([AUGMENTATIONS[each.type](**each.options()) for each in augment]):
        raise problem(found[1])
    return augment


def list_of(augmentation: Any) -> Any:
    """The type of the augmentations of a config."""
    listed = tuple[augmentation, ...]
    read = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
    return Annotated[(listed, AfterValidator(_in_order), read)]


if TYPE_CHECKING:
    Augment = tuple[AugmentationConfig, ...]
else:
    Augment = list_of(Augmentation)


class EvaluateConfig(Model):
    """How a trained network is evaluated: for validation and by ``dnnstack eval``."""

    tta: Annotated[
        Literal["none", "mirror", "mirror+translate"],
        "Test-time augmentation: scores are averaged over the picture and its mirror "
        "image; mirror+translate: also over the picture moved by a pixel, and then mirrored.",
    ] = "none"
    tta_share: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None,
        omitting(1.0),
        "The share of each batch that is seen in all views: the pictures whose two largest scores "
        "are the closest. Of the others the picture alone is seen. Default: all.",
    ] = None

    threshold: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        omitting(0.5),
        "Of questions of yes or no: an answer above it is yes; default: 0.5, which a training's "
        "own accuracy always takes.",
    ] = None

    @property
    def yes_above(self) -> float:
        """The threshold."""
        return 0.5 if self.threshold is None else self.threshold

    @field_validator("tta_share")
    @classmethod
    def _has_views(cls, share: float | None, info: ValidationInfo) -> float | None:
        if share is not None and info.data.get("tta") == "none":
            raise problem("there are no views without tta; set evaluate.tta, or remove this key")
        return share
