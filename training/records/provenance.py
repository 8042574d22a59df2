"""Provenance: where a checkpoint comes from; with the arrays enough to evaluate and predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Interval, Len, MaxLen

from ...backends.tuning import Tuning
from ...common.typed_json import Count, Name
from ..preprocessing import Preprocessing

_MOST_CLASSES = 1 << 20
_LONGEST_PATH = 1 << 16
Side = Annotated[int, Interval(ge=1, le=1 << 20)]


@dataclass(frozen=True)
class Provenance:
    """What stays the same while one process trains.

    ``config`` is the effective YAML, ``versions`` are those of the backend's libraries, and
    ``data_folder`` is where the data sets lay. ``shared_parts``: the parts of a batch, if their
    number is that of the ranks with which the run began; else 0.
    """

    steps_per_epoch: Count
    config: str
    dataset: Name
    input_shape: Annotated[tuple[Side, ...], Len(3, 3)]
    classes: Annotated[tuple[Name, ...], Len(1, _MOST_CLASSES)]
    preprocessing: Preprocessing
    tuning: Tuning
    versions: Mapping[str, str]
    data_folder: Annotated[str, MaxLen(_LONGEST_PATH)] = ""
    shared_parts: Annotated[int, Interval(ge=0, le=1 << 20)] = 0

    def to_json(self) -> dict[str, Any]:
        # Without it where there is nothing to say, as before there were ranks.
        own = {key: value for key, value in vars(self).items() if value or key != "shared_parts"}
        return {
            **own,
            "preprocessing": vars(self.preprocessing),
            "tuning": self.tuning.to_json(),
            "versions": dict(self.versions),
        }

    def __post_init__(self) -> None:
        channels = self.input_shape[0]
        if not len(self.preprocessing.scale) == len(self.preprocessing.shift) == channels:
            raise ValueError(f"preprocessing is not for the {channels} channels of a picture")
