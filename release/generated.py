"""What is generated from the schema: the tables of docs/config.md, and configs/schema.json.

    python release/generated.py CHECKOUT

writes both anew. In the document a table stands between ``<!-- table: layers -->`` and
``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from dnnstack.configs.schema.base import Model, in_order
from dnnstack.configs.schema.json_schema import json_schema
from dnnstack.configs.schema.layer_base import LayerConfig
from dnnstack.configs.schema.layers import Layer
from dnnstack.configs.schema.optimizer import Optimizer, OptimizerConfig
from dnnstack.configs.schema.pictures import Augmentation, AugmentationConfig
from dnnstack.configs.schema.shape import kinds, models_in
from dnnstack.configs.schema.training import Loss, LossConfig, Schedule, ScheduleConfig
from dnnstack.configs.write import flow
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_TABLES: dict[str, tuple[str, Any, type[Model]]] = {
    "augmentations": ("augmentation", Augmentation, AugmentationConfig),
    "layers": ("layer", Layer, LayerConfig),
    "losses": ("loss", Loss, LossConfig),
    "optimizers": ("optimizer", Optimizer, OptimizerConfig),
    "schedules": ("schedule", Schedule, ScheduleConfig),
}
_PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(document: str) -> str:
    """The document with its tables as the schema has them."""
    return _PLACE.sub(lambda found: f"{found[1]}\n{_table(found[2])}\n{found[3]}", document)


def _table(name: str) -> str:
    word, union, base = _TABLES[name]
    rows = [f"| {word} | option | default | meaning |", "| --- | --- | --- | --- |"]
    shared = [key for key in in_order(base, base.model_fields) if key != "type"]
    for place, key in enumerate(shared):
        rows.append(_row("" if place else "all", key, base.model_fields[key]))
    for model in models_in(union):
        own = [key for key in in_order(model, model.model_fields) if key not in ("type", *shared)]
        # Keys of one word, such as value, are also words of the language.
        names = [key for key in own if "_" in key]
        summary = _coded(" ".join((model.__doc__ or "").split()), names)
        rows.append(f"| `{kinds(model)[0]}` | | | {summary} |")
        rows += [_row("", key, model.model_fields[key]) for key in own]
    return "\n".join(rows) + "\n"


def _row(kind: str, key: str, field: FieldInfo) -> str:
    meaning = _coded(field.description or "", _words(field))
    cells = (kind, f"`{key}`", _default(field), meaning)
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if field.is_required():
        return "required"
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, Model):
        value = value.model_dump()
    if isinstance(value, float):
        return f"{value:g}".replace("e-0", "e-")
    text = flow(value)
    return f"`{text}`" if isinstance(value, (str, bool)) else text


def _words(field: FieldInfo) -> list[str]:
    """The words that the field can be."""
    found = [word for word in _literals(field.annotation) if isinstance(word, str)]
    for mark in field.metadata:
        forms = getattr(getattr(mark, "form", None), "schema", None) or {}
        found += [word for form in forms.get("anyOf", ()) for word in form.get("enum", ())]
    return found


def _literals(annotation: Any) -> Iterable[Any]:
    for each in get_args(annotation):
        yield from [each] if isinstance(each, (str, int)) else _literals(each)


def _coded(text: str, words: Iterable[str]) -> str:
    """The text with these words as code."""
    for word in dict.fromkeys(words):
        text = re.sub(rf"(?<![\w`-]){re.escape(word)}(?![\w`-])", f"`{word}`", text)
    return text.replace("|", "\\|")


def main(checkout: Path) -> None:
    document = checkout / "docs" / "config.md"
    document.write_text(with_tables(document.read_text(encoding="utf-8")), encoding="utf-8")
    (checkout / "configs" / "schema.json").write_text(
        json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
