"""``image_folder``: pictures of any size, in a folder for each class, scaled to one size."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, get_args

from ..common.errors import DatasetError
from ..common.printable import UTF8_LOCALE, unnameable
from ..common.records import dataclass
from .class_folders import PictureFile, find_classes, held_out, list_pictures
from .decoding import Decoding, decoded_pictures
from .download import Downloads
from .image_set import Dataset, DatasetInfo, ImageSet, Split
from .integer_pixels import Depth
from .picture_kinds import passed_over_text
from .repeated import doubts

_LOG = logging.getLogger("dnnstack.datasets")

CHANNELS = {"rgb": 3, "grey": 1}


@dataclass(frozen=True)
class ImageFolder(Dataset):
    """size: of all pictures, or (height, width); a config must give it, and ``train``.

    bits: the depth of integer pixels; by default, that of the pictures in ``train``. The other
    options are described in the schema of configs.
    """

    about = "the pictures are in the folders that the config names"
    train: str = ""
    validation: str | None = None
    test: str | None = None
    test_fraction: float = 0.2
    size: int | tuple[int, int] = 0
    fit: Literal["crop", "resize"] = "crop"
    mode: Literal["rgb", "grey"] = "rgb"
    classes: int | Sequence[str] | None = None
    on_error: Literal["stop", "skip"] = "stop"
    draft: bool | None = None
    bits: Depth | None = None

    def describe(self, root: Path) -> DatasetInfo:
        """Shape and classes; reads no picture, and no folder if ``classes`` are given.

        Raises DatasetError if the folder is wrong, or if no size is given.
        """
        if not self.size:
            raise DatasetError(
                "dataset 'image_folder', option 'size': expects a number of pixels from 1 to 4096, "
                "or (height, width)"
            )
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        left_out: tuple[str, ...] = ()
        if self.classes is None:
            folder = self._folder("train", root)
            classes, empty = find_classes(folder)
            left_out = tuple(str(folder / name) for name in empty)
        elif isinstance(self.classes, int):
            classes = tuple(map(str, range(self.classes)))
        else:
            classes = tuple(self.classes)
        shape = (CHANNELS[self.mode], height, width)
        return DatasetInfo("image_folder", shape, classes, None, None, left_out=left_out)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The split's pictures, class by class, each class in the order of the files' names.

        Without the option ``test``, the test pictures are held out of those in ``train``. Raises
        DatasetError for an unsuitable folder, and for a file that cannot be read, unless
        ``on_error`` is ``skip``: then a warning names the file, and it is left out.
        """
        info = self.describe(root)
        # A test needs no pictures to train on.
        needed = split == "train" or self.test is None or isinstance(self.classes, int)
        folder = self._folder("train", root) if needed else _path(root, self.train)
        classes = self._names(folder, info)
        others: Counter[str] = Counter()
        parts: dict[Split, tuple[Path, list[PictureFile]]] = {}
        source = "train" if split == "test" and self.test is None else split
        for part in get_args(Split):
            # Problems of all pictures are reported before the training, not after it.
            if getattr(self, part) is None or (part != source and split != "train"):
                continue
            above = folder if part == "train" else self._folder(part, root)
            passed = others if part == source else Counter[str]()
            by_class = list_pictures(above, classes, passed, every=part == "train")
            parts[part] = above, [*chain(*by_class)]
            if part == "train" and self.test is None:
                both = held_out(by_class, self.test_fraction)
                parts["train"], parts["test"] = ((above, each) for each in both)
        folder, pictures = parts[split]
        if text := passed_over_text(others):
            _LOG.warning("%s: %s", folder, text)
        draft, skip = self.draft, self.on_error == "skip"
        how = Decoding(info.shape, self.fit == "resize", skip, draft, self.bits)
        trained = None if split == "train" else lambda: self.load("train", root, downloads).bits
        name = f"image_folder-{split}"
        found = decoded_pictures(name, folder, pictures, how, trained, classes)
        parts[split] = folder, found.used
        doubtful = doubts(classes, parts, found.contents) if split == "train" else ()
        place = folder.absolute()
        return ImageSet(
            f"image_folder/{split}",
            found.images,
            found.labels,
            classes,
            tuple(f"{place}/{p.name}" for p in found.used),
            names=tuple(p.name for p in found.used),
            contents=found.contents,
            doubts=doubtful,
            bits=found.bits,
        )

    def _folder(self, key: Split, root: Path) -> Path:
        """The folder that this option names. Raises DatasetError if there is none."""
        name = str(getattr(self, key))
        folder = _path(root, name)
        if folder.exists():
            return folder
        place = f"data.dataset.image_folder.{key}: there is no folder '{name}'"
        if unnameable(name):
            raise DatasetError(
                f"{place}, because the encoding of this locale, {sys.getfilesystemencoding()}, "
                f"lacks characters of its name; {UTF8_LOCALE}"
            )
        if Path(name).expanduser().is_absolute():
            raise DatasetError(f"{place}; if the pictures were moved, write where they are now")
        raise DatasetError(
            f"{place}. If the pictures were moved, write where they are now, or name the folder in "
            "which they are with --data-dir. A relative path counts from the folder of the config "
            f"or, if there is no such folder, from the data folder, which is {root}. summary and "
            "explain need no pictures where the config gives the number of classes, as in "
            "classes: 5 beside 'train'"
        )

    def _names(self, folder: Path, info: DatasetInfo) -> tuple[str, ...]:
        """The names of the classes in the order of their labels, read if only a number is given."""
        if not isinstance(self.classes, int):
            return info.classes
        found, _ = find_classes(folder)
        if len(found) != len(info.classes):
            raise DatasetError(
                f"{folder}: contains {len(found)} class folders, but the config says classes: "
                f"{len(info.classes)}"
            )
        return found


def _path(root: Path, name: str) -> Path:
    return root / Path(name).expanduser()
