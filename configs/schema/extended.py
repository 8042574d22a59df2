"""The model of a config with the kinds that plugins define, beside those of the package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import create_model

from ...optimizers import RULES
from ...optimizers.rules import Decaying
from .base import Model
from .datasets import dataset_type
from .declared import config_models
from .layers import layer_models, layer_type, stack_of
from .optimizer import GroupConfig, OptimizerConfig, groups_of, optimizer_type
from .pictures import augmentation_type, list_of
from .run import DataConfig, RunConfig
from .training import loss_type, schedule_type

M = TypeVar("M", bound=Model)
Kinds = Mapping[str, Mapping[str, type]]
WORDS = ("layer", "loss", "optimizer", "schedule", "augmentation", "dataset")
"""What a config can name, and a plugin can define."""

_present: type[RunConfig] = RunConfig


def config_model() -> type[RunConfig]:
    """RunConfig, or if plugins are loaded a model derived from it that has their kinds too."""
    return _present


def check_options(word: str, kind: str, declared: type) -> None:
    """Raise whatever is wrong with the options of a class that is to be such a kind."""
    made = {kind: declared}
    types = {Decaying: Any}
    models = layer_models(made, Any) if word == "layer" else config_models(made, Model, types)
    models[kind].model_rebuild(force=True)


def extend(kinds: Kinds) -> None:
    """Add kinds, by what they are kinds of, to every config that is read from now on.

    The catalogues of layers and optimizers must have theirs by then.
    """
    global _present
    found = {word: kinds.get(word, {}) for word in WORDS}
    schedule = schedule_type(found["schedule"])
    group = _retyped(GroupConfig, schedule=schedule | None)
    optimizer = _retyped(OptimizerConfig, groups=groups_of(group))
    data = _retyped(
        DataConfig,
        dataset=dataset_type(found["dataset"]),
        augment=list_of(augmentation_type(found["augmentation"])),
    )
    _present = _retyped(
        RunConfig,
        data=data,
        layers=stack_of(layer_type(found["layer"])),
        loss=loss_type(found["loss"]),
        optimizer=optimizer_type(RULES, optimizer),
        schedule=schedule,
    )


def _retyped(model: type[M], **types: Any) -> type[M]:
    """The same model with other types for some fields."""
    fields: dict[str, Any] = {}
    for name, type_ in types.items():
        field = model.model_fields[name]
        default = ... if field.is_required() else field.default
        fields[name] = (Annotated[type_, field.description], default)
    made: type[M] = create_model(
        model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
    )
    return made
