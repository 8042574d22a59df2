"""``dnnstack look`` and ``dnnstack why``: what a network learned to see, and why it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import completion, console, ensembles, options, plugins

if TYPE_CHECKING:
    from ..classifier import Classifier

_METHODS = ["grad-cam", "gradient", "occlusion"]
_OUTPUT = "Write this PNG, SVG or PDF; default: a PNG in the folder of the run."
_drawing = options.all_of(
    click.option("--output", "-o", type=options.Named(), metavar="FILE", help=_OUTPUT),
    options.json_output("one JSON object"),
    options.plugin,
    options.device("auto"),
)


@click.command(
    short_help="Draw what a network learned to see.",
    epilog=options.examples("dnnstack look lenet", "dnnstack look lenet 5.png -o maps.pdf"),
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=completion.sources)
@click.argument("picture", metavar="[PICTURE]", required=False, shell_complete=completion.files)
@_drawing
@options.runs_dir("runs")
def look(run: str | None, picture: str | None, **how: Any) -> None:
    """Draw the filters of a network's first layer, or with PICTURE the maps of all its layers.

    RUN is a run or a checkpoint file; default: the latest run.
    """
    from ..reports.filter_pictures import feature_maps, filters

    model = _opened(None, None if run is None else Path(run), **how)
    if picture is None:
        _tell(model, filters(model.trained), "filters", {}, **how)
        return
    drawing = feature_maps(model.trained, model.backend, _seen(model, picture), picture)
    _tell(model, drawing, f"maps-{Path(picture).stem}", {"picture": picture}, **how)


@click.command(
    short_help="Show why a network answers as it does.",
    epilog=options.examples("dnnstack why 5.png", "dnnstack why --run lenet 5.png --class 3 --all"),
)
@click.argument("picture", metavar="PICTURE", shell_complete=completion.files)
@options.trained
@click.option("--class", "name", metavar="CLASS", help="Explain this one; default: the answer.")
@click.option("--method", type=click.Choice(_METHODS), help="Default: grad-cam, else occlusion.")
@click.option("--all", "every", is_flag=True, help="Draw all three methods, one below the other.")
@_drawing
def why(picture: str, name: str | None, method: str | None, every: bool, **how: Any) -> None:
    """Show which parts of PICTURE speak for the answer, as heat over it."""
    from ..common.errors import UsageError
    from ..common.printable import printable
    from ..configs.suggest import expected
    from ..reports.contact_sheet import draw_sheet
    from ..reports.filter_pictures import heated
    from ..training.inference.why import heat, last_maps

    model = _opened(**how)
    trained, names, seen = model.trained, model.trained.classes, _seen(model, picture)
    shares = model.judged(seen[None])[0][0]
    answer = int(shares.argmax())
    if name is not None and name not in names:
        raise UsageError(f"--class: {expected(names, name, repr(name))}")
    chosen = answer if name is None else names.index(name)
    default = "grad-cam" if last_maps(trained) else "occlusion"
    methods = _METHODS if every else [method or default]
    heats = [heat(trained, model.backend, one, seen, chosen) for one in methods]
    rows = [(one, heated(seen, found)) for one, found in zip(methods, heats, strict=True)]
    title = f"{picture}: '{names[answer]}' with {shares[answer]:.1%}"
    title += f"; for '{names[chosen]}', {shares[chosen]:.1%}" if chosen != answer else ""
    told = {"answer": names[answer], "probability": float(shares[answer]), "class": names[chosen]}
    told |= {"picture": picture, "class_probability": float(shares[chosen]), "methods": methods}
    if not how["as_json"]:
        console.tell(printable(title))
    _tell(model, draw_sheet(printable(title), rows), f"why-{Path(picture).stem}", told, **how)


def _opened(run: str | None = None, checkpoint: Path | None = None, **how: Any) -> Classifier:
    from ..reports.contact_sheet import check_png

    if how["output"] is not None:
        check_png(how["output"], more=(".svg", ".pdf"))
    plugins.load(how["plugin"])
    given = {key: how[key] for key in ("runs_dir", "device", "threads")}
    return ensembles.opened((), None, None, run, checkpoint, no_graph=False, **given)


def _seen(model: Classifier, path: str) -> Any:
    """The picture as the network sees it, (C, H, W) bytes."""
    from ..datasets import read_picture
    from ..training.inference.predict import preparation

    return read_picture(path, model.input_shape, preparation(model.trained, None, False)).image


def _tell(model: Classifier, drawing: Any, name: str, told: dict[str, Any], **how: Any) -> None:
    """Save the drawing, by default in the run's folder under ``name``, and say where."""
    from ..common.printable import printable
    from ..reports.contact_sheet import write_png
    from ..training.records.runs import run_of_checkpoint

    network = model.trained.path
    path = how["output"] or (run_of_checkpoint(network) or network.parent) / f"{name}.png"
    write_png(drawing, path)
    shown = json.dumps({**told, "output": str(path)})
    console.say(shown if how["as_json"] else f"drawn     {printable(path)}")
