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


def test_the_shipped_schema_is_current() -> None:
    """Write it anew with ``python -m dnnstack.configs.generated .``."""
    shipped = Path(dnnstack.configs.__file__ or "").parent / "schema.json"
    assert json.loads(shipped.read_text(encoding="utf-8")) == SCHEMA


def test_searches_fit() -> None:
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
def test_packaged_configs_fit(name: str) -> None:
    loaded = load_config(name)
    assert accepts(SCHEMA, read(loaded.text))
    assert accepts(SCHEMA, json.loads(json.dumps(loaded.config.model_dump())))


GOOD = """\
data: {dataset: mnist}
layers: [flatten]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("seed: 1", True),
        ("seed: one", False),
        ("sed: 1", False),
        ("layers: [relu]", True),
        ("layers: [{relu: {name: a}}]", True),
        ("layers: [{relu: {nam: a}}]", False),
        ("layers: [rleu]", False),
        ("layers: [dense]", False),
        ("layers: [{dense: {}}]", False),
        ("layers: [{dense: {units: 5}}]", True),
        ("layers: [{dense: {units: 5, type: dense}}]", False),
        ("layers: [{dense: {units: 5}, relu: {}}]", False),
        ("layers: [{conv2d: {filters: 5, kernel_size: 3}}]", True),
        ("layers: [{conv2d: {filters: 5, kernel_size: [3, 5], padding: same}}]", True),
        ("layers: [{conv2d: {filters: 5, kernel_size: [3]}}]", False),
        ("layers: [{conv2d: {filters: 5, kernel_size: 3, padding: some}}]", False),
        ("layers: [{dense: {units: 5, kernel_initializer: he_normal}}]", True),
        ("layers: [{dense: {units: 5, kernel_initializer: normal}}]", False),
        ("layers: [{dense: {units: 5, kernel_initializer: {normal: {std: 1}}}}]", True),
        ("layers: [{pad2d: {padding: 2}}]", True),
        ("layers: [{pad2d: {padding: [1, 0]}}]", True),
        ("layers: [{pad2d: {padding: [0, 3]}}]", True),
        ("layers: [{pad2d: {padding: [0, 0]}}]", False),
        ("layers: [{pad2d: {padding: 0}}]", False),
        ("layers: []", False),
        ("layers: [{residual: {body: [relu]}}]", True),
        ("layers: [{residual: {body: [dense]}}]", False),
        ("layers: [{residual: {body: []}}]", False),
        ("layers: [{residual: {body: [{relu: {nam: a}}]}}]", False),
        ("layers: [{residual: {body: [relu], shortcut: padding}}]", True),
        ("layers: [{residual: {body: [relu], shortcut: pading}}]", False),
        ("layers: [{residual: {body: [relu], shortcut: [flatten]}}]", True),
        ("layers: [{concat: {branches: [[relu], []]}}]", True),
        ("layers: [{concat: {branches: [relu, []]}}]", False),
        ("layers: [{repeat: {times: 2, layers: [relu]}}]", True),
        ("layers: [{repeat: {layers: [relu]}}]", False),
        ("layers: [{basic: {filters: 3}}]", False),
        ("{blocks: {basic: {layers: [relu]}}, layers: [basic, {basic: {filters: 3}}]}", True),
        ("{blocks: {basic: {layer: [relu]}}, layers: [basic]}", False),
        ("{blocks: {basic: {layers: [relu]}}, layers: [dense]}", False),
        ("data: {dataset: {strokes: {train_count: 5}}}", True),
        ("data: {dataset: {mnist: {train_count: 5}}}", False),
        ("data: {dataset: strokes, validation: 0.1}", True),
        ("data: {dataset: strokes, validation: 1.1}", False),
        ("data: {dataset: strokes, normalize: {mean: [0, 1], std: 0.5}}", True),
        ("loss: mse", True),
        ("loss: {type: mse}", True),
        ("loss: {type: mse, label_smoothing: 0.1}", False),
        ("loss: {label_smoothing: 0.1}", False),
        ("optimizer: sgd", False),
        ("optimizer: {type: sgd, lr: 0.1}", True),
        ("optimizer: {type: sgd, lr: 0.1, clip_norm: null}", True),
        ("schedule: fixed", True),
        ("schedule: inv", False),
        ("schedule: {type: multistep, milestones: [1, 2]}", True),
        ("schedule: {type: multistep, milestones: []}", False),
        ("schedule: {type: cosine, warmup: {epochs: 0.5}}", True),
        ("train: {epochs: 0}", False),
        ("train: {max_steps: 1.5}", False),
        ("run: {device: gpu}", False),
    ],
)
def test_accepts(text: str, fits: bool) -> None:
    assert accepts(SCHEMA, read(GOOD) | read(text)) is fits


def test_everything_is_described() -> None:
    for name, model in SCHEMA["$defs"].items():
        assert model["description"], name
        for key, value in model.get("properties", {}).items():
            assert key == "type" or value.get("description"), (name, key)
    assert all(value.get("description") for value in SCHEMA["properties"].values())
