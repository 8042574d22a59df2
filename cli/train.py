"""``dnnstack train``: train the network of a config."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..common.machine_load import Others, Watch
from ..common.printable import printable
from ..common.records import dataclass
from ..training.signals import BEGINNING, StopSignals
from . import completion, console, early, many, options, plugins
from . import ranks as several
from .asked import LATEST, Asked, again, line

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..configs import LoadedConfig
    from ..training.listener import Listener, Summary
    from ..training.ranks.team import Team
    from ..training.records.resume import Resume

_AUTO = "auto"
_LOAD = "load"
_GOAL_MISSED = 3


@click.command(
    epilog=options.examples(
        "dnnstack train --config digits.yaml",
        "dnnstack train --config lenet.yaml --data-dir ~/data --set train.epochs=3",
        "dnnstack train --config lenet.yaml --resume",
        "dnnstack train --config lenet.yaml --resume auto",
        "dnnstack train --config lenet.yaml --set train.epochs=20 --resume runs/lenet",
        "dnnstack train --config mine.yaml --init-from runs/lenet",
        "dnnstack train --config lenet.yaml --seeds 5",
    )
)
@options.config()
@options.overrides
@options.plugin
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[PATH]",
    shell_complete=completion.runs,
    help="Continue from the newest checkpoint of the config's latest run, or from PATH: a run's "
    "folder or name, or a checkpoint file; with auto, start if there is no run yet.",
)
@options.same_samples
@options.init_from
@many.option
@options.device("run.device of the config")
@several.option
@click.option(
    "--async",
    "asynchronous",
    is_flag=True,
    help="With --ranks: each worker computes batches of its own, and servers update the parameters "
    "with every gradient as it comes; see dnnstack help parallel.",
)
@options.no_graph
@options.plots_format
@options.data_dir
@options.runs_dir("run.dir of the config")
@options.json_output("JSON Lines: start, log, validation, end; not with --seeds and --folds")
def train(
    *,
    init_from: Path | None,
    seeds: int | None,
    folds: int | None,
    stratified: bool,
    ranks: int | None,
    asynchronous: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Train the network of a config.

    The run gets its own folder, runs/NAME or runs/NAME-2 and so on, with the effective config, the
    log and the checkpoints. Ctrl-C, SIGTERM, and SIGHUP (sent when the terminal is closed) end the
    training after the current step, and it saves; the exit status is then 130, 143 or 129. So do
    SIGUSR1, SIGUSR2 and SIGXCPU, which schedulers of jobs send before the time ends. A second
    Ctrl-C ends it at once. The exit status is 3 if the config has a goal and training did not reach
    it.

    With --seeds and --folds several runs are trained, in the folder of a group, runs/NAME-seeds or
    runs/NAME-folds; --resume goes on with the run that was interrupted, and then with the others.
    """
    keys = {
        "init_from.source": init_from and str(init_from),
        "parallel.mode": "async" if asynchronous else None,
    }
    asked = Asked(**given, keys=keys)
    capture = not asked.no_graph
    if (seeds, folds, ranks) == (None, None, None) and several.is_alone():
        early.open_gpu(asked.device, asked.reference, asked.overrides, capture)
    with early.without_collection():
        from ..configs import load_config  # noqa: F401 - with all that it needs
    wanted = many.planned(seeds, folds, stratified, ranks, asked)
    team = several.joined(ranks, asynchronous)
    if asked.resume not in (None, _AUTO) and init_from is not None:
        raise click.UsageError(
            "--resume and --init-from cannot be used together; a run that goes on has its weights"
        )
    if wanted is not None:
        if as_json:
            raise click.UsageError("--json is for one run; see dnnstack runs --group NAME --json")
        return many.train(asked, wanted)
    if team is not None and team.rank:
        return several.follow(team, asked)
    words = [*([] if ranks is None else ["--ranks", str(ranks)]), *["--async"] * asynchronous]
    status = _One(asked, team, asynchronous, words, Others(), as_json).train()
    if team is not None and team.status is not None:
        team.status = status
    return status


