"""The JSON Schema of the YAML as it is written, short forms included; editors complete from it."""

from __future__ import annotations

from typing import Any

from .schema import RunConfig


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a config file."""
    schema = _tidied(RunConfig.model_json_schema(mode="validation"))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dnnstack config",
        **schema,
    }


def _tidied(value: Any, naming: bool = False) -> Any:
    """Without pydantic's own titles and notes; ``naming``: the keys are names, not keywords."""
    if isinstance(value, list):
        return [_tidied(item) for item in value]
    if not isinstance(value, dict):
        return value
    drop = set() if naming else {"title", "x-names"}
    if not naming and value.get("default", 0) is None:
        drop.add("default")
    return {
        key: _tidied(inner, not naming and key in ("properties", "$defs"))
        for key, inner in value.items()
        if key not in drop
    }
