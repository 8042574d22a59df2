"""The JSON Schema accepts what the loader accepts, as written, and the shipped copy is current."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dnnstack.configs
import pytest
from dnnstack.configs import json_schema, load_config, packaged_configs
from dnnstack.configs.document import Place
from dnnstack.configs.load import compose_value
from dnnstack.configs.search import load_search

from ..support.stored import stored

SCHEMA = json_schema()
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
}
NOTES = {"description", "default", "$schema", "$defs", "title"}


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """JSON Schema validation, for the keywords that the schema uses; others are an error."""
    return all(_holds(schema, keyword, value) for keyword in schema.keys() - NOTES)


def _holds(schema: dict[str, Any], keyword: str, value: Any) -> bool:
    wanted = schema[keyword]
    if keyword == "$ref":
        return accepts(SCHEMA["$defs"][wanted.removeprefix("#/$defs/")], value)
    if keyword == "anyOf":
        return any(accepts(option, value) for option in wanted)
    if keyword == "type":
        return _is(wanted, value)
    if keyword == "const":
        return bool(value == wanted)
    if keyword == "enum":
        return value in wanted
    if keyword in CHECKS:
        kind, check = CHECKS[keyword]
        return not _is(kind, value) or check(value, wanted)
    if keyword == "prefixItems":
        return not isinstance(value, list) or all(map(accepts, wanted, value))
    if keyword == "not":
        return not accepts(wanted, value)
    if keyword == "if":
        return accepts(wanted, value) or accepts(schema["else"], value)
    if keyword == "else":
        return "if" in schema
    assert keyword == "additionalProperties"
    if not isinstance(value, dict):
        return True
    rest = [inner for key, inner in value.items() if key not in schema.get("properties", {})]
    return not rest if wanted is False else all(accepts(wanted, inner) for inner in rest)


def _each_fits(value: dict[str, Any], properties: dict[str, Any]) -> bool:
    return all(accepts(properties[key], value[key]) for key in value if key in properties)


CHECKS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("number", operator.ge),
    "maximum": ("number", operator.le),
    "exclusiveMinimum": ("number", operator.gt),
    "exclusiveMaximum": ("number", operator.lt),
    "minLength": ("string", lambda value, wanted: len(value) >= wanted),
    "minItems": ("array", lambda value, wanted: len(value) >= wanted),
    "maxItems": ("array", lambda value, wanted: len(value) <= wanted),
    "minProperties": ("object", lambda value, wanted: len(value) >= wanted),
    "maxProperties": ("object", lambda value, wanted: len(value) <= wanted),
    "required": ("object", lambda value, wanted: set(wanted) <= value.keys()),
    "properties": ("object", _each_fits),
    "propertyNames": ("object", lambda value, wanted: all(accepts(wanted, key) for key in value)),
    "contains": ("array", lambda value, wanted: any(accepts(wanted, item) for item in value)),
    "items": ("array", lambda value, wanted: all(accepts(wanted, item) for item in value)),
}


def _is(kind: str, value: Any) -> bool:
    if kind in ("integer", "number"):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole or (kind == "number" and isinstance(value, float))
    return isinstance(value, TYPES[kind])


def read(text: str) -> Any:
    node = compose_value(text, "", Place.in_override(""), [])
    assert node is not None
    return node.plain()


def test_the_shipped_schema_is_current():
    """Write it anew with ``python release/generated.py .``."""
    shipped = Path(dnnstack.configs.__file__ or "").parent / "schema.json"
    assert json.loads(shipped.read_text(encoding="utf-8")) == SCHEMA


def test_searches_fit():
    """With a block for sweep, whose keys are known too."""
    text = load_search("lenet-search.yaml")[0].text
    assert accepts(SCHEMA, read(text))
    for wrong in (
        "keys: {optimizer.lr: [0.1]}, trials: none",
        "keys: {optimizer.lr: [0.1]}, trails: 200",
        "keys: {optimizer.lr: {low: 0.1}}",
        "keys: {optimizer.lr: [0.1]}, sampler: nsgaii",
        "keys: {optimizer.lr: [0.1]}, sampler: {population: 9}",
        "keys: {optimizer.lr: [0.1]}, sampler: {type: tpe, population: 9}",
        "keys: {optimizer.lr: [0.1]}, sampler: {type: nsga2, population: 1}",
    ):
        assert not accepts(SCHEMA, read(f"{GOOD}search: {{{wrong}}}"))
    for more in (
        "trials: 1",
        "sampler: nsga2",
        "sampler: {type: tpe, startup_trials: 20, multivariate: true}",
        "sampler: {type: nsga2, population: 20}",
        "sampler: {type: grid}",
    ):
        assert accepts(SCHEMA, read(f"{GOOD}search: {{keys: {{optimizer.lr: [0.1]}}, {more}}}"))


@pytest.mark.parametrize("name", packaged_configs())
def test_packaged_configs_fit(name):
    loaded = load_config(name)
    assert accepts(SCHEMA, read(loaded.text))
    assert accepts(SCHEMA, json.loads(json.dumps(loaded.config.model_dump())))


GOOD = """\
data: {dataset: mnist}
layers: [flatten]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


@pytest.mark.parametrize(("text", "answer"), stored(__file__, "schema_cases.txt"))
def test_accepts(text, answer):
    found = accepts(SCHEMA, read(GOOD) | read(text))
    assert answer == ("accepted" if found else "refused")


def test_everything_is_described():
    for name, model in SCHEMA["$defs"].items():
        assert model["description"], name
        for key, value in model.get("properties", {}).items():
            assert key == "type" or value.get("description"), (name, key)
    assert all(value.get("description") for value in SCHEMA["properties"].values())
