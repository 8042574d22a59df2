"""Which weights a training begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from .base import Model, problem
from .dataset_base import Folder
from .optimizer import Patterns


class InitFromConfig(Model):
    """A run, file or model whose weights are taken as far as they fit by name and shape."""

    short_key: ClassVar[str] = "source"
    source: Annotated[
        Folder,
        "A run, by name or folder; a .safetensors or .pth file; or a model of a hub, as in "
        "timm/resnet18.a1_in1k.",
    ]
    skip: Annotated[
        Patterns | None,
        "Parameters and running statistics that are initialised although they fit, by name; "
        "* and ? stand for any text.",
    ] = None


def _long(value: Any) -> Any:
    """``{source: x}`` for ``x``."""
    if isinstance(value, str):
        return {"source": value}
    if not isinstance(value, (Mapping, InitFromConfig)):
        raise problem("expected a run, a file or a model, or a mapping with source")
    return value


InitFrom = Annotated[
    InitFromConfig,
    BeforeValidator(
        _long, json_schema_input_type=Annotated[str, Field(min_length=1)] | InitFromConfig
    ),
]
