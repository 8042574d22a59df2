"""Provenance: where a checkpoint comes from; with the arrays enough to evaluate and predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from annotated_types import Interval, Len, MaxLen

from ....backends.tuning import Tuning
from ....common.records import dataclass
from ....common.targets import Kind
from ....common.typed_json import Count, Name
from ....datasets.columns import Columns
from ....datasets.integer_pixels import Depth
from ...preprocessing import Preprocessing

_MOST_CLASSES = 1 << 20
_LONGEST_PATH = 1 << 16
_MOST_OVERRIDES, _LONGEST_OVERRIDE = 1 << 10, 1 << 16
# Those that many checkpoints do not have.
OPTIONAL = (
    *("begun_from", "shared_parts", "overrides", "pixel_bits", "numerics", "samples"),
    *("kind", "floats", "columns", "taught_by"),
)
Side = Annotated[int, Interval(ge=1, le=1 << 20)]


@dataclass(frozen=True)
class BegunFrom:
    """The file that a training took its first weights from: ``taken`` arrays of it.

    ``layout`` says whose names they had: those of dnnstack or of pytorch. ``file_sha256`` must not
    be called ``sha256``, as the checkpoint's own digest is.
    """

    path: Annotated[str, MaxLen(_LONGEST_PATH)]
    file_sha256: Annotated[str, Len(64, 64)]
    layout: Name
    taken: Count


@dataclass(frozen=True)
class Provenance:
    """What stays the same while one process trains.

    ``config`` is the effective YAML, ``versions`` are those of ``versions_of``,
    ``data_folder`` is where the data sets lay, and ``begun_from`` where ``init_from`` led to.
    ``shared_parts``: the parts of a batch, if their number is that of the ranks with which the run
    began; else 0. ``overrides``: of the command, by which the config differs from its file.
    ``pixel_bits``: the depth of integer pixels of more than 8 bits, by the pictures trained on.
    ``numerics``: see ``NUMERICS``.
    ``samples``: ``mark`` of those that the run was begun with, if that was recorded. ``kind``: of
    the targets, whose names ``classes`` are. ``floats``: samples are float32.
    ``columns``: of a table in a file. ``taught_by``: where ``loss.teacher`` led to.
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
    begun_from: BegunFrom | None = None
    shared_parts: Annotated[int, Interval(ge=0, le=1 << 20)] = 0
    overrides: Annotated[
        tuple[Annotated[str, MaxLen(_LONGEST_OVERRIDE)], ...], MaxLen(_MOST_OVERRIDES)
    ] = ()
    pixel_bits: Depth = 16
    numerics: Count = 0
    samples: Annotated[str, MaxLen(64)] = ""
    kind: Kind = "class"
    floats: bool = False
    columns: Columns | None = None
    taught_by: BegunFrom | None = None

    @property
    def known(self) -> Depth | Columns:
        """What ``load_data`` reads own data by."""
        return self.columns or self.pixel_bits

    def to_json(self) -> dict[str, Any]:
        table = {
            **vars(self),
            "preprocessing": vars(self.preprocessing),
            "tuning": self.tuning.to_json(),
            "versions": dict(self.versions),
            "begun_from": self.begun_from and vars(self.begun_from),
            "columns": self.columns and asdict(self.columns),
            "taught_by": self.taught_by and vars(self.taught_by),
        }
        # Without what there is nothing to say of, as before there was such.
        return {
            key: value
            for key, value in table.items()
            if key not in OPTIONAL or value != getattr(Provenance, key)
        }

    def __post_init__(self) -> None:
        channels = self.input_shape[0]
        if not len(self.preprocessing.scale) == len(self.preprocessing.shift) == channels:
            raise ValueError(f"preprocessing is not for the {channels} channels of a picture")
