"""What the tab key offers for values; docs/commands.md says how to set up a shell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem


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


def _offered(names: Iterable[str], typed: str, otherwise: str) -> list[CompletionItem]:
    found = [CompletionItem(name) for name in sorted(names) if name.startswith(typed)]
    # Not both: if paths are completed too, bash drops the names.
    return found or [CompletionItem(typed, type=otherwise)]
