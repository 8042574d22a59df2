"""What became of a file of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..common.printable import paragraph
from ..common.records import dataclass
from ..common.text import cut, listed, shape_text
from ..graph.graph import Shape
from ..training.preprocessing import Preprocessing

_LISTED, _WIDEST = 8, 60


@dataclass(frozen=True)
class Imported:
    """The folder of a run, ``written``; or, for ``reasons``, a file with the weights alone.

    ``arrays`` and ``numbers`` count what it holds, ``normalize`` is what is done to pixels.
    """

    source: Path
    written: Path
    arrays: int
    numbers: int
    layers: int = 0
    input_shape: Shape = ()
    classes: tuple[str, ...] = ()
    normalize: Preprocessing | None = None
    reasons: tuple[str, ...] = ()

    @property
    def run(self) -> Path | None:
        """The folder of the run; None if the weights alone were written."""
        return None if self.reasons else self.written

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        return {
            "source": str(self.source),
            "run": str(self.written) if self.run else None,
            "weights": None if self.run else str(self.written),
            "arrays": self.arrays,
            "numbers": self.numbers,
            "layers": self.layers,
            "input_shape": list(self.input_shape),
            "classes": list(self.classes),
            "preprocessing": None if self.normalize is None else vars(self.normalize),
            "not_expressed": list(self.reasons),
        }

    def as_text(self) -> str:
        """What was written, what it takes, and what to do with it."""
        size = f"{self.arrays} arrays, {self.numbers:,} numbers"
        if self.normalize is None:
            lines = [
                f"{self.source}: no layers compute it:",
                *(f"  {reason}" for reason in self.reasons),
                f"{self.written}: the weights alone, {size}, by their names in the file",
                f"to begin a training with them: --init-from {self.written}",
            ]
            return paragraph(lines)
        unit = 255.0 if len(self.input_shape) == 3 and self.input_shape[1:] != (1, 1) else 1.0
        mean, std = (
            listed([f"{each:.4g}" for each in numbers], _LISTED)
            for numbers in self.normalize.mean_and_std(unit)
        )
        names = listed([cut(name, _WIDEST) for name in self.classes], _LISTED)
        lines = [
            f"{self.written}: {self.layers} layers, {size}, from {self.source}",
            f"input    {shape_text(self.input_shape)}, normalised with mean {mean}, std {std}; if "
            "it was trained with others: --mean, --std",
            f"outputs  {len(self.classes)}: {names}",
        ]
        return paragraph(lines)
