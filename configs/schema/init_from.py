"""Which weights a training begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from .base import Model, Normalised, problem
from .datasets import Folder
from .optimizer import Patterns


class InitFromConfig(Model):
    """A run or a file whose weights are taken as far as they fit by name and shape."""

    short_key: ClassVar[str] = "source"
    source: Annotated[Folder, "A run, by name or folder, or a .safetensors file."]
    skip: Annotated[
        Patterns | None,
        "Parameters and running statistics that are initialised although they fit, by name; "
        "* and ? stand for any text.",
    ] = None

    def shortened(self, options: dict[str, Any]) -> Any:
        return options["source"] if len(options) == 1 else options


class _OrSource(Normalised):
    """Accepts ``x`` for ``{source: x}``."""

    def normalise(self, value: Any) -> Any:
        if isinstance(value, str):
            return {"source": value}
        if not isinstance(value, (Mapping, InitFromConfig)):
            raise problem("expected a run or a .safetensors file, or a mapping with source")
        return value

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "minLength": 1}, handler(schema)]}


InitFrom = Annotated[InitFromConfig, _OrSource()]
