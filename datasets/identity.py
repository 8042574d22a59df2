"""What the samples of a split are, so that a later one can be told from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence

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
    its class and content, by whatever name, else -1. Of the others there are the names: added,
    removed, relabelled (the content has another class), changed (the name and the class have
    another content). ``renamed`` ones are among the kept. Pairs of names are written "old (now
    new)". lost, new: names of classes. other: what cannot be told sample by sample differs.
    """

    kept: NDArray[np.int32]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    relabelled: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    other: str = ""

    @property
    def same(self) -> bool:
        """Whether samples and classes are the same, perhaps with other names or in other order."""
        gone = self.added or self.removed or self.relabelled or self.changed
        return not (gone or self.lost or self.new or self.other)

    def lines(self) -> list[str]:
        """A line for each kind of difference, with its number and some names; fit to print."""
        kinds = {
            "added": self.added,
            "removed": self.removed,
            "relabelled": self.relabelled,
            "changed": self.changed,
            "renamed": self.renamed,
        }
        told = [f"{len(names)} {kind}: {some(names)}" for kind, names in kinds.items() if names]
        classes = {"classes that are gone": self.lost, "new classes": self.new}
        told += [f"{kind}: {some(names)}" for kind, names in classes.items() if names]
        return [*told, self.other] if self.other else told


def some(names: Sequence[str]) -> str:
    """At most five of the names, fit to print, and how many more there are."""
    return listed([*map(printable, names[:_NAMED]), *names[_NAMED:]], _NAMED)


def compare(before: Identity, after: Identity) -> Difference:
    """Match the samples of ``before`` with those of ``after``, each with one at most.

    First by name, class and content, then by class and content, by content alone, by name alone.
    Samples known by number alone are all kept, or none, as the digests say.
    """
    lost, new = _unknown(after.classes, before.classes), _unknown(before.classes, after.classes)
    kept = np.full(len(before.labels), -1, np.int32)
    if before.digest == after.digest:
        return Difference(np.arange(len(kept), dtype=np.int32))
    if not before.names or not after.names:
        counts = f"{len(before.labels):,} before, {len(after.labels):,} now"
        alike = "as many, but with other contents or labels"
        told = alike if len(before.labels) == len(after.labels) else counts
        return Difference(kept, lost=lost, new=new, other=f"other samples: {told}")
    old, now = _rows(before), _rows(after)
    pairs = _Pairs(old, now)
    same = pairs.take(lambda row: row)
    renamed = pairs.take(lambda row: row[1:] if row[2] else None)
    moved = pairs.take(lambda row: row[2] or None)
    named = pairs.take(lambda row: row[0])
    for here, there in same + renamed:
        kept[here] = there
    relabelled = [pair for pair in moved + named if old[pair[0]][1] != now[pair[1]][1]]
    changed = [pair for pair in named if old[pair[0]][1] == now[pair[1]][1]]

    def names(found: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        both = ((old[here][0], now[there]) for here, there in sorted(found))
        return tuple(f"{name} (now {row[0] if row[0] != name else row[1]})" for name, row in both)

    return Difference(
        kept,
        added=tuple(now[at][0] for at in pairs.after),
        removed=tuple(old[at][0] for at in pairs.before),
        relabelled=names(relabelled),
        changed=tuple(old[here][0] for here, _ in changed),
        renamed=names(renamed),
        lost=lost,
        new=new,
    )


_Row = tuple[str, str, str]


class _Pairs:
    """Samples of two lists that are not matched yet: ascending numbers in ``before``, ``after``."""

    def __init__(self, old: Sequence[_Row], now: Sequence[_Row]) -> None:
        self._old, self._now = old, now
        self.before, self.after = list(range(len(old))), list(range(len(now)))

    def take(self, key: Callable[[_Row], Hashable]) -> list[tuple[int, int]]:
        """Match those of the same key, in their order; None matches nothing."""
        places: dict[Hashable, list[int]] = {}
        for at in reversed(self.after):
            places.setdefault(key(self._now[at]), []).append(at)
        places.pop(None, None)
        found = [
            (at, there.pop()) for at in self.before if (there := places.get(key(self._old[at])))
        ]
        before, after = {at for at, _ in found}, {at for _, at in found}
        self.before = [at for at in self.before if at not in before]
        self.after = [at for at in self.after if at not in after]
        return found


def _rows(samples: Identity) -> list[_Row]:
    """(name, class in NFC, content) of each sample; no content is an empty text."""
    classes = [nfc(name) for name in samples.classes]
    contents = samples.contents or ("",) * len(samples.names)
    labels = samples.labels.tolist()
    return [
        (name, classes[label], content)
        for name, label, content in zip(samples.names, labels, contents, strict=True)
    ]


def _unknown(known: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Those of ``names`` that are not among ``known``, in NFC."""
    places = matched_classes(known, names)
    return tuple(name for name, place in zip(names, places, strict=True) if place < 0)
