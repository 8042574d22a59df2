"""Folders with a subfolder for each class, and the pictures in them."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..common.errors import DatasetError, explaining
from ..common.files import sha256_bytes
from ..common.printable import UTF8_LOCALE, misread
from ..common.records import dataclass
from ..common.text import listed, nfc
from .decoded import file_stamp, remembered
from .identity import unknown
from .picture_kinds import (
    NO_PICTURE,
    PICTURE,
    is_named_so,
    is_passed_over,
    is_read,
    kind_of,
    passed_over_text,
)

_LISTED = 5


@dataclass(frozen=True)
class PictureFile:
    """A file below the folder of its class; name: its path below the class folders' folder.

    stamp: its ``file_stamp``, which begins with its size.
    """

    name: str
    label: int
    stamp: tuple[int, ...]


def find_classes(
    folder: Path, others: Counter[str] | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(class folders, those that are none because there is no picture in them), each sorted.

    What is no class is counted in ``others``. Raises DatasetError for fewer than two classes.
    """
    others = Counter() if others is None else others
    advice = "it should contain a folder of pictures for each class"
    with explaining(folder, "cannot be read", advice, DatasetError), os.scandir(folder) as entries:
        shown = [each for each in entries if not is_passed_over(each.name, others)]
        folders = sorted(each.name for each in shown if each.is_dir())
    for name in folders:
        if not name.isprintable() and (meant := misread(name)):
            raise DatasetError(
                f"{folder}: the name of the folder {meant!a} is UTF-8, but the encoding of this "
                f"locale is {sys.getfilesystemencoding()}; {UTF8_LOCALE}"
            )
        if not name.isprintable():
            raise DatasetError(
                f"{folder}: the name of the folder {name!a} has control characters or bytes that "
                "are not text, and cannot name a class; rename the folder"
            )
    # Before anything is said of a network that has another number of classes.
    names = tuple(name for name in folders if _has_pictures(folder / name))
    empty = tuple(name for name in folders if name not in names)
    others.update(f"folder {name} without pictures" for name in empty)
    forms: dict[str, str] = {}
    for name in names:
        if (twin := forms.setdefault(nfc(name), name)) != name:
            raise DatasetError(
                f"{folder}: the folders {twin!a} and {name!a} have one name in two forms of "
                "Unicode, so they are one class; move the pictures of one into the other"
            )
    if len(names) < 2:
        found = f"contains only the folder '{names[0]}'" if names else "contains no folders"
        found += f" with pictures: there are none in {listed(empty, _LISTED)}" if empty else ""
        raise DatasetError(
            f"{folder}: {found}; it should contain a folder of pictures for each of at least two "
            "classes"
        )
    return names, empty


def _has_pictures(folder: Path) -> bool:
    """Whether there is a picture, be it one that is not read."""
    try:
        return any(kind_of(folder / each.name) for each in _files(folder, "", 0, Counter()))
    except DatasetError:
        # Reading the pictures says why not.
        return True


def list_pictures(
    folder: Path, classes: tuple[str, ...], others: Counter[str], every: bool = True
) -> list[list[PictureFile]]:
    """For each class its pictures, at any depth, sorted by name.

    Hidden files and folders are left out; links are followed, but not in cycles. What else is
    passed over is counted in ``others``. Raises DatasetError if the class folders are not those of
    ``classes``, by their names in NFC, or one is empty; without ``every``, one may be.
    """
    names, empty = find_classes(folder, others)
    found = {nfc(name): name for name in (*empty, *names)}
    known = {nfc(name): name for name in classes}
    parts = (("unknown", unknown(classes, names)), ("missing", unknown((*empty, *names), classes)))
    if any(names for _, names in parts):
        told = "; ".join(f"{what}: {listed(names, _LISTED)}" for what, names in parts if names)
        raise DatasetError(
            f"{folder}: its folders are not those of the {len(classes)} classes ({told})"
        )
    by_class = []
    for label, name in enumerate(found[form] for form in known):
        passed: Counter[str] = Counter()
        files = sorted(_files(folder / name, f"{name}/", label, passed), key=lambda f: f.name)
        kinds = _kinds(folder, files)
        by_class.append([f for f in files if is_read(kinds[f.name], f.name, passed)])
        others.update(passed)
        if not by_class[-1] and (every or name not in empty):
            told = f"{NO_PICTURE}; {passed_over_text(passed)}".rstrip("; ")
            raise DatasetError(f"{folder / name}: {told}. Put pictures there, or remove the folder")
    return by_class


def _kinds(folder: Path, files: Sequence[PictureFile]) -> dict[str, str]:
    """What each file is; those whose names do not say it are looked into once."""
    kinds = {file.name: PICTURE for file in files}
    if unsure := [file for file in files if not is_named_so(file.name)]:

        def look() -> dict[str, str]:
            return {"kinds": json.dumps({f.name: kind_of(folder / f.name) for f in unsure})}

        stamps = ["kinds", str(folder.resolve()), *(vars(file) for file in unsure)]
        kinds |= json.loads(remembered(stamps, ("kinds",), look)["kinds"])
    return kinds


def _files(
    folder: Path,
    below: str,
    label: int,
    others: Counter[str],
    above: tuple[tuple[int, int], ...] = (),
) -> Iterator[PictureFile]:
    """The files in ``folder`` and below it, their names after ``below``; above: its parents."""
    with explaining(folder, "cannot be read", "", DatasetError):
        own = os.stat(folder)
        identity = own.st_dev, own.st_ino
        # A link to a parent folder would never end.
        if identity in above:
            return
        inside = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_passed_over(entry.name, others):
                    continue
                if entry.is_dir():
                    inside.append(entry.name)
                else:
                    yield _picture(entry, f"{below}{entry.name}", label)
    for name in inside:
        yield from _files(folder / name, f"{below}{name}/", label, others, (*above, identity))


def _picture(entry: os.DirEntry[str], name: str, label: int) -> PictureFile:
    try:
        status = entry.stat()
    except OSError:
        # A broken link: reading it later reports the file's name.
        return PictureFile(name, label, (-1,))
    return PictureFile(name, label, file_stamp(status) if stat.S_ISREG(status.st_mode) else (-1,))


def held_out(
    by_class: list[list[PictureFile]],
    fraction: float,
    instead: str = "name a folder of test pictures with the key 'test'",
) -> tuple[list[PictureFile], list[PictureFile]]:
    """Split into (training, test): about ``fraction`` of each class for testing, at least one.

    A hash of a picture's name decides, so that the split hardly depends on the other pictures.
    Raises DatasetError for a class with a single picture; ``instead``: what to do then, other than
    to add pictures.
    """
    rest: list[PictureFile] = []
    held: list[PictureFile] = []
    for pictures in by_class:
        if len(pictures) < 2:
            raise DatasetError(
                f"{pictures[0].name} is the only picture of its class, so none is left for "
                f"testing; add pictures, or {instead}"
            )
        ranked = sorted(pictures, key=lambda p: (sha256_bytes(os.fsencode(p.name)), p.name))
        count = min(max(round(len(pictures) * fraction), 1), len(pictures) - 1)
        chosen = {picture.name for picture in ranked[:count]}
        held += [picture for picture in pictures if picture.name in chosen]
        rest += [picture for picture in pictures if picture.name not in chosen]
    return rest, held
