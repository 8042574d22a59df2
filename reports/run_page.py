"""``report.html``: a run, or several beside each other, as one file that needs a browser alone."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from xml.etree.ElementTree import Element, tostring

from ..common.errors import CheckpointError
from ..common.files import read_regular, sha256_file
from ..common.printable import paragraph, printable, printable_lines
from ..configs import differences, parse_config
from ..training.assemble import data_of
from ..training.records.formats.state import figure
from ..training.records.runs import CONFIG
from .contact_sheet import write
from .evaluate_text import NAMES
from .network_drawing import Box, network_drawing
from .network_graph import layer_graph
from .run_story import Story, story
from .stored import EVALUATION, EXPLANATION, ROOFLINE
from .svg import add
from .units import quantity, span_text, time_text

# Bytes of a picture that is shown as it is, pixels of others, and bytes of a file that is read.
_SHOWN, _LARGEST, _LONGEST = 250_000, 1200, 1 << 26
_NETWORK = "layers; the calls and costs are those of forward, backward and update"
_FILES = ("run_page.html", "run_page.js", "vendored/uPlot.min.css", "vendored/uPlot.iife.min.js")


class RunPage:
    """The page of these runs, at ``path``. ``absent``: what is missing, older than the checkpoint,
    or damaged, a line each with the command that mends it; ``live``: it loads itself again."""

    def __init__(self, stories: Sequence[Story], path: Path, live: bool) -> None:
        self.path, self.absent, self._live, self._stories = path, list[str](), live, stories
        self._head, self._sections = Element("div"), Element("div")
        for each in stories:
            add(self._head, "h1", each.path.name)
            add(self._head, "p", each.summary)
            add(add(self._head, "p"), "code", each.command)
        if len(stories) > 1:
            self._section("Runs", partial(_runs, stories))
            self._section("What differs in their configs", partial(_differences, stories))
        else:
            self._of_run(stories[0])

    def to_json(self) -> dict[str, Any]:
        runs = {str(each.path): each.summary for each in self._stories}
        return {"path": str(self.path), "runs": runs, "absent": self.absent}

    def as_text(self) -> str:
        told = (each.summary for each in self._stories)
        return paragraph([*told, *self.absent, f"written {self.path}"])

    def text(self) -> str:
        """The whole file. No name in it is markup, or ends a script."""
        here = files(__package__)
        frame, code, look, library = (here.joinpath(name).read_text("utf-8") for name in _FILES)
        curves = [each.curves for each in self._stories]
        data = json.dumps({"runs": curves, "measure": self._stories[0].run.measure})
        parts = (tostring(each, "unicode", method="html") for each in (self._head, self._sections))
        head, sections = map(printable_lines, parts)
        title = html.escape(", ".join(printable(each.path.name) for each in self._stories))
        refresh = '<meta http-equiv="refresh" content="5">' if self._live else ""
        texts = {"head": head, "sections": sections, "title": title, "refresh": refresh}
        texts |= {"look": look, "code": library + code, "data": data.replace("<", "\\u003c")}
        return Template(frame).substitute(texts)

    def _section(self, title: str, fill: Callable[[Element], object], again: str = "") -> None:
        """Let ``fill`` add to a new section; what it cannot is said, with the command ``again``."""
        part = add(self._sections, "section")
        add(part, "h2", title)
        try:
            fill(part)
        except Exception as error:
            # A damaged file costs its own section.
            known = {FileNotFoundError: "not there yet", CheckpointError: str(error)}
            reason = (isinstance(error, OSError) and error.strerror) or repr(error)
            told = known.get(type(error), f"cannot be read: {reason}")
            self.absent.append(f"{title}: {told}" + (f"; {again}" if again else ""))
            add(part, "p", self.absent[-1], class_="absent")

    def _of_run(self, one: Story) -> None:
        every = sorted(one.path.glob(f"eval-*/{EVALUATION}"))
        for path in every or [one.path / "eval-test" / EVALUATION]:
            split = path.parent.name.partition("-")[2]
            again = f"dnnstack eval --run {one.path} --split {split}"
            self._section(f"Evaluation: {split}", partial(_evaluation, path, one), again)
            for name in ("confusion", "reliability", "errors", "scatter", "roc"):
                if (drawn := path.with_name(f"{name}.png")).exists():
                    self._section(name.capitalize(), partial(_picture, drawn, one), again)
        config = one.path / CONFIG
        again, data = f"dnnstack explain --config {config} --measure", one.path / "samples.png"
        self._section("Network", partial(_network, one), again)
        pictures = {"Roofline": (one.path / ROOFLINE, again)}
        if not (one.checkpoint and one.checkpoint.provenance.floats):
            pictures["Filters"] = one.path / "filters.png", f"dnnstack look {one.path}"
            pictures["Samples"] = data, f"dnnstack data --config {config} --save {data}"
        for title, (path, again) in pictures.items():
            self._section(title, partial(_picture, path, one), again)
        for path in sorted(one.path.glob("suspects-*/suspects.png")):
            title = path.parent.name.replace("-", ": ").capitalize()
            again = f"dnnstack suspects {one.path} --split {path.parent.name.partition('-')[2]}"
            self._section(title, partial(_picture, path, one), again)
        self._section("Config", lambda part: add(part, "pre", _read(config)))
        versions = (one.run.versions or {}).items()
        self._section("Environment", lambda part: _table(part, ("", ""), versions))


def write_page(folders: Sequence[Path], output: Path | None, live: bool = False) -> RunPage:
    """Write the page of the runs in these folders; ``output``: by default ``report.html`` in the
    run's folder, of several above that of the first. Raises CheckpointError, DatasetError."""
    own = folders[0] if len(folders) == 1 else folders[0].parent
    page = RunPage([story(each) for each in folders], output or own / "report.html", live)
    write(page.text().encode(), page.path)
    return page


