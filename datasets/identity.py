"""What the samples of a split are, so that a later one can be told from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..common.files import sha256_bytes
from ..common.printable import printable
from ..common.records import dataclass
from ..common.text import listed, nfc

CONTENT_DIGITS = 32
_NAMED = 5


@dataclass(frozen=True)
class Identity:
    """classes, in the order of labels; labels: (M,) int32; a name and a content for each sample.

    names are unique in the split, in NFC, such as "cat/0001.png" below the class folders' folder;
    contents: the first 32 hexadecimal digits of the SHA-256 of each file. Both are empty for
    samples that are known by their number alone. digest: SHA-256 over all that and the samples'
    order, as 64 hexadecimal digits: the same on every machine, wherever the files lie.
    """

    classes: tuple[str, ...]
    labels: NDArray[np.int32]
    names: tuple[str, ...]
    contents: tuple[str, ...]
    digest: str


def identify(
    classes: Sequence[str],
    labels: NDArray[np.int32],
    names: Sequence[str] = (),
    contents: Sequence[str] = (),
    key: str = "",
) -> Identity:
    """The identity of these samples. key: a text that determines samples without contents."""
    forms = tuple(map(nfc, names))
    # Only where two files' names differ in form alone do they stay as they are.
    named = forms if len(set(forms)) == len(forms) else tuple(names)
    text = json.dumps([[nfc(name) for name in classes], named, contents, key])
    digest = sha256_bytes(text.encode() + labels.astype("<i4").tobytes())
    return Identity(tuple(classes), labels, named, tuple(contents), digest)


def matched_classes(before: Sequence[str], after: Sequence[str]) -> NDArray[np.int32]:
    """The place of each class of ``after`` in ``before``, by name in NFC: (K,) int32, else -1."""
    places = {nfc(name): place for place, name in enumerate(before)}
    return np.array([places.get(nfc(name), -1) for name in after], np.int32)


@dataclass(frozen=True)
class Difference:
    """What became of the samples of ``before`` in ``after``; classes are matched by name.

    kept: (M,) int32, the place in ``after`` of each sample of ``before`` that is still there with
    its class and content, by whatever name, else -1. samples: names of the "added", "removed",
    "relabelled" (the content has another class), "changed" (the name has another content) and, of
    those kept, "renamed"; a pair of names is "old (now new)". rest: further differences, by kind.
    """

    kept: NDArray[np.int32]
    samples: Mapping[str, Sequence[str]]
    rest: Mapping[str, Sequence[str]]

    @property
    def same(self) -> bool:
        """Whether samples and classes are the same, perhaps with other names or in other order."""
        return not any(self.rest.values()) and not any(
            names for kind, names in self.samples.items() if kind != "renamed"
        )

    def lines(self) -> list[str]:
        """A line for each kind of difference, with its number and some names; fit to print."""
        told = [
            f"{len(names)} {kind}: {some(names)}" for kind, names in self.samples.items() if names
        ]
        return told + [f"{kind}: {some(names)}" for kind, names in self.rest.items() if names]


def some(names: Sequence[str]) -> str:
    """At most five of the names, fit to print, and how many more there are."""
    return listed([*map(printable, names[:_NAMED]), *names[_NAMED:]], _NAMED)


def compare(before: Identity, after: Identity) -> Difference:
    """Match the samples of ``before`` with those of ``after``, each with one at most.

    First by name, class and content, then by class and content, by content alone, by name.
    Samples known by number alone are all kept, or none, as the digests say.
    """
    kept = np.full(len(before.labels), -1, np.int32)
    if before.digest == after.digest:
        return Difference(np.arange(len(kept), dtype=np.int32), {}, {})
    rest: dict[str, Sequence[str]] = {
        "classes that are gone": unknown(after.classes, before.classes),
        "new classes": unknown(before.classes, after.classes),
    }
    if not before.names or not after.names:
        counts = f"{len(before.labels):,} before, {len(after.labels):,} now"
        alike = "as many, but with other contents or labels"
        rest["other samples"] = [alike if len(kept) == len(after.labels) else counts]
        return Difference(kept, {}, rest)
    old, now = _rows(before), _rows(after)
    left, right = dict.fromkeys(range(len(old))), dict.fromkeys(range(len(now)))

    def paired(key: Callable[[_Row], Hashable]) -> list[tuple[int, int]]:
        """Match what is left and has the same key, in order; None matches nothing."""
        places: dict[Hashable, list[int]] = {None: []}
        for at in reversed(right):
            places.setdefault(key(now[at]), []).append(at)
        del places[None]
        found = [(at, same.pop()) for at in left if (same := places.get(key(old[at])))]
        for here, there in found:
            del left[here], right[there]
        return found

    def named(pairs: Sequence[tuple[int, int]]) -> list[str]:
        both = [(old[here][0], now[there]) for here, there in pairs]
        return [f"{name} (now {row[0] if row[0] != name else row[1]})" for name, row in both]

    stayed = paired(lambda row: row)
    renamed = paired(lambda row: row[1:] if row[2] else None)
    for here, there in stayed + renamed:
        kept[here] = there
    relabelled = paired(lambda row: row[2] or None)
    changed = paired(lambda row: row[:2])
    relabelled += paired(lambda row: row[0])
    samples = {
        "added": [now[at][0] for at in right],
        "removed": [old[at][0] for at in left],
        "relabelled": named(relabelled),
        "changed": [old[here][0] for here, _ in changed],
        "renamed": named(renamed),
    }
    return Difference(kept, samples, rest)


_Row = tuple[str, str, str]


def _rows(samples: Identity) -> list[_Row]:
    """(name, class in NFC, content) of each sample; no content is an empty text."""
    classes = [nfc(name) for name in samples.classes]
    labels = [classes[label] for label in samples.labels.tolist()]
    contents = samples.contents or ("",) * len(labels)
    return list(zip(samples.names, labels, contents, strict=True))


def unknown(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """Those of ``names`` that are not among ``known``, in NFC."""
    forms = {*map(nfc, known)}
    return [name for name in names if nfc(name) not in forms]
