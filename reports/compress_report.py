"""What a compression brought: a row for each array of the file, the whole, and others' figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.printable import paragraph
from ..common.text import cut
from ..training.compressed.arrays import Cost
from ..training.compressed.file import Compressed
from ..training.compressed.pipeline import Measured, Record
from .tables import table

if TYPE_CHECKING:
    from ..configs.schema.stages import PaperConfig

_WIDEST = 44
_HEADS = (
    "array",
    "weights",
    "kept",
    "weight bits",
    "coded",
    "gap bits",
    "coded",
    "shared",
    "bytes",
)


@dataclass(frozen=True)
class CompressedReport:
    """The arrays of a file. ``record``: how it was made; ``paper``: figures to show beside."""

    compressed: Compressed
    record: Record | None = None
    paper: PaperConfig | None = None

    @property
    def plain_bytes(self) -> int:
        """Of all numbers as float32."""
        return 4 * sum(cost.size for cost in self.compressed.costs.values())

    @property
    def times(self) -> float:
        """How many times smaller the file is."""
        return self.plain_bytes / self.compressed.bytes

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        found: dict[str, Any] = {
            "path": str(self.compressed.checkpoint.path),
            "bytes": self.compressed.bytes,
            "float32_bytes": self.plain_bytes,
            "times": self.times,
            "arrays": {name: _numbers(cost) for name, cost in self.compressed.costs.items()},
        }
        if self.record is not None:
            found |= {key: _measured(vars(self.record)[key]) for key in ("before", "after")}
            found["stages"] = [
                {"name": stage.name, "kept": stage.kept, **_measured(stage.measured)}
                for stage in self.record.stages
            ]
        return found

    def as_text(self) -> str:
        """The table with the paper's columns, the whole, and what was measured."""
        costs = self.compressed.costs
        rows: list[Sequence[object]] = [_HEADS]
        rows += [_row(name, cost) for name, cost in costs.items()]
        size = self.compressed.bytes
        kept, total = sum(c.kept for c in costs.values()), sum(c.size for c in costs.values())
        shared = sum(_shared_bits(cost) for cost in costs.values()) / 8
        share = f"{shared / self.plain_bytes:.2%}"
        ends = ("-", "-", "-", "-", share, f"{size / self.plain_bytes:.2%}")
        rows.append(("the file", f"{total:,}", f"{kept / max(total, 1):.1%}", *ends))
        lines = [*table(rows, "<>"), ""]
        lines.append(
            f"{self.plain_bytes:,} bytes as float32, {size:,} in the file: {self.times:.1f} times "
            "smaller"
        )
        if self.record is not None:
            lines += ["", *_stages(self.record)]
        if self.paper is not None:
            lines += ["", *_beside(self.paper)]
        return paragraph(lines)


def _row(name: str, cost: Cost) -> Sequence[object]:
    plain = 4 * cost.size or 1
    first = (cut(name, _WIDEST), f"{cost.size:,}", f"{cost.kept / max(cost.size, 1):.1%}")
    if not cost.is_coded:
        return (*first, "32", "-", "-", "-", "-", f"{cost.bytes / plain:.2%}")
    bits = cost.value_bits / max(cost.kept, 1), cost.gap_bits / max(cost.entries, 1)
    return (
        *first,
        *(cost.index_width, f"{bits[0]:.1f}", cost.width, f"{bits[1]:.1f}"),
        *(f"{_shared_bits(cost) / 8 / plain:.2%}", f"{cost.bytes / plain:.2%}"),
    )


def _shared_bits(cost: Cost) -> int:
    """Bits of pruned and shared weights before Huffman's codes, with the code book."""
    if not cost.is_coded:
        return 8 * cost.bytes
    return 32 * cost.values + cost.kept * cost.index_width + cost.entries * cost.width


def _numbers(cost: Cost) -> dict[str, Any]:
    return {**vars(cost), "index_width": cost.index_width, "shared_bits": _shared_bits(cost)}


def _measured(found: Sequence[Measured]) -> dict[str, Any]:
    return {each.part: {"accuracy": each.accuracy, "loss": each.loss} for each in found}


def _errors(found: Sequence[Measured]) -> Mapping[str, str]:
    return {each.part: f"{1 - each.accuracy:.2%}" for each in found}


def _stages(record: Record) -> list[str]:
    """The error of the network before, of every stage, and of the file."""
    every = [("before", 1.0, record.before)]
    every += [(stage.name, stage.kept, stage.measured) for stage in record.stages]
    kept = record.stages[-1].kept if record.stages else 1.0
    every.append(("the file", kept, record.after))
    parts = dict.fromkeys(each.part for _, _, found in every for each in found)
    rows: list[Sequence[object]] = [("stage", "kept", *(f"{part} error" for part in parts))]
    for name, share, found in every:
        errors = _errors(found)
        rows.append((name, f"{share:.1%}", *(errors.get(part, "-") for part in parts)))
    return table(rows, "<>")


def _beside(paper: PaperConfig) -> list[str]:
    rows: list[Sequence[object]] = [
        ("array", "kept", "weight bits", "coded", "gap bits", "coded", "bytes")
    ]
    for name, (kept, bits, coded, gap, coded_gap, size) in paper.rows.items():
        middle = (f"{bits:g}", f"{coded:g}", f"{gap:g}", f"{coded_gap:g}")
        rows.append((cut(name, _WIDEST), f"{kept:g}%", *middle, f"{size:.2f}%"))
    error = "" if paper.error is None else f", {paper.error:.2f}% test error"
    return [f"{paper.title}:", *table(rows, "<>"), f"{paper.times:g} times smaller{error}"]
