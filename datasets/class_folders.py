"""Folders with a subfolder for each class, and the pictures in them."""

from __future__ import annotations

import logging
import os
import stat
import sys
from pathlib import Path

from ..common.errors import DatasetError
from ..common.files import sha256_bytes
from ..common.printable import UTF8_LOCALE, misread
from ..common.records import dataclass
from ..common.text import listed, nfc
from .decoded import file_stamp
from .image_set import unreadable
from .picture_files import SUFFIXES

_LOG = logging.getLogger("dnnstack.datasets")
_LISTED = 5


@dataclass(frozen=True)
class PictureFile:
    """A file below the folder of its class; name: its path below the class folders' folder.

    stamp: its ``file_stamp``, which begins with its size.
    """

    name: str
    label: int
    stamp: tuple[int, ...]


def class_names(folder: Path) -> tuple[str, ...]:
    """The names of the class folders, sorted. Raises DatasetError for fewer than two.

    A folder in which there are only hidden files is not one of them; in any other there must be a
    picture, or a folder.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
        names = [name for name in names if not _only_hidden(folder / name)]
    except OSError as error:
        raise DatasetError(
            f"{folder}: cannot be read ({error.strerror or error}); it should contain a folder of "
            "pictures for each class"
        ) from None
    for name in names:
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
    forms: dict[str, str] = {}
    for name in names:
        if (twin := forms.setdefault(nfc(name), name)) != name:
            raise DatasetError(
                f"{folder}: the folders {twin!a} and {name!a} have one name in two forms of "
                "Unicode, so they are one class; move the pictures of one into the other"
            )
    if len(names) < 2:
        found = f"contains only the folder '{names[0]}'" if names else "contains no folders"
        raise DatasetError(
            f"{folder}: {found}; it should contain a folder of pictures for each of at least two "
            "classes"
        )
    for name in names:
        # Before anything is said of a network that has another number of classes.
        if not _may_have_pictures(folder / name):
            raise _no_picture(folder / name)
    return tuple(names)


def _no_picture(folder: Path) -> DatasetError:
    return DatasetError(
        f"{folder}: no picture in this class folder; looked for {', '.join(SUFFIXES)}. Put "
        "pictures there, or remove the folder"
    )


def _may_have_pictures(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            found = (entry for entry in entries if not entry.name.startswith("."))
            return any(e.name.lower().endswith(SUFFIXES) or e.is_dir() for e in found)
    except OSError:
        # Reading the pictures says why not.
        return True


def hidden_folders(folder: Path) -> tuple[str, ...]:
    """The folders that are no classes because they contain only hidden files, sorted."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError:
        return ()
    return tuple(name for name in names if _only_hidden(folder / name))


def _only_hidden(folder: Path) -> bool:
    try:
        found = os.listdir(folder)
    except OSError:
        return False
    return bool(found) and all(name.startswith(".") for name in found)


def list_pictures(folder: Path, classes: tuple[str, ...]) -> list[list[PictureFile]]:
    """For each class the files with the suffix of a picture, at any depth, sorted by name.

    Hidden files and folders are left out; links are followed, but not in cycles. Raises
    DatasetError if the class folders are not those of ``classes``, by their names in NFC, or one is
    empty.
    """
    found = {nfc(name): name for name in class_names(folder)}
    known = {nfc(name): name for name in classes}
    unknown = [name for form, name in found.items() if form not in known]
    missing = [name for form, name in known.items() if form not in found]
    if unknown or missing:
        parts = (("unknown", unknown), ("missing", missing))
        told = "; ".join(f"{what}: {listed(names, _LISTED)}" for what, names in parts if names)
        raise DatasetError(
            f"{folder}: its folders are not those of the {len(classes)} classes ({told})"
        )
    by_class = []
    for label, name in enumerate(found[form] for form in known):
        pictures: list[PictureFile] = []
        others = _walk(folder / name, name, label, pictures, ())
        if others:
            _LOG.info("%s: %d files do not have the suffix of a picture", folder / name, others)
        if not pictures:
            raise _no_picture(folder / name)
        by_class.append(sorted(pictures, key=lambda picture: picture.name))
    return by_class


def _walk(
    folder: Path,
    below: str,
    label: int,
    pictures: list[PictureFile],
    above: tuple[tuple[int, int], ...],
) -> int:
    """Append the files in ``folder``; return how many were left out. above: its parents."""
    others = 0
    try:
        own = os.stat(folder)
        identity = own.st_dev, own.st_ino
        # A link to a parent folder would never end.
        if identity in above:
            return 0
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in found:
            name = f"{below}/{entry.name}"
            if entry.is_dir():
                inside = folder / entry.name
                others += _walk(inside, name, label, pictures, (*above, identity))
            elif entry.name.lower().endswith(SUFFIXES):
                pictures.append(_picture(entry, name, label))
            else:
                others += 1
    except OSError as error:
        raise unreadable(folder, error) from None
    return others


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
