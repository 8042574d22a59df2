"""The plugins of a config: Python files that define kinds, by their names and their hashes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from .base import Model, mapping, matching, problem, short

FILE, _SHA256 = r"[A-Za-z_][A-Za-z0-9_]{0,60}\.py", "[0-9a-f]{64}"
_FILE_NAME = matching(
    FILE,
    "the name of a Python file in the config's folder, such as my_layers.py: "
    "letters, digits and '_'; name a file elsewhere on the command line, with --plugin",
)
_DIGEST = matching(_SHA256, "64 hexadecimal digits in lower case")


class PluginConfig(Model):
    """A Python file that defines kinds; short form: its name alone."""

    short_key: ClassVar[str] = "file"
    file: Annotated[str, _FILE_NAME, "Name of the file, in the config's folder."]
    sha256: Annotated[
        Annotated[str, _DIGEST] | None,
        "SHA-256 of the file; another file is refused. Default: any file of this name.",
    ] = None


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
        {"type": "string", "pattern": f"^{FILE}$"},
        mapping(
            ["file"],
            file={"type": "string", "pattern": f"^{FILE}$"},
            sha256={"type": "string", "pattern": f"^{_SHA256}$"},
        ),
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
