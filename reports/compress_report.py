"""What a compression brought: a row for each array of the file, the whole, and others' figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..common.printable import paragraph
from ..common.records import dataclass
from ..common.text import cut, listed
from ..training.compressed.place import Measured, Record
from ..training.records.formats.dnnz import Compressed
from ..training.records.formats.dnnz_arrays import Cost
from .multiply_adds import uses_of_weights
from .tables import NAME, table

if TYPE_CHECKING:
    from ..configs.schema.stages import PaperConfig
    from ..training.network import Network

_NAMED = 8
_PAPER, _KEPT, _ZEROS = "  published", "kept", "not 0"
_HEADS = ("array", "weights", _KEPT, "bits", "coded", "gap", "coded", "shared", "bytes")


@dataclass(frozen=True)
class CompressedReport:
    """The arrays of a file and the network that they belong to.

    ``record``: how it was made; ``paper``: figures to show beside. ``whole``: the network before
    filters were left out, if it is another one.
    """

    compressed: Compressed
    network: Network
    record: Record | None = None
    paper: PaperConfig | None = None
    whole: Network | None = None

    @property
    def plain_bytes(self) -> int:
        """Of all numbers as float32, before filters were left out."""
        before = 0 if self.record is None else self.record.float32_bytes
        return before or 4 * sum(cost.size for cost in self.compressed.costs.values())

    @property
    def times(self) -> float:
        """How many times smaller the file is."""
        return self.plain_bytes / self.compressed.bytes

    @cached_property
    def multiply_adds(self) -> dict[str, tuple[int, int]]:
        """(with all weights, with those that are not 0) for a picture, by array."""
        costs = self.compressed.costs
        uses = uses_of_weights(self.network)
        return {n: (uses[n] * c.size, uses[n] * c.kept) for n, c in costs.items() if n in uses}

    @property
    def multiply_adds_before(self) -> int:
        """With all weights and all filters."""
        network = self.whole or self.network
        sizes = {each.tensor.name: each.tensor.size for each in network.parameters()}
        return sum(count * sizes[name] for name, count in uses_of_weights(network).items())

    @property
    def decoding_rate(self) -> float:
        """Bytes of float32 that were decoded in a second."""
        decoded = 4 * sum(cost.size for cost in self.compressed.costs.values())
        return decoded / max(self.compressed.seconds, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        found: dict[str, Any] = {
            "path": str(self.compressed.checkpoint.path),
            "bytes": self.compressed.bytes,
            "float32_bytes": self.plain_bytes,
            "times": self.times,
            "multiply_adds": self.multiply_adds_before,
            "multiply_adds_left": sum(left for _, left in self.multiply_adds.values()),
            "load_seconds": self.compressed.seconds,
            "arrays": {name: self._numbers(name) for name in self.compressed.costs},
        }
        integers = self.compressed.checkpoint.quantization
        if integers:
            found["quantization"] = {name: vars(each) for name, each in integers.items()}
        return found if self.record is None else found | measured_json(self.record)

    def as_text(self, width: int | None = None) -> str:
        """The table with the paper's columns, the whole, and what was measured.

        ``width``: columns of the terminal, for which names are cut.
        """
        costs = self.compressed.costs
        integers = self.compressed.checkpoint.quantization
        # What rounding to integers makes 0 was kept by all stages.
        heads = [_ZEROS if integers and head == _KEPT else head for head in _HEADS]
        rows: list[Sequence[object]] = [heads]
        for name, cost in costs.items():
            rows.append(_row(name, cost))
            if self.paper is not None and name in self.paper.rows:
                rows.append(_published(self.paper.rows[name]))
        size = self.compressed.bytes
        kept, total = sum(c.kept for c in costs.values()), sum(c.size for c in costs.values())
        before = self.plain_bytes // 4
        shared = sum(_shared_bits(cost) for cost in costs.values()) / 8
        share = f"{shared / self.plain_bytes:.2%}"
        ends = ("-", "-", "-", "-", share, f"{size / self.plain_bytes:.2%}")
        rows.append(("the file", f"{total:,}", f"{kept / max(before, 1):.1%}", *ends))
        if self.paper is not None:
            rows.append((_PAPER, *("",) * 7, f"{1 / self.paper.times:.2%}"))
        lines = [*table(rows, "<>", width), ""]
        lines.append(
            f"{self.plain_bytes:,} bytes as float32, {size:,} in the file: {self.times:.1f} times "
            "smaller"
        )
        pruned = [cost for cost in costs.values() if cost.kept < cost.size]
        if not integers and not all(cost.is_coded for cost in pruned):
            lines.append(
                "a pruned weight takes as much of the file as any other until its array is coded; "
                "a stage with 'share' makes that worthwhile"
            )
        multiplied = self.multiply_adds_before
        left = sum(left for _, left in self.multiply_adds.values())
        lines.append(
            f"{multiplied:,} multiply-adds for a picture with all weights, {left:,} with those "
            f"that are not 0 ({left / max(multiplied, 1):.1%})"
        )
        lines.append(
            f"read and decoded in {1e3 * self.compressed.seconds:.1f} ms: "
            f"{self.decoding_rate / 1e6:.0f} MB of float32 a second"
        )
        if integers:
            named = listed(list(integers), _NAMED)
            lines.append(f"8-bit integers in {named}; all else in float32")
        if self.record is not None:
            lines += ["", *stages_text(self.record)]
        if self.paper is not None:
            error = self.paper.error
            tested = "" if error is None else f", {error:.2f}% test error"
            said = f"{_PAPER.strip()}: {self.paper.title}; {self.paper.times:g} times smaller"
            lines += ["", said + tested]
        return paragraph(lines)

    def _numbers(self, name: str) -> dict[str, Any]:
        cost = self.compressed.costs[name]
        found = {**vars(cost), "index_width": cost.index_width, "shared_bits": _shared_bits(cost)}
        if name in self.multiply_adds:
            before, left = self.multiply_adds[name]
            found |= {"multiply_adds": before, "multiply_adds_left": left}
        return found


def _row(name: str, cost: Cost) -> Sequence[object]:
    plain = 4 * cost.size or 1
    first = (cut(name, NAME), f"{cost.size:,}", f"{cost.kept / max(cost.size, 1):.1%}")
    if not cost.is_coded:
        return (*first, f"{cost.number_bits}", "-", "-", "-", "-", f"{cost.bytes / plain:.2%}")
    bits = cost.value_bits / max(cost.kept, 1), cost.gap_bits / max(cost.entries, 1)
    return (
        *first,
        *(cost.index_width, f"{bits[0]:.1f}", cost.width, f"{bits[1]:.1f}"),
        *(f"{_shared_bits(cost) / 8 / plain:.2%}", f"{cost.bytes / plain:.2%}"),
    )


def _published(row: Sequence[float]) -> Sequence[object]:
    """A row of the paper's table, below ours."""
    kept, bits, coded, gap, coded_gap, size = row
    middle = (f"{bits:g}", f"{coded:.1f}", f"{gap:g}", f"{coded_gap:.1f}")
    return (_PAPER, "", f"{kept:.1f}%", *middle, "", f"{size:.2f}%")


