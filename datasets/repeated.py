"""Pictures that are there twice, in training and in test or under two classes; classes without."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from ..common.files import sha256_file
from .class_folders import PictureFile
from .decoded import remembered
from .identity import CONTENT_DIGITS, some
from .image_set import Split

Sample = tuple[str, int, str]
"""A name, a label and a content."""
_SAYS_NOTHING = "on what was trained on says nothing of new ones"
_TWICE: tuple[tuple[Split, Split, str], ...] = (
    ("test", "train", f"because a test {_SAYS_NOTHING}"),
    ("validation", "train", f"because validation {_SAYS_NOTHING}"),
    ("test", "validation", "because the best checkpoint is chosen by what is validated on"),
)
"""A split, one in which none of its pictures should be, and why."""


def doubts(
    classes: Sequence[str],
    parts: Mapping[Split, tuple[Path, Sequence[PictureFile]]],
    contents: Sequence[str] = (),
) -> tuple[str, ...]:
    """What a person should know of the pictures of some splits, each in its folder: some texts.

    contents: of the pictures to train on, if they are known.
    """
    sizes = Counter(picture.stamp[0] for _, part in parts.values() for picture in part)
    given = {"train": contents}
    known = {split: given.get(split) or _hashed(*part, sizes) for split, part in parts.items()}
    counts = Counter(content for part in known.values() for content in part if content)
    samples = {
        split: [
            (f"{above.name}/{picture.name}", picture.label, content)
            for picture, content in zip(part, known[split], strict=True)
            if counts[content] > 1
        ]
        for split, (above, part) in parts.items()
    }
    told = [*repeated(samples)]
    for split in [each for each in ("validation", "test") if each in parts]:
        there = {picture.label for picture in parts[split][1]}
        absent = [name for label, name in enumerate(classes) if label not in there]
        told += lacking(split, absent)
    return tuple(told)


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


def repeated(parts: Mapping[Split, Sequence[Sample]], samples: str = "pictures") -> tuple[str, ...]:
    """What a person should know of pictures that are there twice: a text for each kind."""
    named = _by_content(chain(*parts.values())).values()
    several = [" = ".join(names.values()) for names in named if len(names) > 1]
    text = f"under several classes ({len(several):,}): {some(several)}; keep each in the class to"
    told = [f"{text} which it belongs"] if several else []
    for later, earlier, why in _TWICE:
        there = _by_content(parts.get(earlier, ()))
        both = [
            f"{name} = {next(iter(there[content].values()))}"
            for name, _, content in parts.get(later, ())
            if content in there
        ]
        if both:
            text = f"in {later} and in {'training' if earlier == 'train' else earlier}"
            told.append(
                f"{text} ({len(both):,}): {some(both)}; remove them from one of the two, {why}"
            )
    return tuple(f"identical {samples} {text}" for text in told)


def _by_content(part: Iterable[Sample]) -> dict[str, dict[int, str]]:
    """For each content and label the first name."""
    found: dict[str, dict[int, str]] = {}
    for name, label, content in part:
        found.setdefault(content, {}).setdefault(label, name)
    return found
