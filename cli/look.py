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
    epilog=options.examples(
        "dnnstack look lenet",
        "dnnstack look lenet 5.png -o maps.pdf",
        "dnnstack look lenet --units conv2d_2 --unit 3",
    ),
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=completion.sources)
@click.argument("picture", metavar="[PICTURE]", required=False, shell_complete=completion.files)
@click.option("--units", "layer", metavar="LAYER", help="Draw what excites units of this layer.")
@click.option(
    "--unit",
    "units",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Of --units only this one, counted from 0; repeatable; default: the first eight.",
)
@_drawing
@options.data_dir
@options.runs_dir("runs")
def look(
    run: str | None, picture: str | None, layer: str | None, units: tuple[int, ...], **how: Any
) -> None:
    """Draw the filters of a network's first layer, or with PICTURE the maps of all its layers.

    RUN is a run or a checkpoint file; default: the latest run. With --units the nine test pictures
    are drawn that excite each unit or map most, and the part that it sees of them.
    """
    from ..reports.filter_pictures import feature_maps, filters

    if (picture and layer) or (units and not layer):
        raise click.UsageError("--units takes no PICTURE, and --unit needs --units")
    model = _opened(None, None if run is None else Path(run), **how)
    if layer:
        _units(model, layer, units, **how)
        return
    if picture is None:
        _tell(model, filters(model.trained), "filters", {}, **how)
        return
    drawing = feature_maps(model.trained, model.backend, _seen(model, picture), picture)
    _tell(model, drawing, f"maps-{Path(picture).stem}", {"picture": picture}, **how)


@click.command(
    short_help="Show why a network answers as it does.",
    epilog=options.examples(
        "dnnstack why 5.png",
        "dnnstack why --run lenet 5.png --class 3 --all",
        "dnnstack why 5.png --fool 3",
    ),
)
@click.argument("picture", metavar="[PICTURE]", required=False, shell_complete=completion.files)
@options.trained
@click.option("--class", "name", metavar="CLASS", help="Explain this one; default: the answer.")
@click.option("--method", type=click.Choice(_METHODS), help="Default: grad-cam, else occlusion.")
@click.option("--all", "every", is_flag=True, help="Draw all three methods, one below the other.")
@click.option("--fool", metavar="CLASS", help="Draw a picture near PICTURE that is taken for it.")
@click.option("--class-picture", "of", metavar="CLASS", help="Draw what the network takes for it.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Of --class-picture.")
@_drawing
def why(
    picture: str | None,
    name: str | None,
    method: str | None,
    every: bool,
    fool: str | None,
    of: str | None,
    seed: int,
    **how: Any,
) -> None:
    """Show which parts of PICTURE speak for the answer, as heat over it."""
    from ..common.errors import UsageError
    from ..common.printable import printable
    from ..reports.contact_sheet import draw_sheet
    from ..reports.filter_pictures import heated
    from ..training.inference.why import heat, last_maps

    if (picture is None) == (of is None):
        raise click.UsageError("give a PICTURE, or --class-picture")
    if (of or fool) and (name or method or every):
        raise click.UsageError("--fool and --class-picture take no --class, --method or --all")
    model = _opened(**how)
    if not model.trained.takes_pictures or model.trained.data.kind == "numbers":
        raise UsageError(f"{model.trained.path}: was not trained on pictures of classes")
    if picture is None or fool is not None:
        _made(model, picture, str(fool or of), seed, **how)
        return
    trained, names, seen = model.trained, model.trained.classes, _seen(model, picture)
    shares = model.judged(seen[None])[0][0]
    answer = int(shares.argmax())
    chosen = answer if name is None else _class(model, "--class", name)
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


def _units(model: Classifier, layer: str, units: tuple[int, ...], **how: Any) -> None:
    """Draw what excites these units of a layer, or the first eight."""
    from ..common.errors import UsageError
    from ..configs.suggest import expected
    from ..reports.filter_pictures import exciting
    from . import downloading

    known = model.trained.network.infer_graph(1).outputs
    if layer not in known:
        raise UsageError(f"--units: {expected(known, layer, repr(layer))}")
    count = known[layer].shape[1]
    if units and max(units) >= count:
        raise UsageError(f"--unit {max(units)}: layer '{layer}' has {count}, counted from 0")
    if not model.trained.takes_pictures:
        raise UsageError("--units: the network was not trained on pictures")
    downloads = downloading.policy(how["offline"])
    images, rows = model.load_part("test", None, how["data_dir"], downloads)
    chosen = units or range(min(8, count))
    found = exciting(model.trained, model.backend, images.images, rows, layer, chosen)
    _tell(model, found[0], f"units-{layer}", {"layer": layer, "units": found[1]}, **how)


def _made(model: Classifier, picture: str | None, of: str, seed: int, **how: Any) -> None:
    """Draw a picture near PICTURE, or one from noise, that is taken for the class ``of``."""
    from ..common.printable import printable
    from ..reports.contact_sheet import draw_sheet
    from ..reports.filter_pictures import boxed, fooling
    from ..training.inference.made import class_picture, fooled

    index = _class(model, "--class-picture" if picture is None else "--fool", of)
    if picture is None:
        made = class_picture(model.trained, model.backend, index, seed)
        name, rows = f"class-{index}", [("made", boxed(made, 224)[None])]
    else:
        seen = _seen(model, picture)
        made = fooled(model.trained, model.backend, seen, index)
        name, rows = f"fool-{Path(picture).stem}", fooling(seen, made)
    share = float(model.judged(made[None])[0][0, index])
    title = printable(f"{picture or 'made'}: taken for '{of}' with {share:.1%}")
    if not how["as_json"]:
        console.tell(title)
    told = {"picture": picture, "class": of, "class_probability": share}
    _tell(model, draw_sheet(title, rows), name, told, **how)


def _class(model: Classifier, option: str, name: str) -> int:
    from ..common.errors import UsageError
    from ..configs.suggest import expected

    names = model.trained.classes
    if name not in names:
        raise UsageError(f"{option}: {expected(names, name, repr(name))}")
    return names.index(name)


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
