"""The plugins of a config: Python files that define kinds, by their names and their hashes."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from .base import Model, problem, short

_FILE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}\.py")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _file_name(value: str) -> str:
    if not _FILE.fullmatch(value):
        raise problem(
            "expected the name of a Python file in the config's folder, such as my_layers.py: "
            "letters, digits and '_'; name a file elsewhere on the command line, with --plugin"
        )
    return value


def _digest(value: str) -> str:
    if not _SHA256.fullmatch(value):
        raise problem("expected 64 hexadecimal digits in lower case")
    return value


class PluginConfig(Model):
    """A Python file that defines kinds; short form: its name alone."""

    file: Annotated[str, AfterValidator(_file_name), "Name of the file, in the config's folder."]
    sha256: Annotated[
        Annotated[str, AfterValidator(_digest)] | None,
        "SHA-256 of the file; another file is refused. Default: any file of this name.",
    ] = None

    def shortened(self, options: dict[str, Any]) -> Any:
        return options["file"] if len(options) == 1 else options


def _listed(value: Any) -> Any:
    """One plugin or a list of them, each perhaps by its name alone."""
    items = value if isinstance(value, (list, tuple)) else [value]
    if not items:
        raise problem("expected the name of a Python file, or a list of them")
    return tuple({"file": item} if isinstance(item, str) else item for item in items)


def _each_once(plugins: tuple[PluginConfig, ...]) -> tuple[PluginConfig, ...]:
    if len({each.file for each in plugins}) < len(plugins):
        raise problem("expected each file once")
    return plugins


_ONE = {
    "anyOf": [
        {"type": "string", "pattern": f"^{_FILE.pattern}$"},
        {
            "type": "object",
            "properties": {
                "file": {"type": "string", "pattern": f"^{_FILE.pattern}$"},
                "sha256": {"type": "string", "pattern": f"^{_SHA256.pattern}$"},
            },
            "required": ["file"],
            "additionalProperties": False,
        },
    ]
}
Plugins = Annotated[
    tuple[PluginConfig, ...],
    Field(max_length=16),
    AfterValidator(_each_once),
    BeforeValidator(_listed),
    short,
    WithJsonSchema({"anyOf": [*_ONE["anyOf"], {"type": "array", "items": _ONE, "minItems": 1}]}),
]
