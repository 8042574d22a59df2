"""``dnnstack sweep``: a search for the best values of a config's keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..common.printable import printable
from . import completion, console, options, plugins
from .signals import StopSignals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..configs import LoadedConfig
    from ..training.groups.journal import Trial
    from ..training.listener import Summary
    from ..training.records.resume import Resume

_LATEST = "latest"
_ENDING = "dnnstack: will save and end after this step; Ctrl-C again ends now, without saving\n"


@click.command(
    epilog=options.examples(
        "dnnstack sweep --config sweep.yaml",
        "dnnstack sweep --config sweep.yaml --resume",
        "dnnstack sweep --config sweep.yaml --set train.epochs=2 --json",
    )
)
@options.config()
@options.overrides
@options.plugin
@click.option(
    "--resume",
    is_flag=False,
    flag_value=_LATEST,
    metavar="[NAME]",
    shell_complete=completion.groups,
    help="Go on with the config's latest sweep, or with NAME, or take part in it: several "
    "processes may work on one sweep, each with this option.",
)
@options.json_output("one JSON object at the end")
@options.device("run.device of the config")
@options.no_graph
@options.data_dir
@options.runs_dir("run.dir of the config")
def sweep(
    reference: str,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    resume: str | None,
    as_json: bool,
    device: str | None,
    threads: int | None,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
    runs_dir: Path | None,
) -> int:
    """Search for the best values of a config's keys, judged on validation.

    The config has a block search, which names the keys with their ranges or values, the objective
    and a budget; see docs/groups.md. Every trial is a run in the folder of the sweep,
    runs/NAME-sweep, which also receives best.yaml, the config of the best trial. The test set is
    never read. A sweep that was interrupted or killed goes on with --resume, to the same trials.
    """
    from ..common.errors import Interrupted
    from ..configs.load import load_beside
    from ..configs.search import BLOCK, load_search
    from ..configs.validate import safe_name
    from ..fitting import fit, open_device
    from ..reports.sweep_text import as_text, trial_line
    from ..training.groups.sampling import need_optuna
    from ..training.groups.sweeping import (
        Pruning,
        Sweep,
        begin_sweep,
        best_trials,
        go_on_with,
        report,
        settings_of_trial,
        values_of,
        write_best,
    )
    from ..training.interrupt import NOTHING_SAVED
    from . import downloading, progress

    given = {"run.device": device, "run.threads": threads, "run.dir": runs_dir and str(runs_dir)}
    flags = tuple(f"{key}={json.dumps(value)}" for key, value in given.items() if value)
    changes = (*overrides, *flags)
    need_optuna()
    with StopSignals("" if console.is_quiet() else _ENDING) as stop:
        path = None
        try:
            with stop.raising(Interrupted(NOTHING_SAVED)):
                base, search = load_search(reference, changes, lambda: plugins.opened(plugin))
            backend = open_device(base, False, not no_graph, console.note)
            if resume is None:
                path = begin_sweep(base.config, search)
            else:
                path = go_on_with(base.config, search, None if resume == _LATEST else resume)
            folder, found = path, Sweep(path, search)
            if not as_json:
                progress.remark(f"sweep       {printable(path)}")

            def loaded(settings: Sequence[str]) -> LoadedConfig:
                code = plugins.opened(plugin)
                return load_beside(reference, BLOCK, (*changes, *settings), code)[0]

            def train(
                trial: Trial, resumed: Resume | None, decide: Callable[[], bool]
            ) -> tuple[Summary, bool]:
                # Hundreds of trainings; a line for each is enough.
                heard = Pruning(progress.Quiet(), decide)
                done = fit(
                    loaded(settings_of_trial(folder, trial)),
                    backend,
                    resumed,
                    listener=heard,
                    stop_requested=lambda: stop.requested() or heard.pruned,
                    data_dir=data_dir,
                    downloads=downloading.policy(offline),
                )
                return done, heard.pruned

            def tell(trial: Trial) -> None:
                best = best_trials(search, found.journal.read())
                first = trial.values is not None and trial.number == best[0].number
                if first:
                    own = f"name={safe_name(base.config.name + '-best')}"
                    write_best(folder, loaded([*values_of(trial), own]).config)
                if not as_json:
                    progress.remark(trial_line(search, trial, first))

            for trial in found.run(train, console.note):
                tell(trial)
                if stop.requested():
                    break
        except Interrupted as error:
            if path is None:
                raise
            console.note(str(error))
        if path is None:
            return stop.exit_status
        found = Sweep(path, search)
        if as_json:
            console.say(json.dumps(report(found)))
        else:
            progress.say(as_text(found, console.width() or 80))
        progress.check_output()
    return stop.exit_status
