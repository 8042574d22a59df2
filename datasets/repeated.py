"""Pictures that are there more than once: in training and in test, or under two classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..common.files import sha256_file
from ..common.machine import available_threads
from .class_folders import PictureFile
from .decoded import remembered
from .identity import CONTENT_DIGITS, some

# More threads do not read faster from one disk.
_THREADS = 8
Sample = tuple[str, int, str]
"""A name, a label and a content, which is empty if it is not known."""


def found_twice(
    folder: Path,
    pictures: Sequence[PictureFile],
    contents: Sequence[str] | None,
    beside: Path,
    tests: Sequence[PictureFile],
) -> tuple[str, ...]:
    """``doubts`` of the pictures in ``folder``, with their contents if known, and those to test on.

    Only files of the same size can be the same, so that no others are read.
    """
    counts = Counter(picture.stamp[0] for picture in (*pictures, *tests))
    sizes = {size for size, count in counts.items() if count > 1 and size > 0}
    if contents is None:
        train = hashed(folder, pictures, sizes)
    else:
        train = named(folder, pictures, contents)
    return doubts(train, hashed(beside, tests, sizes))


def hashed(folder: Path, pictures: Sequence[PictureFile], sizes: set[int]) -> list[Sample]:
    """Those of the pictures that have one of these sizes, with their contents, remembered."""
    chosen = [picture for picture in pictures if picture.stamp[0] in sizes]

    def content(picture: PictureFile) -> str:
        try:
            return sha256_file(folder / picture.name)[:CONTENT_DIGITS]
        except OSError:
            # Who reads the picture says why it cannot be read.
            return " " * CONTENT_DIGITS

    def compute() -> dict[str, str]:
        with ThreadPoolExecutor(min(available_threads(), _THREADS)) as pool:
            return {"contents": "".join(pool.map(content, chosen))}

    if not chosen:
        return []
    stamps = ["contents", str(folder.resolve()), *([p.name, *p.stamp] for p in chosen)]
    found = remembered(stamps, ("contents",), compute)["contents"]
    return named(folder, chosen, split_contents(found))


def split_contents(joined: str) -> tuple[str, ...]:
    """The contents of which this text consists."""
    return tuple(
        joined[at : at + CONTENT_DIGITS].strip() for at in range(0, len(joined), CONTENT_DIGITS)
    )


def named(folder: Path, pictures: Sequence[PictureFile], contents: Sequence[str]) -> list[Sample]:
    """Their names begin with that of the folder of all classes."""
    return [
        (f"{folder.name}/{picture.name}", picture.label, content)
        for picture, content in zip(pictures, contents, strict=True)
    ]


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
