"""The samples of a run: what it trains and validates on, in ``samples.json.gz`` of its folder.

One JSON object with a list for each field, an item a line, compressed: some 25 bytes a picture.
"""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Interval, Len, MaxLen

from ....common.errors import CheckpointError
from ....common.files import read_regular, sha256_bytes
from ....common.records import dataclass
from ....common.typed_json import Name, from_json
from ....datasets.gzip_file import GzipError, unpacked
from ....datasets.identity import Identity
from ....datasets.loader import Index
from .record import write_record

SAMPLES = "samples.json.gz"
TRAINED, VALIDATED = "t", "v"
# Bytes of the file, and how much larger its content may be.
_LONGEST, _LEAST_ROOM, _MOST_RATIO = 1 << 28, 1 << 24, 100

_Content = Annotated[str, MaxLen(64)]


@dataclass(frozen=True)
class Samples:
    """The samples that a run was begun with, in the order in which it counts them.

    parts: a letter for each, "t" for training, "v" for validation. digest, classes, labels, names
    and contents are those of ``Identity``; without names there are no labels either. earlier: the
    contents of other samples on which the network was trained from which the run begins.
    """

    digest: Annotated[str, Len(64, 64)]
    classes: Annotated[tuple[Name, ...], Len(1, 1 << 20)]
    parts: str
    labels: tuple[Annotated[int, Interval(ge=0, le=1 << 20)], ...] = ()
    names: tuple[Annotated[str, MaxLen(1 << 16)], ...] = ()
    contents: tuple[_Content, ...] = ()
    earlier: tuple[_Content, ...] = ()

    def __post_init__(self) -> None:
        lists = (self.labels, self.names, self.contents)
        if {*map(len, lists)} - {0, len(self.parts)} or bool(self.names) != bool(self.labels):
            raise ValueError("its lists have different lengths")
        if max(self.labels, default=0) >= len(self.classes):
            raise ValueError("a sample has no class")
        if self.parts.count(TRAINED) + self.parts.count(VALIDATED) != len(self.parts):
            raise ValueError("a sample is in another part than 't' and 'v'")

    @classmethod
    def of(cls, identity: Identity, validation: Index, earlier: tuple[str, ...] = ()) -> Samples:
        """Of samples that are trained on, but for the places ``validation``."""
        parts = np.full(len(identity.labels), ord(TRAINED), np.uint8)
        parts[validation] = ord(VALIDATED)
        labels = tuple(identity.labels.tolist()) if identity.names else ()
        # Bytes that are no text are written as escapes: such names are found by their contents.
        names = tuple(name.encode("utf-8", "backslashreplace").decode() for name in identity.names)
        own = (identity.digest, identity.classes, parts.tobytes().decode(), labels, names)
        return cls(*own, identity.contents, earlier)

    @property
    def mark(self) -> str:
        """A digest of all that decides what is trained and validated on: 64 digits."""
        return sha256_bytes(f"{self.digest} {self.parts}".encode())

    @property
    def identity(self) -> Identity:
        labels = np.array(self.labels or (0,) * len(self.parts), np.int32)
        return Identity(self.classes, labels, self.names, self.contents, self.digest)

    def places(self, part: str) -> Index:
        """Those of a part, ascending."""
        letters = np.frombuffer(self.parts.encode(), np.uint8)
        return np.flatnonzero(letters == ord(part)).astype(np.int32)

    def trained_contents(self) -> set[str]:
        """Of the samples that are trained on, and of those on which an ancestor was trained."""
        places = self.places(TRAINED).tolist() if self.contents else ()
        return {self.contents[at] for at in places} | {*self.earlier}


def write_samples(run: Path, samples: Samples) -> None:
    """Write the list into the folder of a run. Raises CheckpointError."""
    text = json.dumps(vars(samples), indent=0)
    # The same bytes at any time.
    write_record(run, SAMPLES, gzip.compress(text.encode(), 6, mtime=0))


def read_samples(run: Path) -> Samples | None:
    """The samples of the run in this folder; None if it has no list. Raises CheckpointError."""
    try:
        packed = read_regular(run / SAMPLES, _LONGEST)
        most = _LEAST_ROOM + _MOST_RATIO * len(packed)
        text = unpacked(io.BytesIO(packed)).read(most + 1)
        if len(text) > most:
            raise ValueError("it is larger than any such list")
        return from_json(text, Samples)
    except FileNotFoundError:
        return None
    except (OSError, GzipError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"{run / SAMPLES}: the list of the run's samples cannot be used: {why}; put back a "
            "copy, or remove it to go on without it"
        ) from None
