"""What the tab key offers for values; docs/commands.md says how to set up a shell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from ..common.files import read_regular
from ..common.printable import printable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..configs import RunConfig

# Sections that may also be given as a name.
_SHORT = ("dataset", "optimizer", "schedule", "loss")
_LONGEST = 1 << 20


class Words(BashComplete):
    """Bash splits words at "=" too; an option's ``key=value`` is one word again."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, typed = super().get_completion_args()
        joined: list[str] = []
        for word in (*words, typed):
            if joined and (word == "=" or joined[-1].endswith("=")):
                joined[-1] += word
            else:
                joined.append(word)
        # With the cursor behind a space, a new word begins.
        return joined[:-1], joined[-1]


add_completion_class(Words)


def configs(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The configs of this folder and of the package; if none match, any file."""
    from ..configs import packaged_configs

    here = {path.name for path in Path().glob("*.y*ml")}
    return _offered(here.union(packaged_configs()), typed, "file")


def runs(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The runs of the folder that ``--runs-dir`` names; if none match, any folder."""
    from ..common.errors import CheckpointError
    from ..training.records.runs import list_runs

    try:
        names = list_runs(ctx.params.get("runs_dir") or Path("runs"))
    except CheckpointError:
        names = []
    return _offered([*["auto"] * (option.name == "resume"), *names], typed, "dir")


def members(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The runs and groups behind the last comma; if none match, any file."""
    from ..many.group import list_groups

    before, comma, last = typed.rpartition(",")
    found = [item for item in runs(ctx, option, last) if item.type == "plain"]
    names = [str(item.value) for item in found]
    names += list_groups(ctx.params.get("runs_dir") or Path("runs"))
    return _offered((f"{before}{comma}{name}" for name in names), typed, "file")


def groups(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The groups of runs; if none match, any folder."""
    from ..many.group import list_groups

    names = list_groups(ctx.params.get("runs_dir") or Path("runs"))
    return _offered([*["auto"] * (option.name == "resume"), *names], typed, "dir")


def reported(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Runs, groups of them, and compressions; if none match, any file."""
    from ..many.group import list_groups
    from ..training.compressed.place import list_compressions

    folder = ctx.params.get("runs_dir") or Path("runs")
    own = [str(item.value) for item in runs(ctx, option, typed) if item.type == "plain"]
    return _offered([*own, *list_groups(folder), *list_compressions(folder)], typed, "file")


def sources(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The same runs; if none match, any file, since a file of weights will do as well."""
    found = runs(ctx, option, typed)
    return [CompletionItem(typed, type="file")] if found[0].type == "dir" else found


def weights(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The same, and torchvision's networks, once something is typed."""
    from ..training.weights.hub import TORCHVISION

    found = [str(item.value) for item in runs(ctx, option, typed) if item.type == "plain"]
    return _offered([*found, *(TORCHVISION if typed else ())], typed, "file")


def files(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Files and folders."""
    return [CompletionItem(typed, type="file")]


def datasets(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The data sets that need no options, by name."""
    from ..common.errors import DatasetError
    from ..datasets import describe, names

    found = []
    for name in names():
        with suppress(DatasetError):
            describe(name, root=Path())
            found.append(name)
    return _offered(found, typed, "file")


def keys(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The keys of a config with ``=``, its layers among them; after it, the words or files."""
    from ..configs import RunConfig

    key, given, value = typed.partition("=")
    config = _config(ctx)
    if not given:
        names = [*_keys_of(RunConfig, chosen=config), *_keys_of_layers(config)]
        return _offered((f"{name}=" for name in names), typed, "file")
    # What the shell replaces is the text behind "=".
    return _offered(_words(RunConfig, config, key.split(".")), value, "file")


def _config(ctx: click.Context) -> RunConfig | None:
    """What ``--config`` names, with the changes in front; None if that would run a plugin."""
    from ..common.errors import DnnstackError
    from ..configs import load_config

    reference, changes = ctx.params.get("reference"), ctx.params.get("overrides") or ()
    # To load one may ask a question, which nobody would see.
    if not reference or _has_plugins(reference) or any("plugins" in each for each in changes):
        return None
    with suppress(DnnstackError):
        return load_config(reference, changes).config
    return None


def _has_plugins(reference: str) -> bool:
    path = Path(reference)
    try:
        return path.is_file() and b"plugins" in read_regular(path, _LONGEST)
    except OSError:
        return True


def _words(model: type[BaseModel], config: RunConfig | None, parts: list[str]) -> Iterator[str]:
    """The kinds, or the words and ``true`` and ``false``, that may be the value of a key."""
    from ..configs.schema.shape import field_models, kinds

    models: list[type[Any]] = [model]
    if parts[0] == "layers" and len(parts) > 2:
        named = dict(_named_layers(config))
        models = [type(named[parts[1]])] if parts[1] in named else []
        parts = parts[2:]
    for part in parts[:-1]:
        models = [inner for each in models for inner in field_models(each, part)]
    for each in models:
        if parts[-1] in each.model_fields:
            for inner in field_models(each, parts[-1]):
                yield from kinds(inner)
            yield from _literals(each.model_fields[parts[-1]].annotation)


def _literals(annotation: Any) -> Iterator[str]:
    if annotation is bool:
        yield from ("true", "false")
    for each in get_args(annotation):
        if isinstance(each, str) and get_origin(annotation) is Literal:
            yield each
        elif each is not annotation:
            yield from _literals(each)


def _keys_of_layers(config: RunConfig | None) -> Iterator[str]:
    for name, layer in _named_layers(config):
        for key in type(layer).model_fields:
            if key not in ("type", "name"):
                yield f"layers.{name}.{key}"


def _named_layers(config: RunConfig | None) -> Iterator[tuple[str, Any]]:
    """The layers with the names by which ``--set`` knows them."""
    seen: Counter[str] = Counter()
    for layer in () if config is None else config.layers:
        seen[layer.type] += 1
        yield layer.name or f"{layer.type}_{seen[layer.type]}", layer


def stages(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The stages of the package and the YAML files of this folder; if none match, any file."""
    from ..configs.stages import packaged_stages

    here = {path.name for path in Path().glob("*.y*ml")}
    return _offered(here.union(packaged_stages()), typed, "file")


def stage_keys(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The keys of the stages that ``--config`` names, with ``=``; after it, files."""
    from ..common.errors import ConfigError
    from ..configs.schema.stages import CompressConfig, StageConfig
    from ..configs.stages import load_stages

    key, given, value = typed.partition("=")
    if given:
        return [CompletionItem(value, type="file")]
    count = 1
    with suppress(ConfigError):
        count = len(load_stages(ctx.params.get("reference") or "").config.stages)
    names = [name for name in _keys_of(CompressConfig) if name != "stages"]
    for number in range(count):
        names += _keys_of(StageConfig, f"stages.{number}.")
    return _offered((f"{name}=" for name in names), typed, "file")


def _keys_of(
    model: type[BaseModel], before: str = "", chosen: BaseModel | None = None
) -> Iterator[str]:
    """Dotted names of all keys: of each section those of the ``chosen`` kind, else of every one."""
    from ..configs.schema.shape import sections_of

    for name, field in model.model_fields.items():
        sections: list[Any] = sections_of(field.annotation)
        now = getattr(chosen, name, None)
        taken: list[Any] = [one for one in sections if type(now) is one]
        for section in taken or sections:
            yield from _keys_of(section, f"{before}{name}.", now if taken else None)
        if not sections or name in _SHORT:
            yield before + name


def _offered(names: Iterable[str], typed: str, otherwise: str) -> list[CompletionItem]:
    # A name with a line break would be several to the shell.
    safe = (name for name in sorted(set(names)) if printable(name) == name)
    found = [CompletionItem(name) for name in safe if name.startswith(typed)]
    # Not both: if paths are completed too, bash drops the names.
    return found or [CompletionItem(typed, type=otherwise)]
