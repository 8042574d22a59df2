"""Loads a plugin: runs a Python file, and adds the kinds that it defines to those of the package.

Whoever calls this has decided that the file may run; ``plugins.trust`` helps to decide. The bytes
that are run are those that were read, shown and hashed, never read a second time.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from ..common.errors import ConfigError, DnnstackError
from ..common.files import read_regular, sha256_bytes
from ..common.options import kinds_of, options_of
from ..common.text import cut
from ..configs.plugins import Plugin, enter, here
from ..configs.schema.extended import check_options, extend
from ..configs.schema.plugins import FILE
from ..datasets.image_set import Dataset
from ..datasets.registry import DATASETS
from ..graph.augmentations import AUGMENTATIONS, OwnAugmentation
from ..layers.build import LAYERS
from ..layers.layer import Layer
from ..layers.losses import LOSSES
from ..layers.losses.loss import Loss
from ..optimizers import RULES
from ..optimizers.rules import Rule
from ..optimizers.schedules import SCHEDULES
from ..optimizers.schedules.schedule import Schedule

LARGEST = 1 << 20
_LONGEST_LINE = 100
_MODULE = "dnnstack_plugin_"
_KIND = re.compile(r"[a-z][a-z0-9_]{0,39}")
_WORDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "layer": (Layer, LAYERS),
    "loss": (Loss, LOSSES),
    "optimizer": (Rule, RULES),
    "schedule": (Schedule, SCHEDULES),
    "augmentation": (OwnAugmentation, AUGMENTATIONS),
    "dataset": (Dataset, DATASETS),
}
"""What a plugin can define: its base, and those that there are."""


class PluginError(ConfigError):
    """A plugin cannot be read, run or used; the message names the file, and the line if there is
    one."""


@dataclass(frozen=True)
class Code:
    """A plugin that was read and not run."""

    path: Path
    data: bytes

    @property
    def sha256(self) -> str:
        return sha256_bytes(self.data)


def read_plugin(path: Path, sha256: str | None = None) -> Code:
    """The bytes of a plugin, a regular file of at most 1 MiB; ``sha256``: the hash that they must
    have. Raises PluginError."""
    if not re.fullmatch(FILE, path.name):
        raise PluginError(
            f"{path}: a plugin is a Python file whose name has letters, digits and '_' only, such "
            "as my_layers.py"
        )
    try:
        code = Code(path.resolve(), read_regular(path, LARGEST))
    except OSError as error:
        raise PluginError(f"{path}: cannot be read as a plugin: {error.strerror}") from None
    if sha256 not in (None, code.sha256):
        raise PluginError(
            f"{code.path}: has the SHA-256 {code.sha256}, the config asks for {sha256}; if the "
            f"change is wanted, remove sha256 from the config, or name the file: --plugin {path}"
        )
    return code


def load_plugin(path: str | Path) -> Plugin:
    """Run a plugin, unless this process has run the same file, and add its kinds.

    The file is code: it can do whatever you can do. Raises PluginError.
    """
    if not isinstance(path, (str, Path)):
        raise TypeError(f"path: expected a str or a pathlib.Path, got {type(path).__name__}")
    return run_plugin(read_plugin(Path(path)), named=True)


def run_plugin(code: Code, named: bool = False) -> Plugin:
    """The same for a file that was read; ``named``: see Plugin."""
    plugin = Plugin(code.path, code.sha256, named)
    known = here(plugin.file)
    if known is None or (known.path, known.sha256) != (plugin.path, plugin.sha256):
        _add(_kinds(_executed(code), code.path))
    enter(plugin)
    return plugin


def fault_of_plugin(error: BaseException) -> DnnstackError | None:
    """An error that a plugin's code raised, as a message with its place; None for any other."""
    place = _place(error.__traceback__)
    if place is None:
        return None
    path, line, function = place
    return PluginError(
        f"{path}:{line}: {function} failed: {_described(error)}; this is the plugin's code, "
        "not dnnstack's"
    )


def _executed(code: Code) -> ModuleType:
    name = _MODULE + code.path.stem
    module, before = ModuleType(name), sys.modules.get(name)
    module.__file__ = str(code.path)
    # Types in annotations are looked up in the module of their class.
    sys.modules[name] = module
    try:
        # Without this module's own future statements.
        compiled = compile(code.data, str(code.path), "exec", dont_inherit=True)
        exec(compiled, vars(module))
    except BaseException as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _unusable(code.path, error) from None
    return module


def _unusable(path: Path, error: BaseException) -> PluginError:
    """Why a plugin could not be run, with the line of the plugin."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = f": {cut(error.text.strip(), _LONGEST_LINE)}" if error.text else ""
        return PluginError(f"{path}:{error.lineno}: {error.msg}{line}")
    place = _place(error.__traceback__)
    where = f"{path}:{place[1]}" if place else str(path)
    return PluginError(f"{where}: the plugin cannot be loaded: {_described(error)}")


def _place(trace: TracebackType | None) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame that is a plugin's."""
    found = None
    for frame, line in traceback.walk_tb(trace):
        if str(frame.f_globals.get("__name__", "")).startswith(_MODULE):
            found = frame.f_code.co_filename, line, frame.f_code.co_name
    return found


def _described(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _kinds(module: ModuleType, path: Path) -> dict[str, dict[str, type]]:
    """What the module defines, by what it is a kind of. Raises PluginError for what cannot be."""
    found = {word: kinds_of(module, base) for word, (base, _) in _WORDS.items()}
    if not any(found.values()):
        raise PluginError(
            f"{path}: defines no layer, loss, optimizer, schedule, augmentation or data set: no "
            "class that derives from one of these has a 'kind'"
        )
    for word, kinds in found.items():
        for kind, made in kinds.items():
            _check(word, kind, made, path)
    return found


def _check(word: str, kind: Any, made: type, path: Path) -> None:
    where = f"{path}: {word} {made.__name__}"
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise PluginError(f"{where}: kind {kind!r} is not a word such as 'my_{word}'")
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    if inspect.isabstract(made):
        raise PluginError(f"{where}: has no {' and no '.join(missing)}")
    # A file that was changed and is loaded again replaces its own kinds.
    other = _WORDS[word][1].get(kind)
    if other is not None and _module_of(other) != made.__module__:
        raise PluginError(f"{where}: there is a {word} '{kind}' already; give it another kind")
    try:
        check_options(word, kind, made)
        needed = [option.name for option in options_of(made) if option.is_required]
    except Exception as error:
        raise PluginError(f"{where}: its options cannot be used: {_described(error)}") from None
    if word == "dataset" and needed:
        raise PluginError(
            f"{where}: the option '{needed[0]}' needs a default, as in a data set all"
        )


def _module_of(kind: Any) -> str:
    """The module that defines a class, or the class of a data set."""
    return (kind if isinstance(kind, type) else type(kind)).__module__


def _add(found: Mapping[str, Mapping[str, type]]) -> None:
    for word, (_, catalogue) in _WORDS.items():
        made = found[word].items()
        catalogue.update({k: each() for k, each in made} if word == "dataset" else dict(made))
    extend(found)
