"""Pictures that are there twice, in training and in test or under two classes; classes without."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..common.files import sha256_file
from .class_folders import PictureFile
from .decoded import remembered
from .identity import CONTENT_DIGITS, some

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

    The others' contents are empty, as are those of files that cannot be read.
    """
    asked = [each for each in pictures if each.stamp[0] > 0 and sizes[each.stamp[0]] > 1]

    def compute() -> dict[str, str]:
        hashes = {}
        for picture in asked:
            # Who reads the picture says why it cannot be read.
            with suppress(OSError):
                hashes[picture.name] = sha256_file(folder / picture.name)[:CONTENT_DIGITS]
        return {"hashes": json.dumps(hashes)}

    stamps = ["hashes", str(folder.resolve()), *([each.name, *each.stamp] for each in asked)]
    found = json.loads(remembered(stamps, ("hashes",), compute)["hashes"]) if asked else {}
    return [found.get(picture.name, "") for picture in pictures]


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