@dataclass(frozen=True)
class _One:
    """One training, of this process or the first of several; ``words``: the options of ranks."""

    asked: Asked
    team: Team | None
    asynchronous: bool
    words: list[str]
    others: Others
    as_json: bool

    def train(self) -> int:
        """Train, and return the exit status."""
        from ..common.errors import Interrupted

        asked = self.asked
        with StopSignals("" if console.is_quiet() else BEGINNING) as stop:
            try:
                loaded, backend, resumed = self._begin(stop)
                from ..reports.loggers import Logged
                from ..training.fitting import fit
                from . import downloading

                with closing(Logged(self._listener(loaded, backend, stop))) as listener:
                    done = fit(
                        loaded,
                        backend,
                        resumed,
                        company=several.company(self.team, loaded.config, backend),
                        listener=listener,
                        stop_requested=stop.requested,
                        data_dir=asked.data_dir,
                        downloads=downloading.policy(asked.offline),
                        same_samples=asked.same_samples,
                    )
            except Interrupted as error:
                self._say(str(error))
                self._say(asked.again("train", self.words, asked.resume))
                return stop.exit_status
            self._tell(done, loaded)
        missed = done.state == "finished" and done.goal is False
        return _GOAL_MISSED if missed else stop.exit_status

    def _begin(self, stop: StopSignals) -> tuple[LoadedConfig, Backend, Resume | None]:
        """The config, its device, and what it continues."""
        from ..common.errors import Interrupted
        from ..configs import load_config
        from ..training.signals import NOTHING_SAVED

        asked, team = self.asked, self.team
        with nullcontext() if team is None else team.together():
            # The config may be a pipe that nobody writes to.
            with stop.raising(Interrupted(NOTHING_SAVED)), early.without_collection():
                loaded = load_config(asked.reference, asked.changes, plugins.opened(asked.plugin))
            with early.without_collection():
                from ..reports import loggers, training_text  # noqa: F401 - used later
                from ..training.fitting import find_resume, open_device
                from . import downloading, progress  # noqa: F401 - used later
            backend = open_device(
                loaded,
                asked.resume is not None,
                not asked.no_graph,
                console.note,
                several.threads(None, team),
            )
            several.note_idle_gpus(backend.name)
            return loaded, backend, find_resume(asked.resume, loaded, console.note)

    def _listener(self, loaded: LoadedConfig, backend: Backend, stop: StopSignals) -> Listener:
        """What shows the training."""
        from ..common.text import versions_text
        from ..reports.callbacks import Told
        from . import progress

        team = self.team
        # Ranks are no other programs to each other.
        advice = "" if team is not None else self.others.advice(backend.waiting_threads)
        advice = console.hourly(_LOAD, advice)
        listener = progress.Quiet() if self.as_json else progress.listener()
        if backend.waiting_threads > 1 and not advice and team is None:
            watch = Watch(backend.waiting_threads)
            listener.advice = lambda: console.hourly(_LOAD, watch())

        def opening() -> None:
            found = "ships with the package" if loaded.packaged else printable(loaded.path)
            if loaded.packaged and loaded.path.stem != loaded.config.name:
                found = f"{loaded.path.name}, {found}"
            progress.remark(f"config      {loaded.config.name} ({found})")
            progress.remark(f"device      {backend.name}: {versions_text(backend.versions())}")
            if team is not None:
                progress.remark(several.described(team, loaded.config))
            if advice:
                console.note(advice)

        listener.under_way = stop.begun
        if self.as_json:
            return Told((progress.JsonLines(),), console.note, heard=listener)
        listener.opening = opening
        return listener

    def _say(self, text: str) -> None:
        """Print a line that is not of the form that was asked for."""
        from . import progress

        (console.note if self.as_json else progress.say)(text)

    def _tell(self, done: Summary, loaded: LoadedConfig) -> None:
        """How the training has ended, and what comes next."""
        from ..reports.plots import draw_curves
        from ..reports.staleness import draw_staleness
        from ..reports.training_text import summary
        from . import progress

        if not self.as_json:
            progress.say(summary(done))
        asked, code = self.asked, plugins.words_of(loaded.config)
        if done.state == "interrupted":
            # The run's own config includes the options, so the command is shorter.
            config = asked.reference
            if asked.changes:
                config = str(done.run / "config.yaml")
            else:
                code = plugins.words(asked.plugin)
            self._say(again("train", config, (), [*code, *asked.words(*self.words)], str(done.run)))
        elif not self.as_json:
            run = [] if _is_latest(done.run) else ["--run", str(done.run)]
            # An evaluation uses the data folder of the run, unless the environment names another.
            named = asked.data_dir is not None and os.environ.get("DNNSTACK_DATA")
            later = ["--data-dir", str(asked.data_dir)] if named else []
            later += ["--offline"] * asked.offline
            progress.remark(line("next", "eval", *run, *code, *later))
        # Last: everything else is saved and printed by now.
        draw_curves(done.run, console.note)
        if self.asynchronous:
            draw_staleness(done.run, console.note)


def _is_latest(run: Path) -> bool:
    """Whether ``eval`` uses this run by default."""
    from ..common.errors import CheckpointError
    from ..training.records.runs import find_run

    try:
        return find_run(None, Path("runs")).samefile(run)
    except CheckpointError:
        return False
