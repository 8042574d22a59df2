"""``dnnstack sweep``: a search for the best values of a config's keys."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from ..common.printable import printable
from ..configs.find import packaged_searches
from ..training.signals import ENDING, StopSignals
from . import completion, console, options, plugins
from .asked import LATEST, Asked, line
from .many import together

if TYPE_CHECKING:
    from ..many.journal import State
    from .sweep_screen import SweepScreen


@click.command(
    epilog=options.examples(
        "dnnstack sweep --config sweep.yaml",
        "dnnstack sweep --config sweep.yaml --resume",
        "dnnstack sweep --config sweep.yaml --workers 1",
        "dnnstack sweep --config sweep.yaml --set train.epochs=2 --json",
    )
)
@options.config(more=packaged_searches())
@options.overrides
@options.plugin
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[NAME]",
    shell_complete=completion.groups,
    help="Go on with the config's latest sweep, or with NAME, or take part in it: processes on "
    "several machines may work on one sweep, each started with this option; with auto, the first "
    "of them begins it.",
)
@options.same_samples
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=1024),
    metavar="N",
    help="Train N trials at a time, each in a process with its share of the cores; default: on a "
    "CPU as many as cores, with one thread each, on a GPU 1. With 1, the same seed makes the same "
    "trials.",
)
@together
@options.json_output("one JSON object at the end")
@options.device("run.device of the config")
@options.no_graph
@options.plots_format
@options.data_dir
@options.runs_dir("run.dir of the config")
def sweep(*, as_json: bool, **given: Any) -> int:
    """Search for the best values of a config's keys.

    The config has a block search, which names the keys with their ranges or values, the objective
    and a budget; see dnnstack help groups, and lenet-search.yaml of the package, an example. Every
    trial is a run in the folder of the sweep, runs/NAME-sweep, which also receives best.yaml, the
    config of the best trial. Trials are judged on validation; the test set is never read. A sweep
    that was interrupted or killed goes on with --resume.
    """
    from ..common.errors import Interrupted
    from ..configs.search import load_search
    from ..many.sampling import need_optuna
    from ..many.sweep_work import run_sweep
    from ..training.signals import NOTHING_SAVED
    from .sweep_screen import SweepScreen

    asked = Asked(**given)
    need_optuna()
    with StopSignals("" if console.is_quiet() else ENDING) as stop:
        with stop.raising(Interrupted(NOTHING_SAVED)):
            base, search = load_search(
                asked.reference, asked.changes, lambda: plugins.opened(asked.plugin)
            )
        if search.sampler == "nsga2" and (search.trials or math.inf) <= search.population:
            console.note(
                f"nsga2 draws the first {search.population} trials at random, so all "
                f"{search.trials} of this search; use more, or a smaller search.sampler.population"
            )
        screen = SweepScreen(search, as_json)
        trainings = asked.trainings(base, search, screen, stop.requested)
        try:
            run_sweep(trainings, search)
        except Interrupted as error:
            if screen.path is None:
                raise
            console.note(str(error))
        states = _tell(screen, as_json, asked, stop.requested())
        if states == {"failed"} and not stop.requested():
            console.error(f"{printable(screen.path)}: every trial failed")
            return 1
    return stop.exit_status


def _tell(screen: SweepScreen, as_json: bool, asked: Asked, stopped: bool) -> set[State | None]:
    """What the sweep has found, and what comes next; returns how its trials have ended."""
    from ..many.journal import Journal
    from ..reports.sweep_report import described
    from ..reports.sweep_text import as_text
    from ..reports.tables import WIDTH
    from . import progress

    path, search = screen.path, screen.search
    assert path is not None
    trials = Journal(path, search).read()
    if as_json:
        console.say(json.dumps(described(path, search, trials)))
    else:
        progress.say(as_text(path, search, trials, console.width() or WIDTH))
        if stopped:
            progress.say(asked.again("sweep", (), str(path)))
        elif any(trial.values is not None for trial in trials):
            progress.remark(line("next", "report", str(path)))
    return {trial.state for trial in trials}
