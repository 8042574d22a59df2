"""The training set that many trainings of one process have in common."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from ..configs import RunConfig
from ..datasets import Downloads, ImageSet, Split
from ..datasets.integer_pixels import Depth
from ..training.assemble import load_data


class Shelf:
    """Loads a data set as ``load_data`` does, and keeps the last one, for all threads."""

    def __init__(self) -> None:
        self._kept: tuple[object, ImageSet] | None = None
        self._loading = threading.Lock()

    def __call__(
        self,
        config: RunConfig,
        split: Split,
        root: Path,
        downloads: Downloads | None = None,
        bits: Depth | None = None,
    ) -> ImageSet:
        """Raises DatasetError."""
        chosen = config.data.dataset
        name = (chosen.type, repr(chosen.options()), split, root.absolute(), bits)
        with self._loading:
            if self._kept is not None and self._kept[0] == name:
                return self._kept[1]
            # What is kept needs memory that the next one may need.
            self._kept = None
            found = load_data(config, split, root, downloads, bits)
            # What a person should know of it is told to the first training alone.
            self._kept = name, replace(found, doubts=()) if found.doubts else found
            return found
