"""Tables of choices that ship with the package: timed on common cards, for the packaged configs.

A start without a table of its own takes one of these instead of a search. It must be for the same
card, the same network, precision and versions of the libraries (the third number of a version
aside) and for no newer driver. Each plan of cuDNN must have the name that it had then, and pass its
trial. Where anything differs, a search finds the choices. ``release/tuned.py`` writes the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path

from ....common.errors import CudnnError
from ....common.records import dataclass
from ....common.typed_json import from_json
from ...tuning import Tuning
from ..binding.bind import Binder

# What choices depend on: the numbers of plans and algorithms are those of these libraries.
LIBRARIES = ("cuDNN", "cuBLAS", "cudnn-frontend")
CARD, DRIVER, PRECISION = "GPU", "driver", "precision"
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """The choices of one network, by its mark; ``plans``: the names of cuDNN's among them."""

    config: str
    precision: str
    graph: str
    choices: Mapping[str, str]
    plans: Mapping[str, str] = field(default_factory=dict)

    def check(self, binders: Iterable[Binder]) -> None:
        """Raise CudnnError for a plan that is another, or does not keep its promises."""
        for binder in binders:
            for name, graph in binder.convolutions.items():
                if name not in self.plans:
                    continue
                if graph.plan_name != self.plans[name]:
                    reason = f"plan {graph.plan} is {graph.plan_name}, not {self.plans[name]}"
                    raise CudnnError("cuDNN frontend", "pygraph", reason, graph.shown)
                if not graph.keeps_promises():
                    reason = f"plan {graph.plan} does not keep its promises"
                    raise CudnnError("cuDNN frontend", "pygraph", reason, graph.shown)


@dataclass(frozen=True)
class Card:
    """All tables of a card and versions of the libraries, as a file holds them."""

    environment: Mapping[str, str]
    tables: tuple[Shipped, ...]


def shipped(wanted: Tuning, folder: Path = _FOLDER) -> Shipped | None:
    """The table for the environment and the graph of ``wanted``; None if there is none."""
    here = portable(wanted.environment)
    with suppress(OSError, ValueError):
        found = from_json((folder / file_name(here)).read_bytes(), Card)
        same = all(found.environment.get(name) == here[name] for name in (CARD, *LIBRARIES))
        if not same or _number(found.environment.get(DRIVER)) > _number(here[DRIVER]):
            return None
        for table in found.tables:
            of = (table.graph, table.precision)
            if of == (wanted.graph, wanted.environment.get(PRECISION)):
                return table
    return None


def of_card(name: str, graph: str, precision: str, folder: Path = _FOLDER) -> Card | None:
    """The one table for a card, a graph's mark and a precision, of whichever libraries; None if
    there is none."""
    for path in sorted(folder.glob("*.json"), reverse=True):
        found = from_json(path.read_bytes(), Card)
        for table in found.tables if found.environment.get(CARD) == name else ():
            if (table.graph, table.precision) == (graph, precision):
                return replace(found, tables=(table,))
    return None


def portable(environment: Mapping[str, str]) -> dict[str, str]:
    """What a table is for, of a backend's versions: libraries by their first two numbers."""
    kept = {name: environment.get(name, "") for name in (CARD, DRIVER)}
    for name in LIBRARIES:
        kept[name] = ".".join(environment.get(name, "").split(".")[:2])
    return kept


def file_name(environment: Mapping[str, str]) -> str:
    """The name of the file for such an environment."""
    parts = [environment[CARD], *(f"{name} {environment[name]}" for name in LIBRARIES)]
    return "_".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()) for part in parts) + ".json"


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
