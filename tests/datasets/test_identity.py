"""Samples of two data sets are matched by name, class and content."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import ImageSet
from dnnstack.datasets.identity import Identity, compare, identify, matched_classes
from hypothesis import given
from hypothesis import strategies as st

_Row = tuple[str, str, str]
_ROWS = [("cat/1.png", "cat", "aa"), ("cat/2.png", "cat", "bb"), ("dog/1.png", "dog", "cc")]
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "bébé") for form in ("NFC", "NFD"))


def identity(rows: Sequence[_Row], classes: Sequence[str] = ("cat", "dog")) -> Identity:
    labels = np.array([list(classes).index(label) for _, label, _ in rows], np.int32)
    return identify(classes, labels, [row[0] for row in rows], [row[2] for row in rows])


def test_the_digest_is_of_everything_and_the_same_on_every_machine():
    first = identity(_ROWS)
    assert first.digest == "b3256b50efefaff41aa37b429af768bbf3263909865fc6779dc071e6ca17abdb"
    others = [
        identity(_ROWS, ("dog", "cat")),
        identity(_ROWS, ("cat", "dog", "cow")),
        identity(_ROWS[::-1]),
        identity(_ROWS[:2]),
        identity([*_ROWS[:2], ("dog/1.png", "cat", "cc")]),
        identity([*_ROWS[:2], ("dog/2.png", "dog", "cc")]),
        identity([*_ROWS[:2], ("dog/1.png", "dog", "cd")]),
        identify(("cat", "dog"), first.labels, first.names),
        identify(("cat", "dog"), first.labels, (), first.contents),
        identify(("cat", "dog"), first.labels, first.names, first.contents, "key"),
    ]
    assert len({first.digest, *(other.digest for other in others)}) == 1 + len(others)
    swapped = first.labels.astype(">i4")
    assert identify(first.classes, swapped, first.names, first.contents).digest == first.digest


def test_the_form_of_a_name_is_no_difference():
    one = identity([(f"{COMPOSED}/1", COMPOSED, "a")], [COMPOSED])
    other = identity([(f"{DECOMPOSED}/1", DECOMPOSED, "a")], [DECOMPOSED])
    assert one.digest == other.digest
    assert one.names == other.names == (f"{COMPOSED}/1",)
    assert other.classes == (DECOMPOSED,)
    more = identity([(f"{DECOMPOSED}/{at}", DECOMPOSED, at) for at in "ab"], [DECOMPOSED])
    assert compare(one, more).kept.tolist() == [0]
    assert compare(one, more).lines() == [
        f"1 added: {COMPOSED}/b",
        f"1 renamed: {COMPOSED}/1 (now {COMPOSED}/a)",
    ]
    assert matched_classes([COMPOSED, "b"], ["b", "c", DECOMPOSED]).tolist() == [1, -1, 0]


def test_names_that_differ_in_form_alone_stay_two():
    rows = [(f"cat/{form}.png", "cat", "a") for form in (COMPOSED, DECOMPOSED)]
    assert identity(rows).names == tuple(row[0] for row in rows)
    assert identity(rows).digest != identity([*rows[:1], ("cat/x", "cat", "a")]).digest


@pytest.mark.parametrize(
    ("after", "kept", "told"),
    [
        (_ROWS, [0, 1, 2], []),
        (_ROWS[::-1], [2, 1, 0], []),
        ([("cat/0.png", "cat", "zz"), *_ROWS], [1, 2, 3], ["1 added: cat/0.png"]),
        (_ROWS[1:], [-1, 0, 1], ["1 removed: cat/1.png"]),
        (
            [("cat/9.png", "cat", "aa"), *_ROWS[1:]],
            [0, 1, 2],
            ["1 renamed: cat/1.png (now cat/9.png)"],
        ),
        (
            [*_ROWS[1:], ("dog/x.png", "dog", "aa")],
            [-1, 0, 1],
            ["1 relabelled: cat/1.png (now dog/x.png)"],
        ),
        ([("cat/1.png", "cat", "xx"), *_ROWS[1:]], [-1, 1, 2], ["1 changed: cat/1.png"]),
        (
            [("cat/1.png", "cat", "cc"), _ROWS[1], ("dog/1.png", "dog", "aa")],
            [-1, 1, -1],
            ["2 relabelled: cat/1.png (now dog/1.png), dog/1.png (now cat/1.png)"],
        ),
        (
            [("cat/1.png", "cat", "bb"), ("cat/2.png", "cat", "aa"), _ROWS[2]],
            [1, 0, 2],
            ["2 renamed: cat/1.png (now cat/2.png), cat/2.png (now cat/1.png)"],
        ),
        (
            [("cat/1.png", "dog", "xx"), *_ROWS[1:]],
            [-1, 1, 2],
            ["1 relabelled: cat/1.png (now dog)"],
        ),
        ([("cat/0.png", "cat", "aa"), *_ROWS], [1, 2, 3], ["1 added: cat/0.png"]),
    ],
)
def test_what_became_of_the_samples(after, kept, told):
    found = compare(identity(_ROWS), identity(after))
    assert found.kept.tolist() == kept
    assert found.kept.dtype == np.int32
    assert found.lines() == told
    assert found.same == all("renamed" in line for line in told)


def test_classes_that_are_gone_and_new_ones():
    after = [(f"feline/{name[4:]}", "feline", content) for name, _, content in _ROWS[:2]]
    found = compare(identity(_ROWS), identity([_ROWS[2], *after], ("dog", "feline")))
    assert found.kept.tolist() == [-1, -1, 0]
    assert not found.same
    assert found.lines() == [
        "2 relabelled: cat/1.png (now feline/1.png), cat/2.png (now feline/2.png)",
        "classes that are gone: cat",
        "new classes: feline",
    ]
    empty = compare(identity(_ROWS), identity(_ROWS, ("cat", "dog", "cow")))
    assert (empty.lines(), empty.same) == (["new classes: cow"], False)
    assert not compare(identity(_ROWS, ("cat", "dog", "cow")), identity(_ROWS)).same


def test_five_names_at_most_and_none_that_a_terminal_obeys():
    rows = [(f"cat/\x1b{number}", "cat", str(number)) for number in range(8)]
    assert compare(identity(rows[:1]), identity(rows[:6])).lines() == [
        r"5 added: cat/\x1b1, cat/\x1b2, cat/\x1b3, cat/\x1b4, cat/\x1b5"
    ]
    (line,) = compare(identity(rows), identity(rows[:1])).lines()
    assert line.startswith(r"7 removed: cat/\x1b1, ")
    assert line.endswith(r", cat/\x1b5 and 2 more")


def test_samples_without_names_are_all_kept_or_none():
    classes, labels = ("a", "b"), np.array([0, 1, 1], np.int32)
    before = identify(classes, labels, key="x")
    assert compare(before, identify(classes, labels, key="x")).kept.tolist() == [0, 1, 2]
    other = compare(before, identify(classes, labels, key="y"))
    assert other.kept.tolist() == [-1, -1, -1]
    assert not other.same
    assert other.lines() == ["other samples: as many, but with other contents or labels"]
    fewer = compare(before, identify(("a", "c"), labels[:2], key="x"))
    assert fewer.lines() == [
        "classes that are gone: b",
        "new classes: c",
        "other samples: 3 before, 2 now",
    ]
    for one, two in ((before, identity(_ROWS)), (identity(_ROWS), before)):
        assert compare(one, two).rest["other samples"]
        assert compare(one, two).kept.tolist() == [-1, -1, -1]


_NAMES = st.sampled_from([f"{label}/{number}" for label in "ab" for number in range(4)])
_LISTS = st.dictionaries(_NAMES, st.sampled_from("wxyz"), min_size=1, max_size=8)


@given(_LISTS, _LISTS)
def test_random_folders(before, after):
    """Each sample has one fate; what is kept has its class and content, as many as can be."""
    old, new = ([(name, name[0], content) for name, content in d.items()] for d in (before, after))
    found = compare(identity(old, "ab"), identity(new, "ab"))
    pairs = [(old[here], new[there]) for here, there in enumerate(found.kept) if there >= 0]
    assert all(one[1:] == two[1:] for one, two in pairs)
    assert len({two[0] for _, two in pairs}) == len(pairs)
    for kind in {row[1:] for row in old}:
        wanted = min(sum(row[1:] == kind for row in rows) for rows in (old, new))
        assert sum(one[1:] == kind for one, _ in pairs) == wanted
    assert found.same == (sorted(row[1:] for row in old) == sorted(row[1:] for row in new))
    kinds = ("added", "removed", "relabelled", "changed", "renamed")
    added, removed, relabelled, changed, renamed = (found.samples.get(kind, ()) for kind in kinds)
    fates = len(relabelled) + len(changed) + len(pairs)
    assert len(removed) == len(old) - fates
    assert len(added) == len(new) - fates
    assert {*added} <= {row[0] for row in new}
    assert {*removed} <= {row[0] for row in old}
    assert len(renamed) == sum(one[0] != two[0] for one, two in pairs)
    assert all(name in before and name in after for name in changed)
    stay = {row[0] for row in set(old) & set(new)}
    assert stay <= {one[0] for one, two in pairs if one[0] == two[0]}


def _set(**changes: object) -> ImageSet:
    images, labels = np.zeros((2, 1, 2, 2), np.uint8), np.array([0, 1], np.int32)
    return replace(ImageSet("made/up", images, labels, ("a", "b")), **changes)


def test_a_set_of_its_own_gets_its_identity_from_its_pictures():
    one, other = _set(), _set(images=np.ones((2, 1, 2, 2), np.uint8))
    assert one.identity is one.identity
    assert one.identity.digest == _set().identity.digest != other.identity.digest
    assert _set(key="k").identity.digest == _set(key="k", images=other.images).identity.digest
    named = _set(names=("x", "y"), contents=("1", "2"))
    assert named.identity.digest == replace(named, images=other.images).identity.digest
    assert (named.identity.names, named.identity.contents) == (("x", "y"), ("1", "2"))
    named = _set(names=("x", "y"))
    assert named.identity.digest != replace(named, images=other.images).identity.digest
    turned = np.asfortranarray(np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2))
    assert _set(images=turned).identity.digest == _set(images=turned.copy("C")).identity.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("x",)}, "made/up: has 2 samples, but 1 names"),
        ({"contents": ("x", "y", "z")}, "made/up: has 2 samples, but 3 contents"),
        ({"names": ("x", "x")}, "made/up: two samples have the same name"),
    ],
)
def test_names_and_contents_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(DatasetError, match=message):
        _set(**changes)
