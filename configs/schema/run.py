"""RunConfig: everything that a YAML config says, as frozen pydantic models."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from ...common.options import LARGEST, Count, NotNegative, is_number, is_whole
from .base import Epochs, Model, Threads, problem, tupled
from .datasets import Dataset, Folder
from .layers import WRITTEN, Layer, unique_names
from .losses import CROSS_ENTROPY, Loss
from .optimizer import Optimizer
from .pictures import Augment, EvaluateConfig, Normalize, NormalizeConfig
from .training import (
    FIXED,
    Schedule,
    exactly_one,
)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

_NUMBER = {"type": "number"}


def _run_name(value: str) -> str:
    if not _NAME.fullmatch(value) or value == "latest":
        raise problem(
            "expected a name for a folder: letters, digits, '.', '_', '-' (at most 64), "
            "not beginning with '.' or '-', and not 'latest'"
        )
    return value


def _validation(value: Any) -> Any:
    if is_whole(value) and 0 <= value <= LARGEST:
        return value
    if is_number(value) and 0 <= value < 1:
        return value or 0
    raise problem("expected a number of samples (0 for none) or a fraction below 1, such as 0.1")


Validation = Annotated[
    int | float,
    BeforeValidator(_validation),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            ]
        }
    ),
]


class DataConfig(Model):
    """What to train on, and in which batches."""

    dataset: Dataset = Field(description="Name of the data set, or the name with its options.")
    root: Folder | None = Field(
        default=None,
        description="Data folder; --data-dir and DNNSTACK_DATA override it; default: "
        "the user's cache folder.",
    )
    batch_size: Count = Field(default=64, description="Samples in a training step.")
    evaluation_batch_size: Count = Field(
        default=500, description="Samples in a step of evaluation."
    )
    residency: Literal["auto", "device", "stream"] = Field(
        default="auto",
        description="Where a GPU finds the pictures. device: in its own memory; stream: in the "
        "host's, from which they are copied batch by batch; auto is device if they fill at most "
        "half of the free memory.",
    )
    validation: Validation = Field(
        default=0.1,
        description="Samples held back from the training set for validation: "
        "a number, a fraction of the set, or 0 for none.",
    )
    normalize: Normalize = Field(
        default=NormalizeConfig(), description="Scaling of the pixels; default: pixel / 255."
    )
    augment: Augment = Field(
        default=(),
        description="Augmentations of the pictures of a training batch, in order.",
    )


class GoalConfig(Model):
    """The goal of training, which ends as soon as everything given here is reached.

    Measured at every validation or, without validation samples, over every line of the log.
    """

    accuracy: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="Accuracy to reach, 0 to 1."
    )
    loss: NotNegative | None = Field(
        default=None, validate_default=True, description="Mean loss that must not be exceeded."
    )

    @field_validator("loss")
    @classmethod
    def _something(cls, loss: float | None, info: ValidationInfo) -> float | None:
        # An invalid accuracy is missing here; it has an error of its own.
        if loss is None and info.data.get("accuracy", 0.0) is None:
            raise problem("required: accuracy or loss", missing=True)
        return loss


class TrainConfig(Model):
    """How long to train, how often to report, and what to do if something goes wrong."""

    epochs: Epochs | None = Field(default=None, description="Passes over the training set.")
    max_steps: Count | None = Field(
        default=None, validate_default=True, description="Training steps, instead of epochs."
    )
    accumulate: Count = Field(
        default=1,
        description="Compute a batch in this many parts and add their gradients: less memory.",
    )
    log_every: Count = Field(default=100, description="Steps between two lines of the log.")
    validate_every_epochs: Count = Field(default=1, description="Epochs between two validations.")
    patience: Count | None = Field(
        default=None,
        description="End after this many validations without improvement; default: never.",
    )
    goal: GoalConfig | None = Field(
        default=None,
        description="End once this is reached; exit status 3 if it is never reached. "
        "Default: none.",
    )
    on_nan: Literal["stop", "rollback"] = Field(
        default="stop",
        description="If the loss or a gradient is not finite: stop; or roll back to the last "
        "checkpoint and halve the learning rate, at most three times.",
    )

    @field_validator("max_steps")
    @classmethod
    def _one_length(cls, value: Any, info: ValidationInfo) -> Any:
        return exactly_one(value, info, "epochs", "max_steps")


def _auto_or_bool(value: Any) -> Any:
    if value == "auto" or isinstance(value, bool):
        return value
    raise problem("expected auto, true or false", words=("auto",))


class MachineConfig(Model):
    """Where and how the training is computed, and where its folder goes."""

    device: Literal["auto", "cpu", "numpy", "cuda"] = Field(
        default="auto",
        description="auto: the fastest available; cpu: oneDNN; numpy: the reference; cuda: a GPU.",
    )
    precision: Literal["auto", "fp32", "tf32", "bf16"] = Field(
        default="auto", description="Arithmetic of the matrix products; parameters are always fp32."
    )
    deterministic: bool = Field(
        default=True,
        description="The same bits in every run: on a GPU, only convolutions that repeat to the "
        "bit. No effect on a CPU, whose runs always repeat.",
    )
    fusion: bool = Field(default=True, description="Combine operations into faster calls.")
    tune: Annotated[Literal["auto"] | bool, BeforeValidator(_auto_or_bool)] = Field(
        default="auto",
        description="Time calls on this machine and keep the fastest: auto for a few seconds, true "
        "as long as it takes, false not at all.",
    )
    threads: Threads | None = Field(
        default=None, description="CPU threads; default: the cores available to the process."
    )
    dir: Folder = Field(default="runs", description="Folder that receives the run's folder.")


class CheckpointConfig(Model):
    """When to save, and what to keep."""

    every_steps: Count | None = Field(default=None, description="Steps between two checkpoints.")
    every_epochs: Count | None = Field(
        default_factory=lambda data: None if data.get("every_steps") else 1,
        description="Epochs between two checkpoints; default: 1, unless every_steps is given.",
    )
    keep: Count = Field(default=3, description="How many of the newest checkpoints are kept.")
    best: bool = Field(
        default=True, description="Also keep the one that is best on the validation samples."
    )

    @field_validator("every_epochs")
    @classmethod
    def _one_interval(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("every_steps") is not None:
            raise problem("give either every_epochs or every_steps, not both")
        if value is None and info.data.get("every_steps") is None:
            raise problem(
                "expected a number of epochs, or every_steps as well, because a run must be saved"
            )
        return value


class RunConfig(Model):
    """A complete training run."""

    name: Annotated[str, AfterValidator(_run_name)] = Field(
        default="run", description="Name of the run and its folder; default: the file's name."
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=1, description="Seed of every random choice; the same seed gives the same run."
    )
    data: DataConfig = Field(description="What to train on.")
    layers: Annotated[
        tuple[Layer, ...],
        Field(min_length=1),
        AfterValidator(unique_names),
        BeforeValidator(tupled),
        WRITTEN,
    ] = Field(description="The network, from the input to the output.")
    loss: Loss = Field(default=CROSS_ENTROPY, description="The function that training minimises.")
    optimizer: Optimizer = Field(description="How the parameters are updated.")
    schedule: Schedule = Field(default=FIXED, description="How the learning rate changes.")
    train: TrainConfig = Field(description="How long to train.")
    evaluate: EvaluateConfig = Field(default=EvaluateConfig(), description="How to evaluate.")
    run: MachineConfig = Field(default=MachineConfig(), description="Where and how to compute.")
    checkpoint: CheckpointConfig = Field(default=CheckpointConfig(), description="When to save.")
