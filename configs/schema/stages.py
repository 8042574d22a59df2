"""CompressConfig: the stages by which ``dnnstack compress`` makes a network small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from ...common.options import is_number
from .base import Model, problem, tupled
from .compression import PruneConfig, QuantizeConfig, ShareConfig, Shares
from .optimizer import Optimizer
from .run import RunName, TrainConfig
from .training import Schedule

# Kept weights, bits of a weight and of a gap before and after Huffman's code, the size, in percent.
PAPER_COLUMNS = 6


class StageConfig(Model):
    """A training with pruned or shared weights, which begins where the stage before it ended.

    What a stage does not say is as in the stage before; in the first, as in the network's config.
    """

    filters: Annotated[
        Shares | None,
        "Share of the filters or units that is kept, for each conv2d or dense layer by name: the "
        "others are left out, and the network is smaller from this stage on.",
    ] = None
    prune: Annotated[PruneConfig | None, "Weights that become 0 and stay 0."] = None
    share: Annotated[ShareConfig | None, "Weights that share a few values."] = None
    optimizer: Annotated[Optimizer | None, "How the parameters are updated."] = None
    schedule: Annotated[Schedule | None, "How the learning rate changes."] = None
    train: Annotated[TrainConfig | None, "How long to train."] = None
    quantize: Annotated[
        QuantizeConfig | None,
        "Weights and activations of 8 bits, without training; the last stage, with no other key.",
    ] = None


def _stages(stages: tuple[StageConfig, ...]) -> tuple[StageConfig, ...]:
    for number, stage in enumerate(stages):
        if stage.quantize is None:
            continue
        if number + 1 < len(stages):
            raise problem(f"stage {number} has quantize, which only the last one can have")
        others = [key for key, value in stage.options().items() if value is not None]
        if others != ["quantize"]:
            raise problem(
                f"stage {number} has quantize and {others[0]}; quantize is a stage by itself"
            )
    return stages


def _rows(value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise problem("expected a mapping of names of parameters to rows of numbers")
    for row in value.values():
        numbers = isinstance(row, (list, tuple)) and all(map(is_number, row))
        if not numbers or len(row) != PAPER_COLUMNS:
            raise problem(
                "expected six numbers: % of the weights, bits of a weight before and after "
                "Huffman's code, those of a gap, % of the size"
            )
    return {str(name): tuple(map(float, row)) for name, row in value.items()}


Rows = Annotated[
    dict[str, tuple[float, ...]],
    BeforeValidator(_rows),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "type": "array",
                "items": {"type": "number"},
                "minItems": PAPER_COLUMNS,
                "maxItems": PAPER_COLUMNS,
            },
            "minProperties": 1,
        }
    ),
]


class PaperConfig(Model):
    """Figures that others published, shown beside ours."""

    title: Annotated[str, Field(min_length=1, max_length=200), "Whose figures they are."]
    rows: Annotated[
        Rows,
        "For each parameter: % of the weights that is kept, bits of a weight before and after "
        "Huffman's code, bits of a gap before and after, % of the size.",
    ]
    times: Annotated[float, Field(gt=0, le=1e6), "How many times smaller the whole network is."]
    error: Annotated[
        float | None, Field(ge=0, le=100), "Test error of the small network, in percent."
    ] = None


class CompressConfig(Model):
    """How to compress a network: stages of training, then a file."""

    name: Annotated[
        RunName | None, "Name of the folder; default: that of the network's run and -compressed."
    ] = None
    stages: Annotated[
        Annotated[tuple[StageConfig, ...], Field(min_length=1, max_length=99)],
        BeforeValidator(tupled),
        AfterValidator(_stages),
        "The trainings, in order.",
    ]
    gap_bits: Annotated[
        Annotated[int, Field(ge=1, le=12)] | None,
        "Width of a gap in the file; default: for each parameter that with the smallest result.",
    ] = None
    paper: Annotated[PaperConfig | None, "Published figures to show beside ours."] = None

    @property
    def trainings(self) -> tuple[StageConfig, ...]:
        """The stages that train."""
        return tuple(stage for stage in self.stages if stage.quantize is None)

    @property
    def quantize(self) -> QuantizeConfig | None:
        """How the last stage quantizes."""
        return self.stages[-1].quantize
