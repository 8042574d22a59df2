"""What the tab key offers for values; docs/commands.md says how to set up a shell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ..common.printable import printable


def configs(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The configs of this folder and of the package; if none match, any file."""
    from ..configs import packaged_configs

    here = {path.name for path in Path().glob("*.y*ml")}
    return _offered(here.union(packaged_configs()), typed, "file")


def runs(ctx: click.Context, option: click.Parameter, typed: str) -> list[CompletionItem]:
    """The runs of the folder that ``--runs-dir`` names; if none match, any folder."""
    from ..training.records.runs import list_runs

    return _offered(list_runs(ctx.params.get("runs_dir") or Path("runs")), typed, "dir")


def _offered(names: Iterable[str], typed: str, otherwise: str) -> list[CompletionItem]:
    # A name with a line break would be several to the shell.
    safe = (name for name in sorted(names) if printable(name) == name)
    found = [CompletionItem(name) for name in safe if name.startswith(typed)]
    # Not both: if paths are completed too, bash drops the names.
    return found or [CompletionItem(typed, type=otherwise)]
