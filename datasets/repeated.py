"""Pictures that are there more than once: in training and in test, or under two classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ..common.files import sha256_file
from ..common.machine import available_threads
from .class_folders import PictureFile
from .decoded import remembered
from .identity import CONTENT_DIGITS, some

# More threads do not read faster from one disk.
_THREADS = 8
_UNKNOWN = " " * CONTENT_DIGITS
Sample = tuple[str, int, str]
"""A name, a label and a content, which is empty if it is not known."""


def found_twice(
    folder: Path,
    pictures: Sequence[PictureFile],
    contents: Sequence[str],
    beside: Path,
    tests: Sequence[PictureFile],
) -> tuple[str, ...]:
    """``doubts`` of the pictures in ``folder`` and of those to test on, in the folder ``beside``.

    contents: of the pictures, if they are known.
    """
    sizes = Counter(picture.stamp[0] for picture in (*pictures, *tests))
    parts = []
    for above, part, known in ((folder, pictures, contents), (beside, tests, ())):
        found = zip(part, known or _hashed(above, part, sizes), strict=True)
        parts.append([(f"{above.name}/{p.name}", p.label, content) for p, content in found])
    return doubts(*parts)


def _hashed(
    folder: Path, pictures: Sequence[PictureFile], sizes: Mapping[int, int]
) -> Sequence[str]:
    """The contents of those of whose size there are several files: no others can be the same."""
    asked = [picture.stamp[0] > 0 and sizes[picture.stamp[0]] > 1 for picture in pictures]

    def content(picture: PictureFile, wanted: bool) -> str:
        # Who reads the picture says why it cannot be read.
        with suppress(OSError):
            return sha256_file(folder / picture.name)[:CONTENT_DIGITS] if wanted else _UNKNOWN
        return _UNKNOWN

    def compute() -> dict[str, str]:
        with ThreadPoolExecutor(min(available_threads(), _THREADS)) as pool:
            return {"contents": "".join(pool.map(content, pictures, asked))}

    if not any(asked):
        return [""] * len(pictures)
    every = zip(pictures, asked, strict=True)
    stamps = ["contents", str(folder.resolve()), *([p.name, *p.stamp, each] for p, each in every)]
    return split_contents(remembered(stamps, ("contents",), compute)["contents"])


def split_contents(joined: str) -> tuple[str, ...]:
    """The contents of which a text consists."""
    places = range(0, len(joined), CONTENT_DIGITS)
    return tuple(joined[at : at + CONTENT_DIGITS].strip() for at in places)


def doubts(train: Sequence[Sample], test: Sequence[Sample]) -> tuple[str, ...]:
    """What a person should know of pictures that are there twice: a text for each kind."""
    trained = _by_content(train)
    both = [
        f"{name} = {next(iter(trained[content].values()))}"
        for name, _, content in test
        if content in trained
    ]
    named = _by_content((*train, *test)).values()
    several = [" = ".join(names.values()) for names in named if len(names) > 1]
    told = {
        f"under several classes ({len(several):,}): {some(several)}; keep each in the class to "
        "which it belongs": several,
        f"in test and in training ({len(both):,}): {some(both)}; remove them from one of the two, "
        "because a test on what was trained on says nothing of new pictures": both,
    }
    return tuple(f"identical pictures {text}" for text, found in told.items() if found)


def _by_content(part: Iterable[Sample]) -> dict[str, dict[int, str]]:
    """For each content and label the first name."""
    found: dict[str, dict[int, str]] = {}
    for name, label, content in part:
        if content:
            found.setdefault(content, {}).setdefault(label, name)
    return found
