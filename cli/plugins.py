"""``--plugin``, and the question whether a plugin that a config names may run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.printable import printable
from . import console

if TYPE_CHECKING:
    from ..configs import Plugin, Plugins, RunConfig
    from ..plugins.loading import Code

_RUN_FILES = ("checkpoints", "log.jsonl")
"""What tells the folder of a run, which may come from a stranger."""


def opened(paths: Sequence[Path]) -> Plugins:
    """Load the plugins that the command line names; those that a config names are asked for."""
    from ..configs import Plugins

    return Plugins(load(paths), _beside)


def load(paths: Sequence[Path]) -> tuple[Plugin, ...]:
    """Load the plugins that the command line names, which allows them to run."""
    if not paths:
        return ()
    from ..common.errors import UsageError
    from ..plugins.loading import load_plugin

    paths = tuple({path.resolve(): path for path in paths}.values())
    if len({path.name for path in paths}) < len(paths):
        raise UsageError("--plugin: two files have the same name; give each plugin its own")
    return tuple(load_plugin(path) for path in paths)


def words(paths: Sequence[Path]) -> list[str]:
    """The options that name these plugins again."""
    return [word for path in paths for word in ("--plugin", str(path))]


def words_of(config: RunConfig) -> list[str]:
    """The options that name the plugins of a config that was read in this process."""
    from ..configs.plugins import here

    found = [here(each.file) for each in config.plugins or ()]
    paths = [plugin.path for plugin in found if plugin is not None]
    own = Path.cwd()
    return words([p.relative_to(own) if p.is_relative_to(own) else p for p in paths])


def _beside(path: Path, sha256: str | None) -> Plugin:
    """Load a plugin that a config of the same folder names, if it may run."""
    from ..configs.plugins import here
    from ..plugins.loading import PluginError, read_plugin, run_plugin
    from ..plugins.trust import is_trusted

    if any(os.path.exists(path.parent / name) for name in _RUN_FILES):
        raise PluginError(
            f"{path}: plugins are not taken from the folder of a run; name the file that you "
            f"trust: --plugin {path.name}"
        )
    if not os.path.exists(path):
        raise PluginError(
            f"{path}: the config needs this plugin, which is not in its folder; name the file: "
            f"--plugin PATH/{path.name}"
        )
    code = read_plugin(path, sha256)
    known = here(path.name)
    loaded = known is not None and (known.path, known.sha256) == (code.path, code.sha256)
    if not loaded and not is_trusted(code):
        _ask(code)
    return run_plugin(code)


def _ask(code: Code) -> None:
    """Ask on a terminal, and remember the answer. Raises PluginError if the plugin may not run."""
    from ..plugins.loading import PluginError
    from ..plugins.trust import remember, state_dir

    lines = code.data.count(b"\n")
    about = f"{code.path} ({lines} lines, SHA-256 {code.sha256})"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise PluginError(
            f"{about}: the config names this plugin, whose code would run with your rights; read "
            f"it, then allow it: --plugin {code.path}"
        )
    if not console.confirm(
        f"The config names the plugin {printable(about)}. Its code can do whatever you can do.",
        "Have you read it, and may it run from now on?",
    ):
        raise PluginError(f"{code.path}: the plugin was not allowed, so nothing was run")
    try:
        remember(code)
    except OSError as error:
        console.note(
            f"{state_dir()}: the answer cannot be remembered: {error.strerror}; you may be asked "
            "again"
        )
