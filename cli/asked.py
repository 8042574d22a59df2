"""What ``train`` and ``sweep`` are asked for alike, and the command that goes on with either."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.printable import printable
from ..common.records import dataclass
from . import plugins

if TYPE_CHECKING:
    from ..configs import LoadedConfig
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
    keys: Mapping[str, object]
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
        return [*where, *(flag for flag, given in flags.items() if given), *more]

    def again(self, command: str, more: Sequence[str], resume: str | None) -> str:
        """The command that goes on, or starts again if nothing was saved."""
        words = [*plugins.words(self.plugin), *self.words(*more)]
        return again(command, self.reference, self.changes, words, resume)

    def trainings(
        self,
        base: LoadedConfig,
        load: Callable[[Sequence[str]], LoadedConfig],
        screen: Screen,
        stop: Callable[[], bool],
        count: int,
        together: bool,
    ) -> Trainings:
        """Many trainings of the config; see there."""
        from ..many.trainings import Trainings
        from . import downloading

        return Trainings(
            base,
            load,
            screen,
            stop,
            count,
            together,
            resuming=self.resume is not None,
            capture=not self.no_graph,
            same_samples=self.same_samples,
            data_dir=self.data_dir,
            downloads=downloading.policy(self.offline),
        )


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
