"""RunConfig: everything that a YAML config says, as frozen pydantic models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from ...common.options import LARGEST, Count, NotNegative, either, is_number, is_whole
from ...common.targets import EVERY_METRIC
from ...layers.parallel import SPACE
from .base import Aside, Epochs, Flag, Model, Threads, checked, matching, omitting, problem, tupled
from .compression import PruneConfig, ShareConfig
from .dataset_base import Folder
from .datasets import Dataset
from .init_from import InitFrom
from .layer_base import LayerConfig
from .layers import Layer, named_layers, stack_of
from .optimizer import Optimizer, Patterns
from .pictures import Augment, EvaluateConfig, Normalize, NormalizeConfig
from .plugins import Plugins
from .training import CROSS_ENTROPY, FIXED, GoalConfig, Loss, PlateauConfig, Schedule

Logger = Literal["tensorboard", "wandb", "trackio", "prometheus"]


class ParallelConfig(Model):
    """How the processes that --ranks starts train together."""

    mode: Annotated[
        Literal["sync", "async"],
        "sync: all compute a part of every batch and add up their gradients; async: workers "
        "compute batches of their own, and servers update the parameters with each gradient.",
    ] = "sync"
    buckets: Annotated[
        Count | None,
        "With sync, in how many pieces ranks add up their gradients if each computes one part; on "
        "GPUs all but the last are added up beside the rest of backward. Default: 1, but 2 for "
        "GPUs that add up in each other's memory.",
    ] = None
    servers: Annotated[
        Count, "With async, the number of processes that hold the parameters, each a part of them."
    ] = 1
    delays: Annotated[
        Annotated[tuple[NotNegative, ...], BeforeValidator(tupled)] | None,
        "Seconds that the first, second ... worker waits after each batch, to imitate slow ones.",
    ] = None
    any_momentum: Annotated[
        bool, "With async, allow momentum above 0.6, with which training may diverge."
    ] = False


RunName = Annotated[
    str,
    matching(
        r"(?!latest$)[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}",
        "a name for a folder: letters, digits, '.', '_', '-' (at most 64), "
        "not beginning with '.' or '-', and not 'latest'",
    ),
]

if TYPE_CHECKING:
    Stack = tuple[LayerConfig, ...]
    Metric = str
else:
    Metric = Literal[("loss", *EVERY_METRIC)]
    Stack = stack_of(Layer)


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


def _batch_size(value: Any) -> Any:
    if value == "auto":
        return 0
    if (is_whole(value) and value < 1) or (isinstance(value, str) and value.isalpha()):
        raise problem("expected a number of at least 1, or auto", words=("auto",))
    return value


_BATCH = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": LARGEST}, {"enum": ["auto"]}]}
BatchSize = Annotated[
    Annotated[int, Field(le=LARGEST)],
    BeforeValidator(_batch_size),
    PlainSerializer(lambda size: size or "auto"),
    WithJsonSchema(_BATCH),
]
"""0 stands for ``auto`` until a training has chosen."""


def _stratified(value: Any) -> Any:
    if value is None or isinstance(value, bool) or value == "each":
        return value
    raise problem("expected true, false or each")


class FoldConfig(Model):
    """One of several parts of equal size of the training set, which is held back for validation."""

    count: Annotated[Annotated[int, Field(ge=2, le=LARGEST)], "Number of parts."]
    index: Annotated[Annotated[int, Field(ge=1, le=LARGEST)], "The part to validate on, from 1."]
    stratified: Annotated[Flag, "Every part has the same share of each class."] = None

    @field_validator("index")
    @classmethod
    def _one_of_them(cls, value: int, info: ValidationInfo) -> int:
        count = info.data.get("count")
        if count is not None and value > count:
            raise problem(f"expected a number from 1 to {count}, the count of folds")
        return value


class DataConfig(Model):
    """What to train on, and in which batches."""

    dataset: Annotated[Dataset, "Name of the data set, or the name with its options."]
    root: Annotated[
        Folder | None,
        "Data folder, counted from the config's file; --data-dir and DNNSTACK_DATA override it; "
        "default: the user's cache folder.",
    ] = None
    labels: Annotated[Folder | None, "CSV of corrected labels, as written by suspects."] = None
    batch_size: Annotated[
        BatchSize,
        "Samples in a training step; auto: the smallest of 16, 32 ... 4096 that is nearly the "
        "fastest here, by running them when a training begins.",
    ] = 64
    evaluation_batch_size: Annotated[Count, "Samples in a step of evaluation."] = 500
    residency: Annotated[
        Literal["auto", "device", "stream"],
        "Where a GPU finds the pictures. device: in its own memory; stream: in the "
        "host's, from which they are copied batch by batch; auto is device if they fill at most "
        "half of the free memory.",
    ] = "auto"
    validation: Annotated[
        Validation,
        "Samples held back from the training set for validation: a number, a fraction of the set, "
        "or 0 for none; not used if the data set has validation samples of its own.",
    ] = 0.1
    fold: Annotated[
        FoldConfig | None,
        "In place of data.validation: the fold of a cross-validation to validate on; train --folds "
        "sets it.",
    ] = None
    stratified: Annotated[
        Literal["each"] | bool | None,
        BeforeValidator(_stratified),
        "Hold back the same share of every class, also in a fold; each: and at least one sample of "
        "each class with two; default: true for image_folder, false for other data sets, and as "
        "before in a run that goes on.",
    ] = None
    split_seed: Annotated[
        Annotated[int, Field(ge=0, lt=2**63)] | None,
        "Seed of the division into training and validation samples; default: the config's seed.",
    ] = None
    balance: Annotated[
        Flag, "Draw every class equally often in training, whatever the number of its samples."
    ] = None
    shuffle: Annotated[
        bool | None,
        omitting(True),
        "false: train on the samples in their own order, the same in every epoch; default: true.",
    ] = None
    normalize: Annotated[
        Normalize,
        Field(validate_default=True),
        "Scaling of the pixels; default: pixel / 255, and measured for csv.",
    ] = NormalizeConfig()
    augment: Annotated[Augment, "Augmentations of the pictures of a training batch, in order."] = ()

    @field_validator("validation", "fold")
    @classmethod
    def _nothing_of_train(cls, value: Any, info: ValidationInfo) -> Any:
        # The effective config of a run has the default.
        dataset, unsaid = info.data.get("dataset"), (None, cls.model_fields["validation"].default)
        if dataset is not None and (own := dataset.own_validation) and value not in unsaid:
            raise problem(
                f"the data set brings its own validation samples ({own}), so none of train are "
                "held back; leave out one of the two"
            )
        return value

    @field_validator("normalize", mode="before")
    @classmethod
    def _of_columns(cls, value: Any, info: ValidationInfo) -> Any:
        dataset = info.data.get("dataset")
        # What is given is a mapping or a word.
        if isinstance(value, NormalizeConfig) and dataset is not None and dataset.measured:
            return NormalizeConfig(measured=True)
        return value

    @property
    def validation_key(self) -> str:
        """The key that says what is validated on."""
        return self.dataset.own_validation or "data.validation"


class TrainConfig(Model):
    """How long to train, how often to report, and what to do if something goes wrong."""

    _overridden: Aside = PrivateAttr(default_factory=lambda: Aside(False))
    epochs: Annotated[Epochs | None, "Passes over the training set."] = None
    max_steps: Annotated[
        Count | None, checked(either("epochs", "max_steps")), "Training steps, instead of epochs."
    ] = None
    accumulate: Annotated[
        Count, "Compute a batch in this many parts and add their gradients: less memory."
    ] = 1
    recompute: Annotated[
        Flag,
        "Compute activations again in backward instead of keeping them: about half the memory, "
        "more time, the same bits. Default: false.",
    ] = None
    log_every: Annotated[
        Count | None,
        "Steps between two lines of the log; default: 100, or less, so that there are at least one "
        "in an epoch and 20 in the run.",
    ] = None
    validate_every_epochs: Annotated[Count, "Epochs between two validations."] = 1
    patience: Annotated[
        Count | None, "End after this many validations without improvement; default: never."
    ] = None
    reduce_on_plateau: Annotated[
        PlateauConfig | None,
        "Lower the rates after some validations without improvement; default: never.",
    ] = None
    goal: Annotated[
        GoalConfig | None,
        "End once this is reached; exit status 3 if it is never reached. Default: none.",
    ] = None
    on_nan: Annotated[
        Literal["stop", "rollback"],
        "If the loss or a gradient is not finite: stop; or roll back to the last "
        "checkpoint and halve the learning rate, at most three times.",
    ] = "stop"
    loggers: Annotated[
        Annotated[tuple[Logger, ...], BeforeValidator(tupled)] | None,
        "Other tools that hear of the training: tensorboard, wandb, trackio (each with the "
        "extra of its name), or prometheus. Default: none.",
    ] = None

    @property
    def length_overridden(self) -> bool:
        """Whether ``--set`` gave the length, but not the schedule, which may be longer then."""
        overridden: bool = self._overridden.noted
        return overridden

    def mark_length(self) -> None:
        """Note that it did."""
        self._overridden.noted = True


def _auto_or_bool(value: Any) -> Any:
    if value == "auto" or isinstance(value, bool):
        return value
    raise problem("expected auto, true or false", words=("auto",))


class MachineConfig(Model):
    """Where and how the training is computed, and where its folder goes."""

    device: Annotated[
        Literal["auto", "cpu", "numpy", "cuda"],
        "auto: the fastest available; cpu: oneDNN; numpy: the reference; cuda: a GPU.",
    ] = "auto"
    precision: Annotated[
        Literal["auto", "fp32", "tf32", "bf16"],
        "Arithmetic of the matrix products; parameters are always fp32.",
    ] = "auto"
    deterministic: Annotated[
        bool,
        "The same bits in every run: on a GPU, only convolutions that repeat to the "
        "bit, and sums over more than two ranks in a fixed order. No effect on a CPU, whose runs "
        "always repeat.",
    ] = True
    fusion: Annotated[bool, "Combine operations into faster calls."] = True
    calls: Annotated[
        Literal["best", "lecture"] | None,
        omitting("best"),
        "best: the fastest calls; lecture: on a GPU those of the lectures' slides, one for one, in "
        "fp32; on a CPU as without fusion. Default: best.",
    ] = None
    tune: Annotated[
        Literal["auto"] | bool,
        BeforeValidator(_auto_or_bool),
        "Time calls on this machine and keep the fastest: auto for a few seconds, true "
        "as long as it takes, false not at all.",
    ] = "auto"
    threads: Annotated[
        Threads | None, "CPU threads; default: the cores available to the process."
    ] = None
    dir: Annotated[Folder, "Folder that receives the run's folder."] = "runs"

    @field_validator("calls")
    @classmethod
    def _in_fp32(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("precision") in ("tf32", "bf16"):
            raise problem("lecture computes in fp32; set precision to it, or to auto")
        return value

    @property
    def fuses(self) -> bool:
        """Whether operations are combined."""
        return self.fusion and self.calls is None


class CheckpointConfig(Model):
    """When to save, and what to keep."""

    every_steps: Annotated[Count | None, "Steps between two checkpoints."] = None
    every_epochs: Annotated[
        Count | None,
        "Epochs between two checkpoints; default, unless every_steps is given: as many as make "
        "saving a small part of the training, at least 1.",
    ] = None
    keep: Annotated[Count, "How many of the newest checkpoints are kept."] = 3
    best: Annotated[bool, "Also keep the one that is best on the validation samples."] = True
    best_by: Annotated[
        Metric | None,
        omitting("accuracy"),
        "What is best on the validation samples: the highest accuracy, or R2 of numbers, and then "
        "the lowest loss; the lowest loss; or another metric of the targets. Default: accuracy.",
    ] = None
    snapshots: Annotated[
        Flag,
        "Also save and keep those at the end of each cycle of the schedule: the members of a "
        "snapshot ensemble.",
    ] = None

    @field_validator("every_epochs")
    @classmethod
    def _one_interval(cls, value: Any, info: ValidationInfo) -> Any:
        if value is not None and info.data.get("every_steps") is not None:
            raise problem("give either every_epochs or every_steps, not both")
        return value


class RunConfig(Model):
    """A complete training run."""

    name: Annotated[RunName, "Name of the run and its folder; default: the file's name."] = "run"
    seed: Annotated[
        int, Field(ge=0, lt=2**63), "Seed of every random choice; the same seed gives the same run."
    ] = 1
    plugins: Annotated[
        Plugins | None,
        "Python files in the config's folder that define further kinds; they are code, and run "
        "only if you allow it.",
    ] = None
    data: Annotated[DataConfig, "What to train on."]
    layers: Annotated[Stack, "The network, from the input to the output."]
    init_from: Annotated[
        InitFrom | None,
        "The weights to begin with: a run, a file, or a model of a hub; default: initialisers.",
    ] = None
    freeze: Annotated[
        Patterns | None, "Layers that stay as they are, by name; * and ? stand for any text."
    ] = None
    prune: Annotated[PruneConfig | None, "Weights that are 0 and stay 0; default: none."] = None
    share: Annotated[ShareConfig | None, "Weights that share a few values; default: none."] = None
    loss: Annotated[Loss, "The function that training minimises."] = CROSS_ENTROPY
    optimizer: Annotated[Optimizer, "How the parameters are updated."]
    schedule: Annotated[Schedule, "How the learning rate changes."] = FIXED
    train: Annotated[TrainConfig, "How long to train."]
    evaluate: Annotated[EvaluateConfig, "How to evaluate."] = EvaluateConfig()
    parallel: Annotated[
        ParallelConfig | None, "How several processes train together; default: mode sync."
    ] = None
    run: Annotated[MachineConfig, "Where and how to compute."] = MachineConfig()
    checkpoint: Annotated[CheckpointConfig, "When to save."] = CheckpointConfig()

    @property
    def is_asynchronous(self) -> bool:
        return self.parallel is not None and self.parallel.mode == "async"

    @property
    def in_bands(self) -> bool:
        """Whether ranks share out the rows of pictures, not the parts of a batch."""
        every = (layer for _, layer in named_layers(self.layers))
        return any(getattr(layer, "parallel", None) == SPACE for layer in every)
