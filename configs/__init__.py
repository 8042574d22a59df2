"""The YAML configuration: its schema, its loader, and the configs that ship with the package.

Names are resolved on first use, so that importing this package costs nothing (no pydantic yet).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .find import packaged_configs as packaged_configs
    from .load import LoadedConfig as LoadedConfig
    from .load import load_config as load_config
    from .load import load_mapping as load_mapping
    from .load import parse_config as parse_config
    from .places import placed as placed
    from .plugins import Plugin as Plugin
    from .plugins import Plugins as Plugins
    from .schema.json_schema import json_schema as json_schema
    from .schema.run import RunConfig as RunConfig
    from .write import differences as differences
    from .write import effective_yaml as effective_yaml

_HOMES = {
    "RunConfig": "schema.run",
    "LoadedConfig": "load",
    "load_config": "load",
    "load_mapping": "load",
    "parse_config": "load",
    "packaged_configs": "find",
    "placed": "places",
    "Plugin": "plugins",
    "Plugins": "plugins",
    "effective_yaml": "write",
    "differences": "write",
    "json_schema": "schema.json_schema",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