def _shared_bits(cost: Cost) -> int:
    """Bits of pruned and shared weights before Huffman's codes, with the code book."""
    if not cost.is_coded:
        return 8 * cost.bytes
    return 32 * cost.values + cost.kept * cost.index_width + cost.entries * cost.width


def _measured(found: Sequence[Measured]) -> dict[str, Any]:
    return {each.part: {each.measure: each.accuracy, "loss": each.loss} for each in found}


def measured_json(record: Record) -> dict[str, Any]:
    """What was measured before, after every stage, and of the file."""
    stages = [
        {"name": stage.name, "kept": stage.kept, **_measured(stage.measured)}
        for stage in record.stages
    ]
    ends = {"before": _measured(record.before), "after": _measured(record.after)}
    return {**ends, "stages": stages}


def stages_text(record: Record) -> list[str]:
    """The error of the network before, of every stage, and of the file if there is one."""
    every = [("before", 1.0, record.before)]
    every += [(stage.name, stage.kept, stage.measured) for stage in record.stages]
    kept = record.stages[-1].kept if record.stages else 1.0
    if record.file:
        every.append(("the file", kept, record.after))
    parts = dict.fromkeys(each.part for _, _, found in every for each in found)
    numbers = any(each.measure == "r2" for each in record.before)
    what = "R2" if numbers else "error"
    rows: list[Sequence[object]] = [("stage", "kept", *(f"{part} {what}" for part in parts))]
    for name, share, found in every:
        errors = {
            each.part: f"{each.accuracy:.4f}" if numbers else f"{1 - each.accuracy:.2%}"
            for each in found
        }
        rows.append((name, f"{share:.1%}", *(errors.get(part, "-") for part in parts)))
    return table(rows, "<>")
