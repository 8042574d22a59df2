"""What ``train`` and ``sweep`` are asked for alike, and the command that goes on with either."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.printable import printable
from ..common.records import dataclass
from . import plugins

if TYPE_CHECKING:
    from ..configs import LoadedConfig
    from ..configs.search import Search
    from ..many.planned import Planned
    from ..many.screen import Screen
    from ..many.trainings import Trainings

LATEST = "latest"


@dataclass(frozen=True)
class Asked:
    """The values of the options that both commands have."""

    reference: str
    overrides: tuple[str, ...]
    plugin: tuple[Path, ...]
    resume: str | None
    same_samples: bool
    device: str | None
    threads: int | None
    no_graph: bool
    data_dir: Path | None
    offline: bool
    runs_dir: Path | None
    workers: int | None = field(default=None, kw_only=True)
    together: bool = field(default=False, kw_only=True)
    keys: Mapping[str, object] = field(default_factory=dict, kw_only=True)
    """Values of the config that other options stand for."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The overrides that options stand for."""
        given = {
            **self.keys,
            "run.device": self.device,
            "run.threads": self.threads,
            "run.dir": self.runs_dir and str(self.runs_dir),
        }
        return tuple(f"{key}={json.dumps(value)}" for key, value in given.items() if value)

    @property
    def changes(self) -> tuple[str, ...]:
        """All overrides."""
        return (*self.overrides, *self.flags)

    def words(self, *more: str) -> list[str]:
        """The options to give again, besides the config, its overrides and plugins."""
        where = [] if self.data_dir is None else ["--data-dir", str(self.data_dir)]
        flags = {"--offline": self.offline, "--no-graph": self.no_graph}
        flags["--same-samples"] = self.same_samples
        where += [flag for flag, given in flags.items() if given] + [*more]
        where += [] if self.workers is None else ["--workers", str(self.workers)]
        return where + ["--together"] * self.together

    def again(self, command: str, more: Sequence[str], resume: str | None) -> str:
        """The command that goes on, or starts again if nothing was saved."""
        words = [*plugins.words(self.plugin), *self.words(*more)]
        return again(command, self.reference, self.changes, words, resume)

    def trainings(
        self,
        base: LoadedConfig,
        what: Planned | Search,
        screen: Screen,
        stop: Callable[[], bool],
    ) -> Trainings:
        """Many trainings of the config; see there."""
        from ..configs.load import load_beside
        from ..configs.search import BLOCK
        from ..many.sweep_work import count_of_workers
        from ..many.trainings import Trainings
        from . import downloading

        def load(settings: Sequence[str]) -> LoadedConfig:
            changes = (*self.changes, *settings)
            return load_beside(base, BLOCK, changes, plugins.opened(self.plugin))[0]

        count = count_of_workers(self.workers, base.config, what)
        where = self.data_dir, downloading.policy(self.offline)
        how = self.together, self.resume, not self.no_graph, self.same_samples
        return Trainings(base, load, screen, stop, count, *how, *where)


def again(
    command: str, reference: str, changes: Sequence[str], words: Sequence[str], resume: str | None
) -> str:
    """The command that goes on with ``resume``, or starts again without it."""
    sets = [word for change in changes for word in ("--set", change)]
    path = [] if resume is None else ["--resume"] if resume == LATEST else ["--resume", resume]
    title = "start with" if resume is None else "resume with"
    return line(title, command, "--config", reference, *sets, *words, *path)


def line(title: str, *words: str) -> str:
    """A command of ours, behind a title."""
    return f"{title:<11} {' '.join(map(quoted, ('dnnstack', *words)))}"


def quoted(word: str) -> str:
    """The word as it is typed in a shell; with bytes that are not printable, in bash or zsh."""
    if printable(word) == word:
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    signs = (
        sign if printable(sign) == sign else "".join(f"\\x{b:02x}" for b in os.fsencode(sign))
        for sign in plain
    )
    return f"$'{''.join(signs)}'"
