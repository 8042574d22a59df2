"""What is in a folder of pictures: its layout, classes, sizes, colours, and what cannot be read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError, explaining
from ..common.records import dataclass
from .class_folders import PictureFile, find_classes, held_out, list_pictures
from .image_set import Split, unreadable
from .integer_pixels import Reading
from .picture_files import open_picture
from .picture_kinds import is_passed_over, is_read, kind_of
from .repeated import doubts

PARTS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val"),
    "test": ("test", "testing"),
}
# More pictures than this are looked at in a sample: a photograph takes up to 0.3 s.
EXAMINED = 1000
# The side to which a picture is reduced where its colours are looked at.
_SMALL = 32
# By how much the colours of a grey picture may differ, because JPEG stores them coarsely.
_NOT_GREY = 10.0
# A picture with a side below this many pixels is hardly one.
_TINY = 8
_DEEPEST = 5


@dataclass(frozen=True)
class Look:
    """One picture: height and width, whether it is grey, and what its colours are like: (6,).

    ``largest``: its largest integer of more than 8 bits, or -1.
    """

    height: int
    width: int
    grey: bool
    colours: NDArray[np.float64]
    largest: int


@dataclass(frozen=True)
class Survey:
    """A folder of pictures. folders: of train, and perhaps of validation and test.

    counts: the pictures of each class in each of them, without the broken ones.
    training: those of each class in train that are not held out for testing.
    looks: of the readable ones among the ``examined`` pictures, with their labels. broken: the
    others by name, with the reason. tiny: the names of pictures that are far smaller than the rest.
    unused: further folders beside those. doubts: of pictures that are there twice.
    others: what was passed over, with its number.
    """

    folder: Path
    folders: Mapping[Split, Path]
    classes: tuple[str, ...]
    counts: Mapping[Split, tuple[int, ...]]
    training: tuple[int, ...]
    examined: int
    looks: tuple[Look, ...]
    labels: NDArray[np.int64]
    broken: dict[str, str]
    others: Counter[str]
    unused: tuple[str, ...] = ()
    tiny: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """All pictures, in all parts."""
        return sum(chain(*self.counts.values()))

    @property
    def partial(self) -> bool:
        """Whether there are more files than were examined."""
        return self.examined < self.count + len(self.broken)


def survey(folder: Path, test_fraction: float, most: int = EXAMINED) -> Survey:
    """Look at the class folders in ``folder``, or in its parts train, val and test.

    A folder in which there is only one folder stands for that one. At most ``most`` pictures are
    decoded, as many of each class as its share. Raises DatasetError for what cannot be trained on.
    """
    if not os.path.exists(folder):
        raise DatasetError(f"{folder}: no such folder")
    if not os.path.isdir(folder):
        raise DatasetError(
            f"{folder}: is not a folder; name a folder with a folder of pictures for each class"
        )
    folder = _inner(folder)
    folders, unused = _parts(folder)
    train = folders["train"]
    _check_loose(train)
    classes, _ = find_classes(train)
    others: Counter[str] = Counter()
    parts: dict[Split, tuple[Path, list[PictureFile]]] = {}
    usable, chosen = {}, []
    for part, above in folders.items():
        by_class = list_pictures(above, classes, others, every=part == "train")
        usable[above], parts[part] = [*map(len, by_class)], (above, [*chain(*by_class)])
        share = most if part == "train" else max(most // 4, 1)
        chosen += [(above, each) for each in _sample(parts[part][1], share)]
        if part == "train" and "test" not in folders:
            # What cannot be read is left out only after this, of either part.
            both = held_out(by_class, test_fraction, _how_to_divide(train))
            parts["train"], parts["test"] = ((train, each) for each in both)
    kept = {f"{train}/{picture.name}": picture.label for picture in parts["train"][1]}
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
        found = list(threads.map(lambda each: _look(each[0] / each[1].name), chosen))
    seen: list[tuple[int, Look]] = []
    names: list[str] = []
    broken: dict[str, str] = {}
    for (above, picture), look in zip(chosen, found, strict=True):
        name = os.path.relpath(f"{above}/{picture.name}", folder)
        if isinstance(look, Look):
            seen.append((picture.label, look))
            names.append(name)
        else:
            broken[name] = str(look)
            kept.pop(f"{above}/{picture.name}", None)
            usable[above][picture.label] -= 1
    for label, name in enumerate(classes):
        if label not in {at for at, _ in seen}:
            raise DatasetError(
                f"{train / name}: none of its pictures can be read; the first: "
                f"{next(iter(broken.values()))}"
            )
    return Survey(
        folder,
        folders,
        classes,
        {part: tuple(usable[above]) for part, above in folders.items()},
        tuple([*kept.values()].count(label) for label in range(len(classes))),
        len(chosen),
        tuple(look for _, look in seen),
        np.array([label for label, _ in seen]),
        broken,
        others,
        unused,
        _tiny(names, [look for _, look in seen]),
        doubts(classes, parts),
    )


def _tiny(names: Sequence[str], looks: Sequence[Look]) -> tuple[str, ...]:
    """The pictures with a side below 8 pixels, unless those are usual here."""
    sides = [min(look.height, look.width) for look in looks]
    if np.median(sides) < 2 * _TINY:
        return ()
    return tuple(name for name, side in zip(names, sides, strict=True) if side < _TINY)


def _inner(folder: Path) -> Path:
    """The folder that unpacking an archive put everything into, if there is nothing beside it."""
    inner = folder
    for _ in range(_DEEPEST):
        folders, pictures = _content(inner)
        if len(folders) > 1 and not pictures:
            return inner
        if len(folders) != 1 or pictures:
            break
        inner = inner / folders[0]
    # A class by itself, or nothing at all.
    return folder


def _parts(folder: Path) -> tuple[dict[Split, Path], tuple[str, ...]]:
    """(the parts, names of what is beside them); the folder itself is train if not divided."""
    folders, _ = _content(folder)
    found: dict[Split, Path] = {}
    for part, names in PARTS.items():
        # A class may be called train: the parts of a data set have folders in them.
        least = 2 if part == "train" else 1
        there = (folder / name for known in names for name in folders if name.lower() == known)
        if path := next((each for each in there if len(_content(each)[0]) >= least), None):
            found[part] = path
    if "train" not in found or (len(found) == 1 and len(folders) > 1):
        return {"train": folder}, ()
    used = {path.name for path in found.values()}
    return found, tuple(name for name in folders if name not in used and len(found) > 1)


def _how_to_divide(train: Path) -> str:
    """How test pictures are given, for a folder that has none."""
    if train.name.lower() in PARTS["train"]:
        # Its parent may be what was named, or not.
        return (
            f"put test pictures into {train.parent / 'test'}, with the same folders as in {train}, "
            f"and name {train.parent}"
        )
    return (
        f"divide {train} into a folder 'train' and a folder 'test', each with a folder for each "
        "class"
    )


def _content(folder: Path) -> tuple[list[str], int]:
    """The names of the folders, sorted, and the number of pictures; without hidden ones."""
    with explaining(folder, "cannot be read", "", DatasetError):
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if not is_passed_over(entry.name, Counter())]
        folders = sorted(entry.name for entry in shown if entry.is_dir())
    files = [entry.name for entry in shown if not entry.is_dir()]
    return folders, sum(is_read(kind_of(folder / name), name, Counter()) for name in files)


def _check_loose(folder: Path) -> None:
    """Raise DatasetError where pictures are not in class folders."""
    folders, pictures = _content(folder)
    if pictures and len(folders) < 2:
        raise DatasetError(
            f"{folder}: has {pictures} pictures, but no folders that say what is on them; make a "
            "folder for each class, and move the pictures into these"
        )


def _sample(pictures: Sequence[PictureFile], most: int) -> list[PictureFile]:
    """All of them, or ``most`` at equal distances, so that each class has its share."""
    if len(pictures) <= most:
        return list(pictures)
    # Of a small class at least one.
    first = {picture.label: at for at, picture in reversed(list(enumerate(pictures)))}
    even = {at * len(pictures) // most for at in range(most)}
    return [pictures[at] for at in sorted(even | set(first.values()))]


def _look(path: Path) -> Look | DatasetError:
    # By its own largest value: that of the set is not known yet.
    reading = Reading(bits=None)
    try:
        image = open_picture(path, [], reading)
    except DatasetError as error:
        return error
    except OSError as error:
        return unreadable(path, error)
    width, height = image.size
    if image.mode == "L":
        return Look(height, width, True, np.zeros(6), reading.largest)
    small = image.convert("YCbCr").resize((_SMALL, _SMALL))
    tint = np.asarray(small, np.float64)[:, :, 1:] - 128.0
    quarter = _SMALL // 4
    middle = tint[quarter:-quarter, quarter:-quarter].mean((0, 1))
    colours = np.concatenate([tint.mean((0, 1)), tint.std((0, 1)), middle])
    return Look(height, width, bool(np.abs(tint).max() <= _NOT_GREY), colours, reading.largest)


def colours_tell(survey: Survey) -> tuple[float, float]:
    """(share of pictures whose class is right by their colours alone, share that would be needed).

    A linear discriminant of average colours and their spread answers for a fifth of the pictures
    at a time, learned from the others; every class counts the same. Needed is a fifth of what is
    wrong by chance, and at least three standard errors more than chance.
    """
    x = np.stack([look.colours for look in survey.looks])
    x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-6)
    labels, classes = survey.labels, len(survey.classes)
    right = np.zeros(len(x))
    for part in range(5):
        held = np.arange(len(x)) % 5 == part
        right[held] = _discriminant(x[~held], labels[~held], x[held], classes) == labels[held]
    shares = [right[labels == label].mean() for label in range(classes)]
    chance = 1.0 / classes
    error = np.sqrt(chance * (1.0 - chance) / len(x))
    return float(np.mean(shares)), chance + max(0.2 * (1.0 - chance), 3.0 * float(error))


def _discriminant(
    x: NDArray[np.float64], labels: NDArray[np.int64], asked: NDArray[np.float64], classes: int
) -> NDArray[np.int64]:
    """The nearest class of each row by the distance of Mahalanobis."""
    there = [label for label in range(classes) if (labels == label).any()]
    means = np.stack([x[labels == label].mean(0) for label in there])
    within = x - means[np.searchsorted(there, labels)]
    spread = within.T @ within / len(x) + 0.01 * np.eye(x.shape[1])
    turned = np.linalg.inv(np.linalg.cholesky(spread))
    gaps = (asked @ turned.T)[:, None] - (means @ turned.T)[None]
    return np.asarray(np.array(there)[np.square(gaps).sum(2).argmin(1)])
