"""The losses of a config: the functions that training minimises.

t is the right class, s the scores of the last layer, p = softmax(s), K the number of classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ...layers.losses import LOSSES
from .base import Typed, TypedModel
from .declared import config_models, one_of


class LossConfig(TypedModel):
    kind: ClassVar[str] = "loss"
    type: str
    written_last: ClassVar[tuple[str, ...]] = ("reduction",)
    reduction: Annotated[
        Literal["mean", "sum"],
        "Over the samples of a batch: mean or sum; the log always shows means.",
    ] = "mean"


_MODELS = config_models(LOSSES, LossConfig)
CROSS_ENTROPY = _MODELS["cross_entropy"](type="cross_entropy")

if TYPE_CHECKING:
    Loss = LossConfig
else:
    Loss = one_of(_MODELS, Typed("loss"))
