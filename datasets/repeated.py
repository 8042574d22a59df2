"""Pictures that are there twice, in training and in test or under two classes; classes without."""

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
"""A name, a label and a content."""


def doubts(
    classes: Sequence[str],
    folder: Path,
    pictures: Sequence[PictureFile],
    contents: Sequence[str],
    beside: Path,
    tests: Sequence[PictureFile],
) -> tuple[str, ...]:
    """What a person should know of the pictures in ``folder`` and of those to test on: some texts.

    contents: of the pictures, if they are known. beside: the folder of those to test on.
    """
    sizes = Counter(picture.stamp[0] for picture in (*pictures, *tests))
    known = contents or _hashed(folder, pictures, sizes), _hashed(beside, tests, sizes)
    counts = Counter(content for part in known for content in part if content)
    parts = [
        [
            (f"{above.name}/{picture.name}", picture.label, content)
            for picture, content in zip(part, found, strict=True)
            if counts[content] > 1
        ]
        for above, part, found in zip((folder, beside), (pictures, tests), known, strict=True)
    ]
    tested = {picture.label for picture in tests}
    absent = [name for label, name in enumerate(classes) if label not in tested]
    return (*repeated(*parts), *lacking("test", absent))


def _hashed(
    folder: Path, pictures: Sequence[PictureFile], sizes: Mapping[int, int]
) -> Sequence[str]:
    """The contents of those of whose size there are several files, as no others can be the same.

    The others' contents are empty.
    """
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


def lacking(part: str, names: Sequence[str], samples: str = "pictures") -> list[str]:
    """A text about the classes of these names, if there are any."""
    return [f"classes without {samples} in {part} ({len(names):,}): {some(names)}"] if names else []


def repeated(train: Sequence[Sample], test: Sequence[Sample]) -> tuple[str, ...]:
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
        found.setdefault(content, {}).setdefault(label, name)
    return found