def _runs(stories: Sequence[Story], part: Element) -> None:
    rows: list[Sequence[object]] = []
    for each in stories:
        test = each.path / "eval-test" / EVALUATION
        told = _measured(json.loads(_read(test))) if test.exists() else "-"
        rows.append((each.path.name, each.accuracy, told, f"{each.run.seconds:.1f}"))
    _table(part, ("run", "best on validation", "on the test set", "seconds"), rows)


def _differences(stories: Sequence[Story], part: Element) -> None:
    first, *others = [parse_config(_read(one.path / CONFIG), str(one.path)) for one in stories]
    for one, other in zip(stories[1:], others, strict=True):
        lines = "\n".join(differences(first, other)) or "nothing"
        add(part, "p", f"{one.path.name}, after {stories[0].path.name}:")
        add(part, "pre", lines)


def _measured(found: Mapping[str, Any]) -> str:
    """The figures of an evaluation; a share of right answers with its interval."""
    told = [f"{NAMES[key]} {figure(key, found[key])}" for key in NAMES if key in found]
    if "accuracy_interval" in found:
        told[0] += f" ({span_text(found['accuracy_interval'])})"
    return ", ".join([*told, f"loss {found['loss']:.4f}", f"{found['count']} samples"])


def _read(path: Path) -> str:
    return read_regular(path, _LONGEST).decode()


def _evaluation(path: Path, one: Story, part: Element) -> None:
    found, rows = dict(json.loads(_read(path))), list[Sequence[object]]()
    add(part, "p", f"{found['dataset']}: {_measured(found)}")
    keys = ("precision", "recall", "f1")
    for each in found.get("per_class", ()):
        span = span_text(each["recall_interval"]) if each["recall_interval"] else "-"
        shares = (figure(key, each[key]) for key in keys)
        rows.append((each["label"], each["count"], each["correct"], *shares, span))
    if rows:
        _table(part, ("class", "samples", "right", *keys, "95% of recall"), rows)
    if one.checkpoint and found["sha256"] != one.checkpoint.sha256:
        best = one.checkpoint.state.step
        raise CheckpointError(f"is of step {found['step']}, the best checkpoint of step {best}")


def _network(one: Story, part: Element) -> None:
    """The layers, with calls and costs of a step; a bar is the share of its time."""
    file = one.path / CONFIG
    config, known = parse_config(_read(file), str(file)), one.checkpoint
    graph = layer_graph(config, file, one.path.name, data_of(known.provenance) if known else None)
    found = json.loads(_read(one.path / EXPLANATION))
    layers = {layer["name"]: layer["operations"] for layer in found["layers"]}
    whole = found["totals"]["step"]["seconds"]
    # What reads the data and what updates are no layers of the network.
    inside = {box.title for box in graph.boxes}
    ends = [Box(name) for name in layers if name not in inside]
    boxes = [_costed(box, layers.get(box.title, ()), whole) for box in (*graph.boxes, *ends)]
    add(part, "figure").append(network_drawing(boxes, graph.edges, _NETWORK))
    if found["sha256"] != sha256_file(file):
        raise CheckpointError("is of another config")


def _costed(box: Box, operations: Iterable[Mapping[str, Any]], whole: float | None) -> Box:
    """The box with what these operations of it call and take, of ``whole`` seconds."""
    every, keys = [*operations], ("flops", "bytes", "seconds", "limit_seconds")
    flops, moved, spent, least = (sum(op[key] or 0 for op in every) for key in keys)
    calls = dict.fromkeys(call["function"] for op in every for call in op["calls"])
    lines = [*box.lines, *calls]
    lines += [f"{quantity(flops, 'FLOP')}, {quantity(moved, 'B')}"] if every else []
    if spent:
        limit = f", {least / spent:.0%} of the limit" if least < spent else ""
        lines.append(f"{time_text(spent)}{limit}")
    return Box(box.title, (*lines,), spent / whole if whole else None)


def _table(part: Element, heads: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    table = add(add(part, "div", class_="scroll"), "table")
    for tag, row in (("th", heads), *(("td", row) for row in rows)):
        line = add(table, "tr")
        for cell in row:
            add(line, tag, str(cell))


def _picture(path: Path, one: Story, part: Element) -> None:
    """The picture in a file; a large one is reduced, one from before the best checkpoint is old."""
    data, kind = read_regular(path, _LONGEST), path.suffix[1:].replace("svg", "svg+xml")
    if len(data) > _SHOWN:
        from PIL import Image

        buffer, kind = io.BytesIO(), "jpeg"
        with Image.open(io.BytesIO(data)) as opened:
            picture = opened.convert("RGB")
        picture.thumbnail((_LARGEST, _LARGEST))
        picture.save(buffer, "JPEG", quality=75)
        data = buffer.getvalue()
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    add(add(part, "figure"), "img", src=source, alt=path.name)
    if one.checkpoint and path.stat().st_mtime < one.checkpoint.path.stat().st_mtime:
        raise CheckpointError(f"{path.name} is older than the best checkpoint")
