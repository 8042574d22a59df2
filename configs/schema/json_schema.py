"""The JSON Schema of the YAML as it is written, short forms included; editors complete from it."""

from __future__ import annotations

from typing import Any

from ...common.text import with_article
from .base import mapping, written_kinds
from .extended import config_model
from .layers import SHORTCUTS
from .search import SEARCH_SCHEMA

Json = dict[str, Any]

_LAYER = {"$ref": "#/$defs/layer"}
_LAYERS = {"type": "array", "items": _LAYER, "minItems": 1}
_REPEAT = mapping(
    ["times", "layers"],
    "Repeats the layers this many times.",
    times={"type": "integer", "minimum": 1, "description": "How many times."},
    layers={**_LAYERS, "description": "The layers."},
)
_BLOCK = mapping(
    ["layers"],
    "Named layers, used like a layer; in them, $name stands for a parameter.",
    parameters={
        "type": "object",
        "description": "Names and defaults; a parameter without a default must be given.",
    },
    layers={"type": "array", "minItems": 1, "description": "The layers of the block."},
)


def json_schema() -> Json:
    """JSON Schema (draft 2020-12) of a config file."""
    schema = config_model().model_json_schema(mode="validation")
    definitions = schema["$defs"]
    for name, (kind, members) in _unions(schema).items():
        definitions[name] = _forms(kind, members, definitions)
    _with_blocks(schema)
    schema["properties"]["search"] = SEARCH_SCHEMA
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dnnstack config",
        **_tidied(schema),
    }


def _unions(schema: Json) -> dict[str, tuple[str, list[Json]]]:
    """Replace every union of named models by a reference to one definition; return the unions.

    A union of typed models is written out where it stands.
    """
    found: dict[str, tuple[str, list[Json]]] = {}
    pending: list[Any] = [schema]
    for value in pending:  # which grows
        if isinstance(value, dict) and "x-named" in value:
            union = value.pop("x-named"), value.pop("x-members")
            same = [name for name, other in found.items() if other == union]
            count = sum(kind == union[0] for kind, _ in found.values())
            name = same[0] if same else union[0] + (f"_{count + 1}" if count else "")
            found[name] = union
            value["$ref"] = f"#/$defs/{name}"
        elif isinstance(value, dict) and "x-typed" in value:
            value["anyOf"] = _typed(value.pop("x-typed"), schema["$defs"])
        if isinstance(value, (dict, list)):
            pending += value.values() if isinstance(value, dict) else value
    return found


def _typed(members: list[Json], definitions: Json) -> list[Json]:
    """A kind alone, if only the type is required, or a mapping with the type."""
    names: list[str] = []
    for member in members:
        model = _model(member, definitions)
        model["required"] = sorted({*model.get("required", []), "type"})
        if model["required"] == ["type"]:
            names += written_kinds(model)
    return [*([{"enum": names}] if names else []), *members]


def _model(member: Json, definitions: Json) -> Json:
    found: Json = definitions[member["$ref"].removeprefix("#/$defs/")]
    return found


def _forms(kind: str, members: list[Json], definitions: Json) -> Json:
    """A name alone, if nothing is required, or a mapping of a name to its options."""
    names: list[str] = []
    long: Json = {}
    for member in members:
        model = _model(member, definitions)
        kinds = written_kinds(model) or model["x-names"]
        model["x-names"] = kinds
        model.get("properties", {}).pop("type", None)
        required = [key for key in model.pop("required", []) if key != "type"]
        if required:
            model["required"] = required
        else:
            names += kinds
        long |= dict.fromkeys(kinds, member)
    mapping = {
        "type": "object",
        "properties": long,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {
        "description": f"The name of {with_article(kind)}, or the name with its options.",
        "anyOf": [{"enum": names}, mapping],
    }


def _with_blocks(schema: Json) -> None:
    """What is expanded before the models see it: repeat, blocks and their uses.

    A schema cannot know the names of a file's blocks: any other name may be a block inside
    composites, and at the top level if the file has ``blocks``.
    """
    definitions = schema["$defs"]
    layer = definitions["layer"]
    short, mapping = layer["anyOf"]
    mapping["properties"]["repeat"] = {"$ref": "#/$defs/repeat"}
    known = {"enum": list(mapping["properties"])}
    use = {
        "type": "object",
        "propertyNames": {"not": known},
        "minProperties": 1,
        "maxProperties": 1,
    }
    layer["anyOf"] += [{"type": "string", "not": known}, use]
    definitions |= {"repeat": _REPEAT, "block": _BLOCK}
    shortcut = definitions["ResidualConfig"]["properties"]["shortcut"]
    for key in ("items", "type"):
        shortcut.pop(key, None)
    shortcut["anyOf"] = [{"enum": list(SHORTCUTS)}, _LAYERS]
    schema["properties"]["blocks"] = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/block"},
        "description": "Named layers with parameters, used like a layer.",
    }
    schema["if"] = {"required": ["blocks"]}
    names = {"anyOf": [short, {"type": "object", "propertyNames": known}]}
    schema["else"] = {"properties": {"layers": {"items": names}}}


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
