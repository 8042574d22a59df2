"""``dnnstack train``: train the network of a config."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import closing, nullcontext
from pathlib import Path

import click

from ..common.machine_load import Others, Watch
from ..common.printable import printable
from ..training.signals import (
    BEGINNING,
    ENDING,
    StopSignals,
)
from . import completion, console, early, many, options, plugins
from . import ranks as several

_LATEST, _AUTO = "latest", "auto"
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
    flag_value=_LATEST,
    metavar="[PATH]",
    shell_complete=completion.runs,
    help="Continue from the newest checkpoint of the config's latest run, or from PATH: a run's "
    "folder or name, or a checkpoint file; with auto, start if there is no run yet.",
)
@options.same_samples
@click.option(
    "--init-from",
    type=options.Named(),
    metavar="RUN|FILE",
    shell_complete=completion.sources,
    help="Begin with the weights of this run, or of this .safetensors file, as far as they fit by "
    "name and shape; see docs/finetuning.md.",
)
@many.option
@options.device("run.device of the config")
@several.option
@click.option(
    "--async",
    "asynchronous",
    is_flag=True,
    help="With --ranks: each worker computes batches of its own, and servers update the parameters "
    "with every gradient as it comes; see docs/parallel.md.",
)
@options.no_graph
@options.data_dir
@options.runs_dir("run.dir of the config")
def train(
    reference: str,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    resume: str | None,
    same_samples: bool,
    init_from: Path | None,
    seeds: int | None,
    folds: int | None,
    stratified: bool,
    workers: int | None,
    together: bool,
    device: str | None,
    threads: int | None,
    ranks: int | None,
    asynchronous: bool,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
    runs_dir: Path | None,
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
    if (seeds, folds, ranks) == (None, None, None) and several.is_alone():
        early.open_gpu(device, reference, overrides, not no_graph)
    with early.without_collection():
        from ..common.errors import Interrupted
        from ..configs import load_config
        from ..training.interrupt import NOTHING_SAVED

    wanted = many.planned(seeds, folds, stratified, workers, ranks)
    if together and wanted is None:
        raise click.UsageError("--together needs --seeds or --folds")
    team = several.joined(ranks, asynchronous)
    others = Others()
    if resume not in (None, _AUTO) and init_from is not None:
        raise click.UsageError(
            "--resume and --init-from cannot be used together; a run that goes on has its weights"
        )
    given = {
        "init_from.source": init_from and str(init_from),
        "parallel.mode": "async" if asynchronous else None,
        "run.device": device,
        "run.threads": threads,
        "run.dir": runs_dir and str(runs_dir),
    }
    flags = tuple(f"{key}={json.dumps(value)}" for key, value in given.items() if value)
    where = ["--data-dir", str(data_dir)] if data_dir is not None else []
    code = plugins.words(plugin)
    # An evaluation uses the data folder of the run, unless the environment names another.
    later = where if os.environ.get("DNNSTACK_DATA") else []
    where, later = ([*each, *["--offline"] * offline] for each in (where, later))
    where += [] if ranks is None else ["--ranks", str(ranks)]
    where += [*["--async"] * asynchronous, *["--same-samples"] * same_samples]
    if wanted is not None:
        words = [f"--{wanted.kind}", str(wanted.count), *["--stratified"] * wanted.stratified]
        words += [] if workers is None else ["--workers", str(workers)]
        words += ["--together"] * together
        return many.train(
            wanted, workers, together, reference, (*overrides, *flags), plugin, resume,
            same_samples, no_graph, data_dir, offline,
            "" if console.is_quiet() else ENDING,
            lambda path: _again([*code, *where, *words], reference, overrides, flags, path),
        )  # fmt: skip
    if team is not None and team.rank:
        changes = (*overrides, *flags)
        return several.follow(team, reference, changes, plugin, no_graph, data_dir, offline)
    with StopSignals("" if console.is_quiet() else BEGINNING) as stop:
        try:
            with nullcontext() if team is None else team.together():
                # The config may be a pipe that nobody writes to.
                with stop.raising(Interrupted(NOTHING_SAVED)), early.without_collection():
                    loaded = load_config(reference, (*overrides, *flags), plugins.opened(plugin))
                if resume is None and team is None:
                    early.read_data(loaded.config, data_dir)
                # Only now, while a thread reads the data.
                with early.without_collection():
                    from ..common.text import versions_text
                    from ..reports.live_curves import LiveCurves
                    from ..reports.plots import draw_curves
                    from ..reports.staleness import draw_staleness
                    from ..reports.training_text import summary
                    from ..training.fitting import find_resume, fit, open_device
                    from . import downloading, progress
                backend = open_device(
                    loaded,
                    resume is not None,
                    not no_graph,
                    console.note,
                    several.threads(None, team),
                )
                several.note_idle_gpus(backend.name)
                resumed = find_resume(resume, loaded, console.note)
            # Ranks are no other programs to each other.
            advice = "" if team is not None else others.advice(backend.waiting_threads)
            advice = console.hourly(_LOAD, advice)
            listener = progress.listener()
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

            listener.opening, listener.under_way = opening, stop.begun
            with closing(listener):
                done = fit(
                    loaded,
                    backend,
                    resumed,
                    company=several.company(team, loaded.config, backend),
                    listener=LiveCurves(listener),
                    stop_requested=stop.requested,
                    data_dir=data_dir,
                    downloads=downloading.policy(offline),
                    same_samples=same_samples,
                )
        except Interrupted as error:
            from . import progress

            progress.say(str(error))
            progress.say(_again([*code, *where], reference, overrides, flags, resume))
            return stop.exit_status
        progress.say(summary(done))
        if done.state == "interrupted":
            # The run's own config includes the options, so the command is shorter.
            config = reference
            if overrides or flags:
                config, code = str(done.run / "config.yaml"), plugins.words_of(loaded.config)
            progress.say(_again([*code, *where], config, (), (), str(done.run)))
        else:
            run = [] if _is_latest(done.run) else ["--run", str(done.run)]
            later = [*plugins.words_of(loaded.config), *later]
            progress.remark(_command("next", "eval", *run, *later))
        # Last: everything else is saved and printed by now.
        draw_curves(done.run, console.note)
        if asynchronous:
            draw_staleness(done.run, console.note)
    missed = done.state == "finished" and done.goal is False
    status = _GOAL_MISSED if missed else stop.exit_status
    if team is not None and team.status is not None:
        team.status = status
    return status


def _again(
    where: list[str],
    config: str,
    overrides: tuple[str, ...],
    flags: tuple[str, ...],
    resume: str | None,
) -> str:
    """The command that continues the training, or starts it again if nothing was saved."""
    changes = [word for change in (*overrides, *flags) for word in ("--set", change)]
    path = [] if resume is None else ["--resume"] if resume == _LATEST else ["--resume", resume]
    title = "start with" if resume is None else "resume with"
    return _command(title, "train", "--config", config, *changes, *where, *path)


def _command(title: str, *words: str) -> str:
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


def _is_latest(run: Path) -> bool:
    """Whether ``eval`` uses this run by default."""
    from ..common.errors import CheckpointError
    from ..training.records.runs import find_run

    try:
        return find_run(None, Path("runs")).samefile(run)
    except CheckpointError:
        return False
