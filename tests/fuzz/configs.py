"""Configs: drawn from the grammar of the schema, packaged ones changed, overrides, tables."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from dnnstack.configs import (
    effective_yaml,
    json_schema,
    load_config,
    packaged_configs,
    parse_config,
)
from dnnstack.configs.schema.run import RunConfig
from dnnstack.datasets import Downloads
from dnnstack.training.assemble import build_network, describe_data, load_data
from hypothesis import strategies as st

from .drawing import WRONG, changed, encoded
from .harness import Target

_NUMBERS = (0, 1, 2, 3, 5, 28, 100, 1.5, 0.1, 0.9, 1e-3, -1, 2**31 - 1, 2**31, 2**63, 1e308)
_WORDS = ("x", "conv2d_1", "dense", "$n", "$width", "a b", "*", "no", "1", "", "ü", "x" * 500)
_PUNCTUATION = "{}[]:,-&*!|>'\"%@` \n#ab1"
_DEEPEST = 7


@cache
def _schema() -> dict[str, Any]:
    return json_schema()


@cache
def _packaged() -> list[bytes]:
    folder = Path(load_config("lenet.yaml").path).parent
    return [(folder / name).read_bytes() for name in packaged_configs()]


@cache
def packaged_texts() -> list[str]:
    return [data.decode() for data in _packaged()]


@st.composite
def _of(draw: st.DrawFn, schema: dict[str, Any], wild: bool, depth: int = 0) -> Any:
    """A value that the schema describes, or, if it may be wild, now and then another."""
    if wild and draw(st.integers(0, 30)) == 0:
        return draw(_STRANGE)
    if "$ref" in schema:
        inner = _schema()["$defs"][schema["$ref"].rpartition("/")[2]]
        return draw(_of(inner, wild, depth))
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "anyOf" in schema:
        # The first is the short form, which ends.
        options = schema["anyOf"][: 1 if depth > _DEEPEST else None]
        return draw(_of(draw(st.sampled_from(options)), wild, depth))
    kind = schema.get("type")
    if kind == "object":
        return draw(_object(schema, wild, depth))
    if kind == "array":
        if "prefixItems" in schema:
            return [draw(_of(each, wild, depth + 1)) for each in schema["prefixItems"]]
        count = draw(st.integers(schema.get("minItems", 0), 3))
        return [draw(_of(schema.get("items", {}), wild, depth + 1)) for _ in range(count)]
    if kind == "boolean":
        return draw(st.booleans())
    if kind == "null":
        return None
    if kind in ("number", "integer"):
        numbers = [each for each in _NUMBERS if wild or _fits(each, schema)]
        return draw(st.sampled_from(numbers or _NUMBERS))
    return draw(st.sampled_from(_WORDS))


def _fits(number: float, schema: dict[str, Any]) -> bool:
    return (
        (schema["type"] == "number" or isinstance(number, int))
        and schema.get("minimum", -1e308) <= number <= schema.get("maximum", 2**31)
        and schema.get("exclusiveMinimum", -1e308) < number < schema.get("exclusiveMaximum", 2**64)
    )


@st.composite
def _object(draw: st.DrawFn, schema: dict[str, Any], wild: bool, depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if schema.get("maxProperties") == 1 and properties:
        chosen = [draw(st.sampled_from(sorted(properties)))]
    else:
        optional = sorted(set(properties) - set(schema.get("required", ())))
        few = st.lists(st.sampled_from(optional), max_size=2, unique=True)
        chosen = [*schema.get("required", ()), *(draw(few) if optional else ())]
    found = {key: draw(_of(properties[key], wild, depth + 1)) for key in chosen}
    further = schema.get("additionalProperties")
    if isinstance(further, dict) and depth < _DEEPEST:
        found["some"] = draw(_of(further, wild, depth + 1))
    return found


_STRANGE = st.sampled_from((None, True, "", "x", [], {}, [[]], {"a": None}, *_NUMBERS))


@st.composite
def _written(draw: st.DrawFn, value: Any, indent: int = 0) -> str:
    """As YAML: in blocks or, from some place on, in brackets."""
    if not isinstance(value, (dict, list)) or not value or draw(st.integers(0, 4)) == 0:
        return json.dumps(value, ensure_ascii=False)
    margin = "\n" + "  " * indent
    if isinstance(value, dict):
        parts = [f"{key}: {draw(_written(each, indent + 1))}" for key, each in value.items()]
    else:
        parts = [f"- {draw(_written(each, indent + 1))}" for each in value]
    return margin + margin.join(parts)


@st.composite
def drawn_config(draw: st.DrawFn) -> str:
    """A fifth of them are what a person could have meant."""
    sound = {**_SOUND, "layers": [*draw(_few_layers()), "flatten", {"dense": {"units": 10}}]}
    wild = draw(st.booleans())
    value = draw(_of(_schema(), wild))
    if not isinstance(value, dict):
        return draw(_written(value))
    kept = draw(st.just({*sound}) | st.sets(st.sampled_from(sorted(sound))))
    return draw(_written({**value, **{key: sound[key] for key in kept}}))


_SOUND: dict[str, Any] = {
    "data": {"dataset": "strokes", "batch_size": 3},
    "optimizer": {"type": "sgd", "lr": 0.1},
    "train": {"epochs": 1},
    "schedule": "fixed",
    "loss": "cross_entropy",
    "name": "x",
}


@st.composite
def _few_layers(draw: st.DrawFn) -> list[Any]:
    layer = _schema()["$defs"]["layer"]
    return [draw(_of(layer, False)) for _ in range(draw(st.integers(0, 2)))]


def _read_config(data: bytes, folder: Path, overrides: tuple[str, ...] = ()) -> None:
    path = folder / "x.yaml"
    path.write_bytes(data)
    config = load_config(path, overrides).config
    assert parse_config(effective_yaml(config), "again.yaml") == config
    _build(config, folder)


def _build(config: RunConfig, folder: Path) -> None:
    # Folders of pictures are the user's own, wherever they are.
    if config.data.dataset.type != "image_folder":
        build_network(config, describe_data(config, folder))


@cache
def _keys() -> list[str]:
    """Dotted paths of the schema, some of them through layers."""
    found = ["layers.0.filters", "layers.dense_1.units", "layers.9", "blocks.a.parameters.n"]
    found += ["", "x", "layers", "layers.conv2d", "blocks", "a.b.c", "layers.-1", "data..root"]
    for key, section in _schema()["properties"].items():
        found.append(key)
        models = [section, *section.get("anyOf", ())]
        for model in models:
            name = model.get("$ref", "").rpartition("/")[2]
            inner = _schema()["$defs"].get(name, {}).get("properties", {})
            found += [f"{key}.{each}" for each in inner]
            found += [f"{key}.{each}.x.0" for each in list(inner)[:2]]
    return found


_SENSIBLE = (
    *("seed=5", "optimizer.lr=0.01", "train.epochs=2", "schedule.type=fixed", "name=y"),
    *("train.max_steps=7", "run.dir=elsewhere", "data.batch_size=2", "layers.dense_1.units=3"),
)


@st.composite
def _overrides(draw: st.DrawFn) -> bytes:
    values = st.sampled_from(WRONG) | st.sampled_from([*map(str, _NUMBERS), *_WORDS])
    found = draw(st.lists(st.sampled_from(_SENSIBLE), max_size=3))
    for _ in range(draw(st.integers(0, 2))):
        key, value = draw(st.sampled_from(_keys())), draw(values)
        found.append(f"{key}={value}" if draw(st.integers(0, 20)) else f"{key}{value}")
    first = str(draw(st.integers(0, len(_packaged()) - 1)))
    return "\n".join([first, *found]).encode("utf-8", "surrogatepass")


def _read_overrides(data: bytes, folder: Path) -> None:
    number, *lines = data.decode("utf-8", "surrogateescape").split("\n")
    chosen = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    _read_config(_packaged()[chosen % len(_packaged())], folder, tuple(lines))


@st.composite
def _table(draw: st.DrawFn) -> bytes:
    numbers = st.sampled_from((0, 1, -1, 0.5, 0.1, 1e-300, 1e300, 2**70, 3, 255)) | st.floats(
        allow_nan=False, allow_infinity=False
    )
    columns, rows = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    inputs = [[draw(numbers) for _ in range(columns)] for _ in range(rows)]
    targets = [draw(st.sampled_from((0, 1, 2, 9999, -1, 10**6))) for _ in range(rows)]
    table: dict[str, Any] = {"inputs": inputs, "targets": targets}
    if draw(st.booleans()):
        table["classes"] = draw(st.lists(st.sampled_from(_WORDS), max_size=4))
    text = json.dumps(table)
    if draw(st.booleans()):
        text = draw(changed(lambda: [text.encode()], 2)).decode("utf-8", "replace")
    return text.encode()


def _read_table(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "surrogateescape")
    head = "{data: {dataset: {table: "
    rest = "}, batch_size: 1}, layers: [flatten, {dense: {units: 2}}], optimizer: {type: sgd, lr: 1"
    config = parse_config(f"{head}{text}{rest}}}, train: {{epochs: 1}}}}", "x.yaml")
    load_data(config, "train", folder, Downloads(offline=True))
    _build(config, folder)


def _sound_table() -> list[bytes]:
    return [b"{inputs: [[0, 0.5], [1, 1]], targets: [0, 1]}", b"{inputs: [1, 2], targets: [1, 0]}"]


CONFIGS = (
    Target("config", _read_config, encoded(drawn_config()), _packaged),
    Target(
        "config-changed",
        _read_config,
        changed(_packaged, 4)
        | encoded(st.text(max_size=60))
        | encoded(st.text(_PUNCTUATION, max_size=60)),
        _packaged,
    ),
    Target(
        "override",
        _read_overrides,
        _overrides(),
        lambda: [b"0\noptimizer.lr=0.1", b"3\nlayers.0.filters=7\nschedule.gamma=1"],
    ),
    Target("table", _read_table, _table(), _sound_table),
)
