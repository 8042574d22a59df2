"""A network as boxes in ranks from top to bottom, joined by edges, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from xml.etree.ElementTree import Element

from ..common.cells import unicode_cells
from ..common.records import dataclass
from . import style
from .svg import add, picture

Edge = tuple[int, int] | tuple[int, int, str]
# Pixels: a sign and a line of text, a margin, the room between ranks and columns, the least width.
_SIGN, _LINE, _MARGIN, _DOWN, _ACROSS, _LANE = 6.6, 14.0, 8.0, 44.0, 18.0, 60.0
_INK, _GREY, _PAPER = map(style.named, (style.INK, style.GREY, style.PAPER))
_SHADE, _BAR = (style.named(style.mixed(style.BLUE, share)) for share in (0.1, 0.4))


@dataclass(frozen=True)
class Box:
    """``share``, from 0 to 1, fills it from the left; edges between boxes that ``rise`` go up."""

    title: str
    lines: tuple[str, ...] = ()
    share: float | None = None
    rises: bool = False


def network_drawing(boxes: Sequence[Box], edges: Sequence[Edge], title: str) -> Element:
    """The boxes, each below those from which an edge leads to it, as a picture that scales.

    edges: from and to the number of a box, and perhaps a label.
    """
    rank = _ranks(boxes, edges)
    column, ways = _columns(boxes, edges, rank)
    wide = [_LANE] * (1 + max([*column, *(lane for *_, lane in ways)]))
    high, sizes = [0.0] * (max(rank) + 1), []
    for box, at, row in zip(boxes, column, rank, strict=True):
        sizes.append(max(map(unicode_cells, (f"{box.title}  ", *box.lines))) * _SIGN + 2 * _MARGIN)
        wide[at] = max(wide[at], sizes[-1])
        high[row] = max(high[row], (len(box.lines) + 1) * _LINE + _MARGIN)
    top = [*accumulate(high, lambda y, each: y + each + _DOWN, initial=_DOWN)]
    left = [*accumulate(wide, lambda x, each: x + each + _ACROSS, initial=_MARGIN)]
    drawn = picture(max(left[-1], 9 * len(title)), top[-1], title)
    drawn.set("font-size", "11")
    arrow = add(add(drawn, "defs"), "marker", id="arrow", viewBox="0 0 8 8", refX=8, refY=4)
    arrow.attrib.update(markerWidth="7", markerHeight="7", orient="auto")
    add(arrow, "path", d="M0 0L8 4L0 8z", fill=_GREY)
    add(drawn, "text", title, x=_MARGIN, y=20, font_size=14, fill=_INK)
    lines = add(drawn, "g", fill="none", stroke=_GREY)
    said = add(drawn, "g", fill=_GREY, stroke=_PAPER, stroke_width=4, text_anchor="middle")
    said.set("paint-order", "stroke")
    for (start, _, *label), (upper, lower, lane) in zip(edges, ways, strict=True):
        # From the end of the upper rank, through the lane beside the ranks between, to the lower.
        stops = [(column[upper], top[rank[upper] + 1] - _DOWN), (column[lower], top[rank[lower]])]
        if rank[lower] > rank[upper] + 1:
            stops[1:1] = [(lane, top[rank[upper] + 1]), (lane, top[rank[lower]] - _DOWN)]
        points = [(left[at] + wide[at] / 2, y) for at, y in stops][:: 1 if upper == start else -1]
        path = "M{:.1f} {:.1f}".format(*points[0])
        for (x, y), (u, v) in pairwise(points):
            path += f"C{x:.1f} {(y + v) / 2:.1f} {u:.1f} {(y + v) / 2:.1f} {u:.1f} {v:.1f}"
        add(lines, "path", d=path, marker_end="url(#arrow)")
        (x, y), (u, v) = points[len(points) // 2 - 1 : len(points) // 2 + 1]
        add(said, "text", "".join(label), x=(x + u) / 2, y=(y + v) / 2 + 4)
    for box, width, at, row in zip(boxes, sizes, column, rank, strict=True):
        place = f"translate({left[at] + (wide[at] - width) / 2:.1f} {top[row]:.1f})"
        group = add(drawn, "g", class_="box", transform=place, fill=_INK)
        frame = add(group, "rect", width=width, height=high[row], rx=4, stroke=_INK)
        frame.set("fill", _SHADE if box.rises else _PAPER)
        if box.share is not None:
            add(group, "rect", width=width * min(box.share, 1.0), height=high[row], fill=_BAR)
        add(group, "text", box.title, x=_MARGIN, y=_LINE, font_weight="bold")
        for line, text in enumerate(box.lines, 2):
            add(group, "text", text, x=_MARGIN, y=line * _LINE)
    return drawn


def _ranks(boxes: Sequence[Box], edges: Sequence[Edge]) -> list[int]:
    """As low as what is below each box allows, which puts forward beside backward."""
    rank = [0] * len(boxes)
    for _ in boxes:
        for start, end, *_ in edges:
            up = boxes[start].rises and boxes[end].rises
            upper, lower = (end, start) if up else (start, end)
            rank[upper] = min(rank[upper], rank[lower] - 1)
    return [each - min(rank) for each in rank]


def _columns(
    boxes: Sequence[Box], edges: Sequence[Edge], rank: Sequence[int]
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The column of each box, and the upper and lower box of each edge with the lane between."""
    taken: set[tuple[int, int]] = set()

    def take(rows: Sequence[int], near: int) -> int:
        tried = sorted(range(len(boxes) + len(edges)), key=lambda column: abs(column - near))
        found = next(c for c in tried if not any((row, c) in taken for row in rows))
        taken.update((row, found) for row in rows)
        return found

    column, ways = [0] * len(boxes), [sorted(edge[:2], key=rank.__getitem__) for edge in edges]
    above = [[upper for upper, lower in ways if lower == n] for n in range(len(boxes))]
    nearest = [max((rank[u] for u in each), default=0) for each in above]
    for n in sorted(range(len(boxes)), key=lambda n: (rank[n], -nearest[n])):
        alike = [u for u in above[n] if boxes[u].rises == boxes[n].rises] or above[n] or [n]
        column[n] = take([rank[n]], column[max(alike, key=lambda u: (rank[u], -column[u]))])
    return column, [(u, v, take(range(rank[u] + 1, rank[v]), column[v])) for u, v in ways]
