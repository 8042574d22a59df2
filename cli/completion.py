"""What the tab key offers for values; docs/commands.md says how to set up a shell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

from ..common.printable import printable

if TYPE_CHECKING:
    from pydantic import BaseModel

# Sections that may also be given as a name.
_SHORT = ("dataset", "optimizer", "schedule", "loss")


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
    return _offered(names, typed, "dir")


def members(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The runs and groups behind the last comma; if none match, any file."""
    from ..training.groups.group import list_groups

    before, comma, last = typed.rpartition(",")
    found = [item for item in runs(ctx, option, last) if item.type == "plain"]
    names = [str(item.value) for item in found]
    names += list_groups(ctx.params.get("runs_dir") or Path("runs"))
    return _offered((f"{before}{comma}{name}" for name in names), typed, "file")


def groups(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The groups of runs; if none match, any folder."""
    from ..training.groups.group import list_groups

    return _offered(list_groups(ctx.params.get("runs_dir") or Path("runs")), typed, "dir")


def sources(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The same runs; if none match, any file, since a file of weights will do as well."""
    found = runs(ctx, option, typed)
    return [CompletionItem(typed, type="file")] if found[0].type == "dir" else found


def files(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Files and folders."""
    return [CompletionItem(typed, type="file")]


def datasets(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The data sets by name."""
    from ..datasets import names

    return _offered(names(), typed, "file")


def keys(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The keys of a config with ``=``; after it, the words and files that may follow."""
    from ..configs import RunConfig

    key, given, value = typed.partition("=")
    if not given:
        return _offered((f"{name}=" for name in _keys_of(RunConfig)), typed, "file")
    # What the shell replaces is the text behind "=".
    return [CompletionItem(value, type="file")]


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


def _keys_of(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Dotted names of all keys: for each section, those of all its kinds."""
    for name, field in model.model_fields.items():
        kind = field.annotation
        sections = [one for one in (kind, *get_args(kind)) if hasattr(one, "model_fields")]
        for section in sections:
            yield from _keys_of(section, f"{before}{name}.")
        if not sections or name in _SHORT:
            yield before + name


def _offered(names: Iterable[str], typed: str, otherwise: str) -> list[CompletionItem]:
    # A name with a line break would be several to the shell.
    safe = (name for name in sorted(set(names)) if printable(name) == name)
    found = [CompletionItem(name) for name in safe if name.startswith(typed)]
    # Not both: if paths are completed too, bash drops the names.
    return found or [CompletionItem(typed, type=otherwise)]
