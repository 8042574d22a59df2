"""Provenance: where a checkpoint comes from; with the arrays enough to evaluate and predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...backends.tuning import Tuning
from ...graph.graph import Shape
from ..preprocessing import Preprocessing
from .state import known


@dataclass(frozen=True)
class Provenance:
    """What stays the same while one process trains.

    ``config`` is the effective YAML, ``versions`` are those of the backend's libraries, and
    ``data_folder`` is where the data sets lay.
    """

    steps_per_epoch: int
    config: str
    dataset: str
    input_shape: Shape
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    tuning: Tuning
    versions: Mapping[str, str]
    data_folder: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "preprocessing": vars(self.preprocessing),
            "tuning": self.tuning.to_json(),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Provenance:
        """Raises KeyError, TypeError or ValueError where the table is not one of ours."""
        own = known(cls, table)
        scaling = own["preprocessing"]
        own["input_shape"] = tuple(int(side) for side in own["input_shape"])
        own["classes"] = tuple(str(name) for name in own["classes"])
        own["data_folder"] = str(own.get("data_folder", ""))
        own["preprocessing"] = Preprocessing(tuple(scaling["scale"]), tuple(scaling["shift"]))
        own["tuning"] = Tuning.from_json(own["tuning"])
        return cls(**own)
