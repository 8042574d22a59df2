"""The explanation of a training step as text: layers, their operations, calls, figures, totals."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..common.cells import cells, padded
from ..common.printable import paragraph, printable
from ..common.text import shape_text, versions_text
from ..graph.graph import Op
from ..layers.layer import Layer
from .explain import Call, Explanation, Foreseen, Operation, Total, ratio, sum_known
from .glance import glance
from .units import quantity, time_text

WIDTH = 79
# Widths of FLOP, bytes, time, fraction of the limit.
_COLUMNS = (8, 8, 11, 9)
# Instead of a share above 100%.
_CACHED = "faster"
# Of a step that is foreseen.
DECIDED = "decided by timing on the card"
# The least width of the text on the left, whatever the terminal.
_NARROWEST = 24


class _Page:
    """Rows with a text on the left and figures on the right, which have ``titles``.

    width: of the terminal, of which a page takes as much as it needs; None: no line is broken.
    """

    def __init__(self, width: int | None, *titles: str) -> None:
        self.titles = titles
        taken = sum(_COLUMNS[: len(titles)])
        self.width = None if width is None else max(min(width, WIDTH), _NARROWEST + taken)
        self.left = (self.width or WIDTH) - taken

    def row(self, left: str, figures: Sequence[str] = ()) -> list[str]:
        """One line, or two if the text on the left leaves no room for the figures."""
        figures = figures[: len(self.titles)]
        columns = "".join(f"{f:>{w}}" for f, w in zip(figures, _COLUMNS, strict=False)).rstrip()
        room = self.left + len(columns) - len(columns.lstrip())
        if not columns:
            return [left.rstrip()]
        if cells(left) < room:
            return [padded(left, room) + columns.lstrip()]
        if self.width is None:
            return [f"{left.rstrip()}  {columns.lstrip()}"]
        return [left.rstrip(), " " * room + columns.lstrip()]

    def fits(self, text: str) -> bool:
        """Whether a line holds the text."""
        return self.width is None or len(text) <= self.width

    def broken(self, text: str, first: str = "", rest: str = "") -> list[str]:
        """The text in lines that begin with ``first``, then with ``rest``; words stay whole."""
        if self.width is None:
            return [first + text]
        return textwrap.wrap(
            text, self.width, initial_indent=first, subsequent_indent=rest,
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip


def as_text(explanation: Explanation, width: int | None = WIDTH) -> str:
    """The whole explanation; times only if measured.

    It takes 79 columns, or those of a narrower terminal, except for longer words. Without a width
    no line is broken, so that each operation, and the arguments of each call, have one.
    """
    times = ("time", "of limit") if explanation.limits else ()
    page = _Page(width, "FLOP", "bytes", *(("at least",) if explanation.foreseen else times))
    layers = {layer.name: layer for layer in explanation.network.every_layer()}
    lines = [*_introduction(explanation, page), ""]
    for at, (name, members) in enumerate(explanation.by_layer().items()):
        lines += page.row(_heading(name, layers), page.titles if at == 0 else ())
        lines += [*_body(members, page), ""]
    lines += page.row("total", page.titles)
    for name, part in explanation.totals().items():
        times = _times(part)
        calls = "1 call" if part.calls == 1 else f"{part.calls} calls"
        lines += page.row(
            f"  {name:<10} {calls}", (quantity(part.flops), quantity(part.bytes), *times)
        )
    if step := explanation.whole:
        lines += ["", "whole step"]
        share = _percent(step.limit_seconds, step.seconds)
        for title, seconds, of_limit in (
            ("the calls, one by one", step.calls_seconds, ""),
            ("between them (below 0: overlap)", step.gaps, ""),
            ("the step as training runs it", step.seconds, ""),
            ("the machine's limit for the step", step.limit_seconds, share),
        ):
            lines += page.row(f"  {title}", ("", "", time_text(seconds), of_limit))
    return paragraph(lines)


def _introduction(explanation: Explanation, page: _Page) -> list[str]:
    versions = versions_text(explanation.versions)
    backend = f"backend {explanation.backend}"
    about = f"A training step of {printable(explanation.config)}, batch {explanation.batch_size}"
    lines = [
        *(foreseen_text(explanation.foreseen, page.width) if explanation.foreseen else ()),
        *page.broken(about),
        *page.broken(glance(explanation)["text"]),
        *page.broken(f"{backend}: {versions}", "", "  "),
    ]
    limits = explanation.limits
    if limits is not None:
        lines.append(
            f"limits, measured now: {limits.gflops:.0f} GFLOP/s (matrix product), "
            f"{limits.gbytes:.1f} GB/s (copy)"
        )
        if _CACHED in {_figures(member)[-1] for member in explanation.operations}:
            text = "faster than the limit: the data was still in a cache, or other programs ran"
            lines += page.broken(f"{text} while the limits were measured")
    return lines


def foreseen_text(about: Foreseen, width: int | None) -> list[str]:
    """That nothing was measured, what the limits are, and where choices come from."""
    card, limits = about.card, about.limits
    ships = f"those that ship with dnnstack for {about.timed}, timed on this card"
    texts = (
        f"Not measured, no GPU was used: a step on one {card.name}",
        f"limits by its maker: {limits.gflops / 1e3:g} TFLOP/s in {about.precision}, "
        f"{limits.gbytes:g} GB/s, {card.count} multiprocessors; training takes at most "
        f"{about.needed / 1e9:.2f} of its {card.gigabytes:g} GB",
        f"choices: {ships if about.timed else f'the defaults; explain lists what is {DECIDED}'}",
    )
    return [line for text in texts for line in _Page(width).broken(text, "", "  ")]


def _heading(name: str, layers: Mapping[str, Layer]) -> str:
    layer = layers.get(name)
    if layer is None:
        return name
    return f"{name}  {shape_text(layer.input_shape)} -> {shape_text(layer.output_shape)}"


def _body(members: Iterable[Operation], page: _Page) -> list[str]:
    lines: list[str] = []
    phase = ""
    for member in members:
        shown = member.origin.phase if member.origin.phase != phase else ""
        phase = member.origin.phase
        name, shapes = member.op.name, _shapes(member.op)
        title = f"  {shown:<9} {name}  {shapes}"
        if page.width is None or len(title) < page.left:
            lines += page.row(title, _figures(member))
        else:
            lines += [*page.row(f"  {shown:<9} {name}", _figures(member)), *_indented(shapes, page)]
        lines += _notes(member, page)
        several = len(member.calls) > 1
        for call, times in _repeated(member.calls):
            lines += _call_lines(call, times, several, page)
        if member.candidates:
            lines += _indented(f"{DECIDED}: {', or '.join(member.candidates)}", page)
        if not member.calls:
            lines.append(_indented(_without_call(member.op), page)[0])
    return lines


def _without_call(op: Op) -> str:
    if op.flops() or op.tensors(op.updates):
        return "no call of its own: another operation's call does it"
    return "no call: nothing to compute or move"


def _shapes(op: Op) -> str:
    """Shapes of inputs and outputs: ``64x1x28x28, 20x1x5x5 -> 64x20x24x24``."""
    fields = [getattr(op, field) for field in (*op.inputs, *op.updates)]
    several = max((field for field in fields if isinstance(field, tuple)), key=len, default=())
    if len(several) > 4 or (several and op.updates):
        return f"{sum(t.size for t in several)} values in {len(several)} tensors"
    # Biases and step counters are small, and would only distract.
    inputs = [t for t in op.reads() if len(t.shape) > 1] or op.reads()[:1]
    outputs = ", ".join(shape_text(t.shape) for t in op.tensors(op.outputs)) or "in place"
    return f"{', '.join(shape_text(t.shape) for t in inputs)} -> {outputs}"


def _notes(member: Operation, page: _Page) -> list[str]:
    updated = [t.name.rpartition(".")[0] for t in member.op.writes() if t.role == "parameter"]
    if updated:
        return _indented(f"all at once: {', '.join(dict.fromkeys(updated))}", page)
    if len(member.replaced) > 1:
        parts = " + ".join(part_text(member.op, source) for source in member.replaced)
        return _indented(f"fused: {parts}", page)
    if member.replaced:
        was = member.replaced[0]
        before, after = was.writes()[0], member.op.writes()[0]
        if before.shape != after.shape:
            return _indented(f"moved: without fusion it works on {shape_text(before.shape)}", page)
        return _indented("moved: without fusion it is at another place in the list", page)
    return []


def part_text(op: Op, source: Op) -> str:
    """A fused operation, with its layer if that is not the one under which it is listed."""
    name = source.name
    kind = getattr(source, "kind", "")
    layer = source.origin[0].layer
    title = f"{name} {kind}".strip()
    return title if layer == op.origin[0].layer else f"{title} of {layer}"


def _repeated(calls: Iterable[Call]) -> list[tuple[Call, int]]:
    """Merge calls that look the same: their number, and the sum of their times."""
    alike: dict[object, list[Call]] = {}
    for call in calls:
        bound = call.bound
        shown = tuple(bound.arguments.items())
        key = bound.library, bound.function, bound.implementation, shown
        alike.setdefault(key, []).append(call)
    return [
        (replace(group[0], seconds=sum_known(call.seconds for call in group)), len(group))
        for group in alike.values()
    ]


def _call_lines(call: Call, times: int, several: bool, page: _Page) -> list[str]:
    bound = call.bound
    head = f"            {bound.library} {bound.function}"
    head += f", {times} times" if times > 1 else ""
    implementation = f"[{bound.implementation}]" if bound.implementation else ""
    arguments = [f"{key}={value}" for key, value in bound.arguments.items()]
    figures = ("", "", time_text(call.seconds)) if several else ()
    whole = f"{head} {implementation}".rstrip()
    row = page.row(whole, figures)
    if len(row) == 1 and page.fits(whole):
        return [*row, *_filled(arguments, 14, page)]
    rest = _indented(implementation, page, 14) if implementation else []
    return [*page.row(head, figures), *rest, *_filled(arguments, 14, page)]


def _filled(items: Sequence[str], margin: int, page: _Page) -> list[str]:
    """Items in lines; only an item longer than a line is broken."""
    lines: list[str] = []
    for item in items:
        if lines and page.fits(" " * margin + f"{lines[-1]}, {item},"):
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    ends = ["," if at < len(lines) - 1 else "" for at in range(len(lines))]
    return [" " * margin + line + end for line, end in zip(lines, ends, strict=True)]


def _indented(text: str, page: _Page, margin: int = 12) -> list[str]:
    return page.broken(text, " " * margin, " " * margin)


def _figures(member: Operation) -> tuple[str, ...]:
    return (
        quantity(member.op.flops()),
        quantity(member.bytes),
        *_times(member),
    )


def _times(part: Operation | Total) -> tuple[str, str]:
    """The time and its share of the limit; the limit where nothing was measured."""
    least = part.limit_seconds
    if part.seconds is None:
        return time_text(least), ""
    return time_text(part.seconds), _percent(least, part.seconds)


def _percent(limit: float | None, seconds: float | None) -> str:
    share = ratio(limit, seconds)
    if share is None:
        return "" if limit is None or not seconds else _CACHED
    return f"{share:.0%}"
