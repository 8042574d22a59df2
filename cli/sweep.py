"""``dnnstack sweep``: a search for the best values of a config's keys."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from ..common.printable import printable
from ..configs.find import packaged_searches
from ..training.signals import ENDING, StopSignals
from . import completion, console, options, plugins
from .together import option as together_option
from .train import quoted

_LATEST = "latest"


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
    flag_value=_LATEST,
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
@together_option
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
    same_samples: bool,
    workers: int | None,
    together: bool,
    as_json: bool,
    device: str | None,
    threads: int | None,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
    runs_dir: Path | None,
) -> int:
    """Search for the best values of a config's keys.

    The config has a block search, which names the keys with their ranges or values, the objective
    and a budget; see docs/groups.md, and lenet-search.yaml of the package, an example. Every trial
    is a run in the folder of the sweep, runs/NAME-sweep, which also receives best.yaml, the config
    of the best trial. Trials are judged on validation; the test set is never read. A sweep that was
    interrupted or killed goes on with --resume.
    """
    from ..common.errors import Interrupted
    from ..configs.search import load_search
    from ..many.sampling import need_optuna
    from ..many.sweeping import (
        Sweep,
        begin_sweep,
        go_on_with,
    )
    from ..reports.sweep_report import described
    from ..reports.sweep_text import as_text
    from ..training.interrupt import NOTHING_SAVED
    from . import downloading, progress
    from .sweep_screen import Screen
    from .sweep_work import Job, count_of_workers
    from .together import Together, check_together
    from .workers import Crew

    given = {"run.device": device, "run.threads": threads, "run.dir": runs_dir and str(runs_dir)}
    flags = tuple(f"{key}={json.dumps(value)}" for key, value in given.items() if value)
    changes = (*overrides, *flags)
    need_optuna()
    with StopSignals("" if console.is_quiet() else ENDING) as stop:
        with stop.raising(Interrupted(NOTHING_SAVED)):
            base, search = load_search(reference, changes, lambda: plugins.opened(plugin))
        if search.sampler == "nsga2" and (search.trials or math.inf) <= search.population:
            console.note(
                f"nsga2 draws the first {search.population} trials at random, so all "
                f"{search.trials} of this search; use more, or a smaller search.sampler.population"
            )
        count = count_of_workers(workers, base.config, search)
        job = Job(
            changes, lambda: plugins.opened(plugin), base, search, not no_graph, data_dir,
            downloading.policy(offline), count, same_samples,
        )  # fmt: skip
        # Forked later, a worker could not use a device that is open here.
        backend = job.device(console.note) if count == 1 or together else None
        if backend is not None and together:
            check_together(backend.name, workers)
        if backend is None:
            job.try_device()
        if count > 1:
            job.read_data(stop.requested)
        if resume is None:
            path = begin_sweep(base.config, search)
        else:
            path = go_on_with(base.config, search, None if resume == _LATEST else resume)
        sweep = Sweep(path, search, stop.requested)
        screen = Screen(sweep, as_json)
        if not as_json:
            progress.remark(f"sweep       {printable(path)}")
            if count > 1:
                how = "in one process" if together else f"threads of each: {job.threads}"
                progress.remark(f"workers     {count}, {how}")
        screen.open()
        try:
            if count == 1:

                def ends() -> bool:
                    screen.turn()
                    return stop.requested()

                job.work(sweep, screen.hear, screen.note, ends, backend)
            elif backend is not None:
                Together(
                    backend.name,
                    lambda say, ends: job.work(sweep, say, screen.note, ends),
                    screen.hear,
                    screen.turn,
                    stop,
                ).run(count)
            else:
                Crew(
                    lambda say, ends: job.work(sweep, say, console.note, ends),
                    screen.hear,
                    screen.turn,
                    sweep.give_up,
                    stop,
                ).run(count)
        except Interrupted as error:
            console.note(str(error))
        finally:
            screen.refresh()
            screen.close()
        if as_json:
            console.say(json.dumps(described(path, search, sweep.journal.read())))
        else:
            progress.say(as_text(path, search, sweep.journal.read(), console.width() or 80))
            if stop.requested():
                words = [word for change in changes for word in ("--set", change)]
                words += [word for file in plugin for word in ("--plugin", str(file))]
                words += [] if data_dir is None else ["--data-dir", str(data_dir)]
                words += [*["--offline"] * offline, *["--no-graph"] * no_graph]
                words += [] if workers is None else ["--workers", str(workers)]
                words += [*["--together"] * together, *["--same-samples"] * same_samples]
                line = ("dnnstack", "sweep", "--config", reference, *words, "--resume", str(path))
                progress.say(f"resume with {' '.join(map(quoted, line))}")
            elif any(trial.values is not None for trial in sweep.journal.read()):
                progress.remark(f"next        dnnstack report {quoted(str(path))}")
        states = {trial.state for trial in sweep.journal.read()}
        if states == {"failed"} and not stop.requested():
            console.error(f"{printable(path)}: every trial failed")
            return 1
    return stop.exit_status
