"""``dnnstack serve``: a trained network behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import completion, console, options, plugins

_MB, _PORT, _SOME = click.IntRange(1, 10**4), click.IntRange(0, 65535), click.IntRange(1)
_DRAWN = "default: none on this machine's own address, on any other one that is drawn and printed."
_BATCH = "default: data.evaluation_batch_size of the config; 1: each alone, to the last bit."


@click.command(
    short_help="Answer over HTTP.",
    epilog=options.examples(
        "dnnstack serve",
        "dnnstack serve lenet --port 0",
        "dnnstack serve lenet --host 0.0.0.0",
    ),
)
@click.argument("run", required=False, metavar="[RUN|FILE]", shell_complete=completion.sources)
@options.runs_dir("runs")
@options.plugin
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=_PORT, default=8000, show_default=True, help="Port; 0: any free one.")
@click.option("--token", envvar="DNNSTACK_TOKEN", help=f"What clients have to send; {_DRAWN}")
@click.option("--batch", type=_SOME, metavar="N", help=f"Most pictures computed at once; {_BATCH}")
@click.option("--max-mb", type=_MB, default=16, show_default=True, help="Most MB of a request.")
@options.device("auto")
@options.no_graph
def serve(run: str | None, host: str, port: int, token: str | None, **how: Any) -> int:
    """Answer requests over HTTP with a trained network, until Ctrl-C.

    RUN is a run or its folder, of which the best checkpoint is used, or a checkpoint file; default:
    the latest run. POST /predict takes a picture or JSON and answers as predict --json does; GET /
    is a page to try it. The address is printed on standard output, each request on standard error.
    """
    from ..classifier import open_classifier
    from ..exports.listening import Door, listen
    from ..exports.serving import SECONDS, App

    plugins.load(how["plugin"])
    door = Door(host, port, token)
    with door.socket:
        file = Path(run) if run and Path(run).is_file() else None
        where = (None if file else run, file, how["runs_dir"] or Path("runs"))
        machine = (how["device"] or "auto", how["threads"], not how["no_graph"])
        opened: tuple[Any, ...] = (*where, *machine, console.note)
        model = open_classifier(*opened)
        app = App(model, door, how["batch"], how["max_mb"], console.note)
        console.say(door.url)
        if door.drawn:
            console.say(f"token {door.drawn}")
        return listen(app, door, SECONDS)
