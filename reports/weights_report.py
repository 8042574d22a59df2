"""What a file of weights contains, and what of it a network would begin with."""

from __future__ import annotations

from math import prod
from typing import Any

from ..common.printable import paragraph
from ..common.records import dataclass
from ..common.text import shape_text, versions_text
from ..training.weights.source import Source
from ..training.weights.start import Start
from .tables import table


@dataclass(frozen=True)
class WeightsReport:
    """The arrays of a source; ``start``: what a network takes, None without a network."""

    source: Source
    start: Start | None = None

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        ours, trained = self._ours(), self.source.trained
        arrays = [
            {"name": name, "shape": list(each.shape), "type": each.dtype, "as": ours.get(name)}
            for name, each in self.source.arrays.items()
        ]
        found = {
            "path": str(self.source.path),
            "file_sha256": self.source.sha256,
            "layout": self.source.layout,
            "versions": dict(trained.versions) if trained is not None else None,
            "arrays": arrays,
        }
        if self.start is not None:
            for key, differences in (("new", self.start.new), ("left", self.start.left)):
                found[key] = [each.to_json() for each in differences]
        return found

    def as_text(self, width: int | None = None) -> str:
        """A line for each array, then, with a network, one for each difference.

        Longer names than fit ``width`` are cut.
        """
        ours = self._ours()
        rows = [
            (
                name,
                shape_text(each.shape) or "1",
                each.dtype,
                ours.get(name, "-") if self.start is not None else "",
            )
            for name, each in self.source.arrays.items()
        ]
        heads = ("array", "shape", "type", "taken as" if self.start is not None else "")
        made = {} if self.source.trained is None else self.source.trained.versions
        numbers = sum(prod(each.shape) for each in self.source.arrays.values())
        lines = [
            str(self.source.path),
            f"SHA-256 {self.source.sha256}",
            *([f"trained with {versions_text(made)}"] if made else []),
            "",
            *table([heads, *rows], "<><", width, {0: 1, 3: 1}),
            "",
            f"{len(rows)} arrays, {numbers:,} numbers",
        ]
        if any(each.is_scaled for each in self.source.arrays.values()):
            lines.append("I8: integers, which a scale of each filter or unit turns into float32")
        if self.start is not None:
            total = len(self.start.values) + len(self.start.new)
            count = len(self.start.values)
            verb = "is" if count == 1 else "are"
            lines.append(f"{count} of the network's {total} arrays {verb} taken")
            lines += [f"new   {each}" for each in self.start.new]
        return paragraph(lines)

    def _ours(self) -> dict[str, str]:
        """Our name of each array that is taken."""
        names = self.start.names if self.start is not None else {}
        return {theirs: name for name, theirs in names.items()}
