"""Which plugins a config needs, and whether they are here. Nothing is loaded by this module.

A plugin is Python code, so who reads a config decides how it may be got: ``Plugins.beside`` asks a
person, say. Without that, as for the config in a checkpoint, a plugin that is not here is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ..common.errors import ConfigError
from ..common.records import dataclass
from .document import Node
from .schema.plugins import PluginConfig
from .schema.plugins import Plugins as Written
from .schema.run import RunConfig

HOW = "give the file with --plugin"


@dataclass(frozen=True)
class Plugin:
    """A plugin that this process has loaded; ``named``: the user has named the file itself."""

    path: Path
    sha256: str
    named: bool = False

    @property
    def file(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Plugins:
    """What a config may use: plugins that are loaded, and what loads one that lies beside it.

    ``beside`` gets a path and the SHA-256 that the file must have, if the config says so; it raises
    ConfigError for a file that it does not load.
    """

    named: tuple[Plugin, ...] = ()
    beside: Callable[[Path, str | None], Plugin] | None = None


NONE = Plugins()
_HERE: dict[str, Plugin] = {}


def enter(plugin: Plugin) -> None:
    """Note that the kinds of a plugin are known from now on."""
    _HERE[plugin.file] = plugin


def here(file: str) -> Plugin | None:
    """The plugin of this name that this process has loaded last."""
    return _HERE.get(file)


def loaded() -> list[Plugin]:
    """The plugins of this process."""
    return [*_HERE.values()]


def prepare(root: Node, label: str, folder: Path | None, given: Plugins) -> tuple[Plugin, ...]:
    """The plugins of the config in ``root``, which lies in ``folder``, loaded now if need be.

    None if the key is wrong: the schema says so. Raises ConfigError for a plugin that is not here,
    or is another than the config asks for.
    """
    written = root.child("plugins")
    wanted: tuple[PluginConfig, ...] = ()
    if written is not None and not written.broken:
        try:
            wanted = TypeAdapter(Written).validate_python(written.plain())
        except ValidationError:
            return given.named
    named = {plugin.file: plugin for plugin in given.named}
    for each in wanted:
        if each.file in named:
            continue
        assert written is not None
        if folder is None:
            _check_here(each, label)
            continue
        place, path = str(written.place), folder / each.file
        if given.beside is None:
            named[each.file] = _loaded_from(path, place)
            continue
        try:
            named[each.file] = given.beside(path, each.sha256)
        except ConfigError as error:
            raise error.after(f"{place}: plugins: ") from None
    return tuple(named.values())


def _check_here(wanted: PluginConfig, place: str) -> None:
    if here(wanted.file) is None:
        known = f" (SHA-256 {wanted.sha256})" if wanted.sha256 else ""
        raise ConfigError(
            f"{place}: needs the plugin {wanted.file}{known}, which is code and therefore never "
            f"taken from a run: {HOW} {wanted.file}"
        )


def _loaded_from(path: Path, place: str) -> Plugin:
    """The plugin of this file, if it has been loaded."""
    found = here(path.name)
    if found is None or found.path != path.resolve():
        raise ConfigError(
            f"{place}: plugins: {path} is code, which would run with your rights and has not been "
            "loaded; read it, then load it first: dnnstack.load_plugin(path)"
        )
    return found


def with_plugins(config: RunConfig, plugins: tuple[Plugin, ...]) -> RunConfig:
    """The config with the names and hashes of the plugins that it was read with."""
    if not plugins:
        return config
    noted = tuple(PluginConfig(file=each.file, sha256=each.sha256) for each in plugins)
    return config.model_copy(update={"plugins": noted})


def changed_plugins(config: RunConfig) -> list[tuple[Plugin, str]]:
    """The plugins that are here and not as the config noted them, each with the noted hash."""
    pairs = [(here(each.file), each.sha256) for each in config.plugins or ()]
    return [(plugin, sha) for plugin, sha in pairs if plugin and sha and plugin.sha256 != sha]
