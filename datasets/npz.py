"""``npz``: samples and targets in NumPy's files; ``arrays``: those that a program gives itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..common.errors import DatasetError
from ..common.random import key, permutation
from ..common.records import dataclass
from ..common.targets import Kind
from .array_files import array_in, names_in
from .arrays import Axes, Named, arranged, as_targets, image_set
from .download import Downloads
from .identity import some
from .image_set import Dataset, DatasetInfo, ImageSet, Split, own_file

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
        """Reads the targets to train on, and what their file says of the inputs.

        Raises DatasetError.
        """
        x = arranged(self._found("train", root, False), self.axes)
        _, kind, names = as_targets(self._found("train", root, True, 1), self.kind, self.classes)
        facts = ("npz", x.shape[1:], names, None, None)
        return DatasetInfo(*facts, floats=x.dtype != np.uint8, kind=kind)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The arrays of a split; without any to test on, some of the samples of ``train``.

        Raises DatasetError.
        """
        info, divided = self.describe(root), split != "validation" and not self._tests(root)
        source: Split = "train" if divided else split
        x, y = (self._found(source, root, True, which) for which in range(2))
        found = image_set(f"npz/{split}", x, y, self.axes, info.kind, info.classes)
        if found.images.shape[1:] != info.shape or (found.images.dtype != np.uint8) != info.floats:
            raise DatasetError(
                f"{x[0]}: has the shape {x[1].shape} and the type {x[1].dtype}, which do not fit "
                "those of the samples to train on"
            )
        if not divided:
            return found
        order = permutation(key(0, "test samples"), 0, len(found)).astype(np.int32)
        held = math.ceil(len(found) * self.test_fraction)
        rows = np.sort(order[:held] if split == "test" else order[held:])
        return found.taken(rows, found.labels[rows], found.classes)

    def _tests(self, root: Path) -> bool:
        """Whether there are arrays to test on, perhaps in the file ``train``."""
        if self.test is not None or not isinstance(self.train, str):
            return self.test is not None
        return f"{self.inputs}_test" in names_in(own_file("npz.train", self.train, root))

    def _found(self, split: Split, root: Path, whole: bool, which: int = 0) -> Named:
        """The inputs (0) or the targets (1) of a split; see ``array_in``."""
        source = getattr(self, split) or self.train
        if not isinstance(source, str):
            path = own_file(f"npz.{split}", source[which], root)
            return str(path), array_in(path, "", whole)
        path, plain = own_file(f"npz.{split}", source, root), (self.inputs, self.targets)[which]
        there = names_in(path)
        wanted = (f"{plain}_{split}", f"{plain}_{split[:3]}", plain)
        name = next((name for name in wanted if name in there), None)
        if name is None:
            raise DatasetError(
                f"{path}: has no array '{plain}', but {some(there) or 'none at all'}; name it with "
                f"data.dataset.npz.{'targets' if which else 'inputs'}"
            )
        return f"{path}: '{name}'", array_in(path, name, whole)


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
