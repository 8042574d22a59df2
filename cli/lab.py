"""``dnnstack lab``: a kernel of a student's own takes the place of one operation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import completion, console, options, plugins
from .asked import line

if TYPE_CHECKING:
    from ..backends.select import Device
    from ..configs import LoadedConfig
    from ..reports.explain import Explanation


@click.command(
    short_help="Try a kernel of your own.",
    epilog=options.examples(
        "dnnstack lab new conv2d --language cuda",
        "dnnstack lab run conv2d.cu",
        "dnnstack lab run conv2d.cu --config lenet.yaml --epochs 1",
        "dnnstack lab grade handed-in --config lenet.yaml > grades.csv",
    ),
)
@click.argument("action", type=click.Choice(["new", "run", "grade"]))
@click.argument("name", metavar="NAME", shell_complete=completion.files)
@click.option(
    "--language",
    type=click.Choice(["c", "cuda", "python"]),
    default="c",
    help="Of the file that new writes; default: c.",
)
@click.option("--overwrite", is_flag=True, help="Let new replace the file if it exists.")
@options.config(required=False)
@options.overrides
@options.plugin
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let run train the network of --config for N epochs with the kernel.",
)
@click.option(
    "--limit",
    type=click.FloatRange(min=0.1, max=3600),
    default=10.0,
    metavar="SECONDS",
    help="End a kernel that takes longer for what it is tried with; default: 10.",
)
@options.json_output("one JSON object; of grade one for each line")
@options.device("run.device of the config")
def lab(
    action: str,
    name: str,
    reference: str | None,
    epochs: int | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Try a kernel of your own in the place of the library's call.

    With new, NAME is an operation, and a file is written with a right and slow kernel: conv2d,
    conv2d_backward_data, conv2d_backward_filter, matmul, max_pool2d, relu, loss or update. With
    run it is such a file: it is compiled and compared with the reference in drawn sizes; with
    --config also in those of a training step, beside the library's time. With grade it is a folder
    of such files, and CSV is printed: what is right, its time over the library's, seconds. The
    files are code that runs with your rights, in a process of its own. All calls are computed
    without fusion.
    """
    if action == "new":
        return _new(name, as_json, **given)
    if epochs and (action != "run" or reference is None):
        raise click.UsageError("--epochs needs run and --config")
    if action == "grade":
        return _grade(Path(name), reference, as_json, **given)
    return _run(Path(name), reference, epochs, as_json, **given)


def _new(name: str, as_json: bool, language: str, overwrite: bool, **_: Any) -> int:
    from ..lab.skeleton import write

    path = write(name, language, overwrite)
    if as_json:
        console.say(json.dumps({"path": str(path)}))
    else:
        console.tell(f"wrote {path}", "\n", line("next", "lab", "run", str(path)))
    return 0


def _run(path: Path, reference: str | None, epochs: int | None, as_json: bool, **given: Any) -> int:
    from ..lab.in_place import in_place
    from ..lab.program import opened
    from ..lab.running import report, timed

    loaded = _loaded(reference, **given) if reference else None
    with opened(path, given["limit"]) as program:
        found = report(program)
        if loaded is not None:
            found = replace(found, timed=timed(program, _explained(loaded, **given)))
        console.show(found, as_json, found.as_text)
        if loaded is None or not epochs:
            return 0
        from .main import main

        words = [word for change in loaded.overrides for word in ("--set", change)]
        words += ["--set", f"train.epochs={epochs}", *plugins.words(given["plugin"])]
        for name in ("device", "threads"):
            words += [f"--{name}", str(given[name])] if given[name] else []
        words += ["--json"] * as_json + ["--quiet"] * console.is_quiet()
        with in_place(program):
            return main(["train", "--config", str(reference), *words])


def _grade(folder: Path, reference: str | None, as_json: bool, **given: Any) -> int:
    from ..lab.running import COLUMNS, graded
    from ..reports.predict_text import csv_row

    if reference is None:
        raise click.UsageError("grade needs --config, whose sizes are timed")
    explanation = _explained(_loaded(reference, **given), **given)
    if not as_json:
        console.write(csv_row(COLUMNS))
    for row in graded(folder, given["limit"], explanation):
        text = json.dumps(dict(zip(COLUMNS, row, strict=True))) if as_json else csv_row(row)
        console.write(text)
    return 0


def _loaded(
    reference: str, overrides: tuple[str, ...], plugin: tuple[Path, ...], **_: Any
) -> LoadedConfig:
    """A config whose operations are those that a kernel can compute."""
    from ..configs import load_config

    return load_config(reference, (*overrides, "run.fusion=false"), plugins.opened(plugin))


def _explained(
    loaded: LoadedConfig, device: Device | None, threads: int | None, **_: Any
) -> Explanation:
    """A step of a config, measured."""
    from ..backends.select import open_backend
    from ..configs import placed
    from ..reports.explain import explain

    run = loaded.config.run
    backend = open_backend(device or run.device, threads or run.threads, console.note)
    with placed(loaded):
        return explain(loaded.config, loaded.path, backend, True, console.note)
