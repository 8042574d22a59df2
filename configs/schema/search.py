"""The JSON Schema of the block ``search``, which ``dnnstack sweep`` reads beside a config."""

from __future__ import annotations

from typing import Any

from ...common.targets import EVERY_METRIC
from .base import mapping

Json = dict[str, Any]


def _number(about: str, kind: str = "number", **limits: float) -> Json:
    return {"type": kind, "description": about, **limits}


def _whole(about: str, least: int, **default: int) -> Json:
    return _number(about, "integer", minimum=least, **default)


def _flag(about: str) -> Json:
    return {"type": "boolean", "description": about}


_LIST: Json = {"type": "array", "minItems": 1, "description": "The values to try."}
_WHEN = {
    "type": "object",
    "minProperties": 1,
    "description": "Set this key only where these keys, above it, have these values.",
}
RANGE = mapping(
    ["low", "high"],
    low=_number("The least number."),
    high=_number("The greatest number."),
    log=_flag("Even steps of the logarithm."),
    step=_number("Steps of this size only.", exclusiveMinimum=0),
    when=_WHEN,
)
VALUES = mapping(["values"], values=_LIST, when=_WHEN)
OBJECTIVES = ("accuracy", "loss", "seconds", *(n for n in EVERY_METRIC if n != "accuracy"))
OBJECTIVE = {"enum": [*OBJECTIVES]}
PRUNE = {
    "after_trials": _whole("Complete trials before which none is ended early.", 1),
    "after_validations": _whole("Validations of a trial before which it is not ended early.", 0),
}
SAMPLERS: dict[str, Json] = {
    "tpe": {
        "startup_trials": _whole(
            "Trials that are drawn at random before any is learned from.", 1, default=10
        ),
        "multivariate": _flag(
            "Draw keys that occur in the same trials together; default: as Optuna does."
        ),
    },
    "random": {},
    "nsga2": {"population": _whole("Complete trials of a generation.", 2, default=50)},
    "grid": {},
}
"""The options of each."""
SEARCH_SCHEMA = mapping(
    ["keys"],
    "What dnnstack sweep searches; a config with it is for sweep alone.",
    keys={
        "description": "The keys to search, written as for --set.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"anyOf": [_LIST, RANGE, VALUES]},
    },
    objective={
        "description": "What is best: accuracy, or r2 of numbers, or loss on validation, seconds "
        "of training, the metric that checkpoint.best_by names, or two of them.",
        "anyOf": [
            OBJECTIVE,
            {
                "type": "array",
                "items": OBJECTIVE,
                "minItems": 1,
                "maxItems": 2,
                "uniqueItems": True,
            },
        ],
        "default": "accuracy",
    },
    sampler={
        "description": "How values are drawn; a mapping has options, too.",
        "anyOf": [
            {"enum": [*SAMPLERS]},
            *(mapping(["type"], type={"const": name}, **own) for name, own in SAMPLERS.items()),
        ],
        "default": "tpe",
    },
    seed=_whole("Seed of the sampler; default: that of the config.", 0),
    trials=_whole("The budget in trials.", 1),
    seconds=_number("The budget in seconds of training.", exclusiveMinimum=0),
    epochs=_number("The budget in epochs.", exclusiveMinimum=0),
    prune={
        "description": "End trials early that are worse than the median.",
        "anyOf": [{"type": "boolean"}, mapping(**PRUNE)],
        "default": False,
    },
)
