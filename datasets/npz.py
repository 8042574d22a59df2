"""``npz``: samples and targets in NumPy's files; ``arrays``: those that a program gives itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.random import key, permutation
from ..common.records import dataclass
from ..common.targets import Kind
from .array_files import array_in, names_in
from .arrays import Axes, arranged, as_targets, image_set
from .download import Downloads
from .identity import some
from .image_set import Dataset, DatasetInfo, ImageSet, Split

Source: TypeAlias = "str | tuple[str, str]"
"""An ``.npz`` file, or two ``.npy`` files, of inputs and of targets."""


@dataclass(frozen=True)
class Npz(Dataset):
    about = "the arrays are in the files that the config names"
    train: Source = ""
    validation: Source | None = None
    test: Source | None = None
    test_fraction: float = 0.2
    inputs: str = "x"
    targets: str = "y"
    axes: Axes | None = None
    kind: Kind | None = None
    classes: tuple[str, ...] | None = None

    def describe(self, root: Path) -> DatasetInfo:
        """Reads the targets to train on, and of all else what the files say of it.

        Raises DatasetError.
        """
        x, y = self._found("train", root, False), self._found("train", root, True, 1)
        shape = arranged(*x, self.axes).shape
        _, kind, names = as_targets(*y, self.kind, self.classes)
        counts = [
            len(self._found(split, root, False)[1]) if self._has(split, root) else None
            for split in ("validation", "test")
        ]
        train, test = map(len, self._divided(shape[0]))
        return DatasetInfo(
            *("npz", shape[1:], names, train if counts[1] is None else shape[0]),
            test if counts[1] is None else counts[1],
            floats=x[1].dtype != np.uint8,
            kind=kind,
            validation_count=counts[0],
        )

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The arrays of a split; if there are none to test on, of the samples to train on some.

        Raises DatasetError.
        """
        info, tested = self.describe(root), self._has("test", root)
        source: Split = split if tested or split == "validation" else "train"
        x, y = (self._found(source, root, True, which) for which in range(2))
        found = image_set(f"npz/{split}", x, y, self.axes, info.kind, info.classes)
        if found.images.shape[1:] != info.shape or (found.images.dtype != np.uint8) != info.floats:
            raise DatasetError(
                f"{x[0]}: has the shape {x[1].shape} and type {x[1].dtype}, which do not fit those "
                "of the samples to train on"
            )
        if tested or split == "validation":
            return found
        rows = self._divided(len(found))[split == "test"]
        return found.taken(rows, found.labels[rows], found.classes)

    def _has(self, split: Split, root: Path) -> bool:
        """Whether there are arrays for this split, perhaps test samples in the file ``train``."""
        if getattr(self, split) is not None or split != "test" or isinstance(self.train, tuple):
            return getattr(self, split) is not None
        return f"{self.inputs}_test" in names_in(self._path("train", self.train, root))

    def _found(
        self, split: Split, root: Path, whole: bool, which: int = 0
    ) -> tuple[str, NDArray[Any]]:
        """The inputs (0) or the targets (1) of a split, and what they are called."""
        source = getattr(self, split) or self.train
        if not isinstance(source, str):
            path = self._path(split, source[which], root)
            return str(path), array_in(path, "", whole)
        path, plain = self._path(split, source, root), (self.inputs, self.targets)[which]
        wanted = [f"{plain}_{split}", plain] + [f"{plain}_val"] * (split == "validation")
        there = names_in(path)
        name = next((name for name in wanted if name in there), None)
        if name is None:
            key = "targets" if which else "inputs"
            raise DatasetError(
                f"{path}: has no array '{plain}', but {some(there) or 'none at all'}; name the one "
                f"with the {key}: data.dataset.npz.{key}"
            )
        return f"{path}: '{name}'", array_in(path, name, whole)

    def _path(self, split: Split, name: str, root: Path) -> Path:
        path = root / Path(name).expanduser()
        if not path.exists():
            raise DatasetError(
                f"data.dataset.npz.{split}: there is no file '{name}'; a relative path counts from "
                f"the folder of the config or, if it is not there, from the data folder, {root}, "
                "which --data-dir names"
            )
        return path

    def _divided(self, count: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The samples to train on and those held out for testing, whatever the config's seed."""
        order = permutation(key(0, "test samples"), 0, count)
        held = math.ceil(count * self.test_fraction)
        train, test = (np.sort(part).astype(np.int32) for part in (order[held:], order[:held]))
        return train, test


@dataclass(frozen=True)
class Given(Dataset):
    """``arrays``: the config of a run says what the program's arrays are like, but has none."""

    about = "the arrays are in the program that trains"
    shape: tuple[int, int, int] = (1, 1, 1)
    floats: bool = False
    kind: Kind = "class"
    classes: tuple[str, ...] = ()
    axes: Axes | None = None
    validation: bool | None = None

    def describe(self, root: Path) -> DatasetInfo:
        """What the program said of them."""
        facts = ("arrays", self.shape, self.classes, None, None)
        return DatasetInfo(*facts, floats=self.floats, kind=self.kind)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """Raises DatasetError."""
        raise DatasetError(
            "data.dataset.arrays: the arrays are in the program that trained; give them there, "
            "dnnstack.train(..., data=(x, y)) or model.evaluate(x, y), or save them with "
            "numpy.savez and name the file in the config, dataset: {npz: {train: FILE}}"
        )
