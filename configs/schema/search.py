"""The JSON Schema of the block ``search``, which ``dnnstack sweep`` reads beside a config."""

from __future__ import annotations

from typing import Any

_NUMBER = {"type": "number"}
_LIST: dict[str, Any] = {"type": "array", "minItems": 1, "description": "The values to try."}
_WHEN = {
    "type": "object",
    "minProperties": 1,
    "description": "Set this key only where these keys, above it, have these values.",
}
_RANGE = {
    "type": "object",
    "properties": {
        "low": {**_NUMBER, "description": "The least number."},
        "high": {**_NUMBER, "description": "The greatest number."},
        "log": {"type": "boolean", "description": "Even steps of the logarithm."},
        "step": {**_NUMBER, "exclusiveMinimum": 0, "description": "Steps of this size only."},
        "when": _WHEN,
    },
    "required": ["low", "high"],
    "additionalProperties": False,
}
_VALUES = {
    "type": "object",
    "properties": {"values": _LIST, "when": _WHEN},
    "required": ["values"],
    "additionalProperties": False,
}
_OBJECTIVE = {"enum": ["accuracy", "loss", "seconds"]}
_OBJECTIVES = {"type": "array", "items": _OBJECTIVE, "minItems": 1, "maxItems": 2}
_PRUNE = {
    "type": "object",
    "properties": {
        "after_trials": {
            "type": "integer",
            "minimum": 1,
            "description": "Complete trials before which none is ended early.",
        },
        "after_validations": {
            "type": "integer",
            "minimum": 0,
            "description": "Validations of a trial before which it is not ended early.",
        },
    },
    "additionalProperties": False,
}
_STARTUP = {
    "type": "integer",
    "minimum": 1,
    "default": 10,
    "description": "Trials that are drawn at random before any is learned from.",
}
_MULTIVARIATE = {
    "type": "boolean",
    "description": "Draw keys that occur in the same trials together; default: as Optuna does.",
}
_POPULATION = {
    "type": "integer",
    "minimum": 2,
    "default": 50,
    "description": "Complete trials of a generation.",
}


def _sampler(name: str, **options: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"const": name}, **options},
        "required": ["type"],
        "additionalProperties": False,
    }


SEARCH_SCHEMA: dict[str, Any] = {
    "description": "What dnnstack sweep searches; a config with it is for sweep alone.",
    "type": "object",
    "properties": {
        "keys": {
            "description": "The keys to search, written as for --set.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"anyOf": [_LIST, _RANGE, _VALUES]},
        },
        "objective": {
            "description": "What is best: accuracy or loss on validation, seconds of training, or "
            "two of them.",
            "anyOf": [_OBJECTIVE, {**_OBJECTIVES, "uniqueItems": True}],
            "default": "accuracy",
        },
        "sampler": {
            "description": "How values are drawn; a mapping has options, too.",
            "anyOf": [
                {"enum": ["tpe", "random", "nsga2", "grid"]},
                _sampler("tpe", startup_trials=_STARTUP, multivariate=_MULTIVARIATE),
                _sampler("random"),
                _sampler("nsga2", population=_POPULATION),
                _sampler("grid"),
            ],
            "default": "tpe",
        },
        "seed": {
            "description": "Seed of the sampler; default: that of the config.",
            "type": "integer",
            "minimum": 0,
        },
        "trials": {"description": "The budget in trials.", "type": "integer", "minimum": 1},
        "seconds": {
            "description": "The budget in seconds of training.",
            "type": "number",
            "exclusiveMinimum": 0,
        },
        "epochs": {"description": "The budget in epochs.", "type": "number", "exclusiveMinimum": 0},
        "prune": {
            "description": "End trials early that are worse than the median.",
            "anyOf": [{"type": "boolean"}, _PRUNE],
            "default": False,
        },
    },
    "required": ["keys"],
    "additionalProperties": False,
}
