"""What a training takes of a data set that has changed, against a plain model of the samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError, DatasetError, Warned
from dnnstack.configs import RunConfig, effective_yaml, parse_config
from dnnstack.datasets import ImageSet
from dnnstack.training.own_samples import Chosen, choose
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.formats.samples import SAMPLES, Samples, write_samples
from dnnstack.training.splits import divide, settled
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support.stored import beside

TEXT = "\n" + beside(__file__, "own_samples_text.yaml")
CONFIG = settled(parse_config(TEXT, "own.yaml"))
Row = tuple[str, str]
"""The class and the content of a sample, which has a name."""
Rows = dict[str, Row]


def image_set(rows: Rows, classes: tuple[str, ...] = ()) -> ImageSet:
    """Samples sorted by class and name, as a folder has them; the content is what they show."""
    names = sorted(rows, key=lambda name: (rows[name][0], name))
    known = classes or tuple(sorted({label for label, _ in rows.values()}))
    contents = tuple(rows[name][1] for name in names)
    pixels = [np.full((1, 1, 1), int(content[-2:], 16), np.uint8) for content in contents]
    images = np.stack(pixels) if pixels else np.zeros((0, 1, 1, 1), np.uint8)
    labels = np.array([known.index(rows[name][0]) for name in names], np.int32)
    return ImageSet("image_folder/train", images, labels, known, (), tuple(names), contents)


def plain(count: int = 8, first: int = 0, classes: str = "abc") -> Rows:
    """So many samples of each class; every content is another."""
    found = {}
    for place, label in enumerate(classes):
        for number in range(count):
            found[f"{label}/{number}"] = (label, f"{first + place * count + number:032x}")
    return found


def provenance(config: RunConfig, classes: tuple[str, ...], mark: str) -> Provenance:
    from dnnstack.backends.tuning import Tuning
    from dnnstack.training.preprocessing import Preprocessing

    scaling, tuning = Preprocessing((1.0,), (0.0,)), Tuning("numpy", {}, "", {})
    steps = 18 // config.data.batch_size
    return Provenance(
        steps, effective_yaml(config), "image_folder", (1, 1, 1), classes, scaling, tuning, {},
        samples=mark,
    )  # fmt: skip


class Begun:
    """A run that was begun with these samples, in a folder of its own."""

    def __init__(
        self, folder: Path, images: ImageSet, ancestor: Any = None, config: RunConfig = CONFIG
    ) -> None:
        self.images, self.said = images, list[str]()
        self.run = folder / "run"
        (self.run / "checkpoints").mkdir(parents=True)
        (self.run / "config.yaml").write_text("name: own\n")
        self.path = self.run / "checkpoints" / "step-4.safetensors"
        self.chosen = choose(config, images, None, ancestor, False, False, self.said.append)
        self.parts = self.chosen.train, self.chosen.validation
        assert self.chosen.record is not None
        write_samples(self.run, self.chosen.record)
        self.origin = provenance(config, images.classes, self.chosen.samples.mark)

    def goes_on(self, images: ImageSet, accept: bool = False, config: RunConfig = CONFIG) -> Chosen:
        self.said.clear()
        run = self.path, self.origin
        return choose(config, images, run, None, False, accept, self.said.append)


def shown(images: ImageSet, places: Any) -> list[Row]:
    """Class and content of each sample at these places."""
    return [(images.classes[images.labels[at]], images.contents[at]) for at in places]


CHANGES = ("add", "remove", "rename", "relabel", "replace", "copy", "swap")


def change(rows: Rows, kind: str, choice: int, fresh: int) -> None:
    """Change a sample, or add one, in place."""
    name = sorted(rows)[choice % len(rows)]
    label, content = rows[name]
    other = {"a": "b", "b": "c", "c": "a"}[label]
    if kind == "add":
        rows[f"{other}/new{fresh}"] = (other, f"{200 + fresh:032x}")
    elif kind == "copy":
        rows[f"{label}/copy{fresh}"] = (label, content)
    elif kind == "replace":
        rows[name] = (label, f"{200 + fresh:032x}")
    elif kind == "swap":
        second = sorted(rows)[(choice * 7 + 3) % len(rows)]
        one, two = rows[name], rows[second]
        rows[name], rows[second] = (one[0], two[1]), (two[0], one[1])
    else:
        del rows[name]
        if kind == "rename":
            # To either end of the order.
            rows[f"{label}/{'0' if choice % 2 else 'z'}moved{fresh}"] = (label, content)
        elif kind == "relabel":
            rows[f"{other}/from{fresh}"] = (other, content)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 99)), max_size=8))
def test_a_run_goes_on_with_its_own_samples_alone(tmp_path_factory, changes):
    before = plain()
    run = Begun(tmp_path_factory.mktemp("run"), image_set(before))
    after = dict(before)
    for fresh, (kind, choice) in enumerate(changes):
        change(after, kind, choice, fresh)
    now = image_set(after, ("a", "b", "c"))
    there, left = Counter(before.values()), Counter(after.values())
    if there == left:
        # Other names, or an order that was changed and changed back: no word is needed.
        found = run.goes_on(now)
    else:
        with pytest.raises(CheckpointError, match="no longer what this was begun with") as refused:
            run.goes_on(now)
        assert refused.value.args[-1].endswith("as they were: --same-samples")
        found = run.goes_on(now, accept=True)
    assert found.samples == run.chosen.samples
    assert found.listed
    taken = found.images
    for part, place in zip((found.train, found.validation), run.parts, strict=True):
        # What is left of the part, in its order.
        own, rest = shown(run.images, place), Counter(after.values())
        kept = shown(taken, part)
        assert Counter(kept) <= Counter(own)
        assert [row for row in own if row in kept] == kept
        for row in own:
            assert (row in kept) == (rest[row] > 0)
    assert Counter(shown(taken, range(len(taken)))) == there & left
    pixels = Counter(int(content[-2:], 16) for content in taken.contents)
    assert Counter(taken.images.ravel().tolist()) == pixels
    assert any(isinstance(text, Warned) for text in run.said) == (there != left)


def test_a_class_that_is_renamed_is_told(tmp_path):
    run = Begun(tmp_path, image_set(plain()))
    after = {n.replace("c", "A"): (label.replace("c", "A"), x) for n, (label, x) in plain().items()}
    with pytest.raises(CheckpointError) as refused:
        run.goes_on(image_set(after))
    lines = str(refused.value)
    assert "8 relabelled: c/0 (now A/0), c/1 (now A/1), c/2" in lines
    assert "classes that are gone: c\n  new classes: A" in lines
    found = run.goes_on(image_set(after), accept=True)
    assert found.images.classes == ("a", "b", "c")
    assert {*found.images.labels.tolist()} == {0, 1}
    # Nothing to validate on is another training.
    gone = {name: row for name, row in plain().items() if name not in _names(run, 1)}
    with pytest.raises(CheckpointError, match="none of the samples that it validates on is left"):
        run.goes_on(image_set(gone), accept=True)


def test_the_classes_of_a_run_are_found_by_name(tmp_path):
    run = Begun(tmp_path, image_set(plain()))
    turned = image_set(plain(), ("c", "a", "b"))
    found = run.goes_on(turned)
    taken = found.images
    assert (taken.classes, taken.names) == (("a", "b", "c"), run.images.names)
    np.testing.assert_array_equal(taken.labels, run.images.labels)
    assert not any(isinstance(text, Warned) for text in run.said)


def _names(run: Begun, part: int) -> set[str]:
    return {run.images.names[at] for at in run.parts[part]}


@pytest.mark.parametrize("other", [False, True])
def test_without_its_list_a_run_goes_on_with_equal_data_alone(tmp_path, other):
    images = image_set(plain())
    run = Begun(tmp_path, images)
    (run.run / SAMPLES).unlink()
    if other:
        # That of another run does not count.
        elsewhere = image_set(plain(7)).identity
        write_samples(run.run, Samples.of(elsewhere, np.arange(3, dtype=np.int32)))
    found = run.goes_on(images)
    assert (found.whole, found.samples) == (True, run.chosen.samples)
    for accept in (False, True):
        with pytest.raises(CheckpointError, match=r"samples\.json\.gz, which names its samples"):
            run.goes_on(image_set({**plain(), "a/9": ("a", "9" * 32)}), accept)
    # The config alone does not say how samples were divided of which some were barred.
    other_parts = Samples.of(images.identity, np.arange(6, dtype=np.int32))
    run.origin = replace(run.origin, samples=other_parts.mark)
    with pytest.raises(CheckpointError, match="or is divided otherwise"):
        run.goes_on(images)


def test_a_run_of_before_keeps_its_split_and_gets_a_list(tmp_path):
    images = image_set(plain())
    run = Begun(tmp_path, images)
    (run.run / SAMPLES).unlink()
    run.origin = replace(run.origin, samples="")
    data = CONFIG.data.model_copy(update={"stratified": None})
    before = CONFIG.model_copy(update={"data": data})
    found = run.goes_on(images, config=before)
    assert (found.whole, found.listed) == (True, False)
    assert found.samples.digest == images.identity.digest
    assert found.record is not None
    held = divide(before, images.labels)[1]
    np.testing.assert_array_equal(found.record.places("v"), held)
    np.testing.assert_array_equal(found.validation, held)
    assert (held != divide(CONFIG, images.labels)[1]).any()
    # Its classes are known by name, and in which order.
    turned = image_set(plain(), ("c", "a", "b"))
    found = run.goes_on(turned, config=before)
    assert shown(found.images, range(24)) == shown(turned, range(24))
    assert found.images.classes == ("a", "b", "c")
    for rows in (plain(classes="ab"), plain(classes="abd"), plain(classes="abcd")):
        with pytest.raises(DatasetError, match="give them their names again"):
            run.goes_on(image_set(rows), config=before)
    # An evaluation goes on with the classes that are known.
    found = run.goes_on(image_set(plain(classes="abd")), True, before)
    assert {*found.images.labels.tolist()} == {0, 1}
    assert "it does not know d; here is no c; 8 samples" in run.said[0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 99)), max_size=10),
    st.integers(1, 5),
    st.sampled_from([0.25, 0.5, 6]),
)
def test_what_was_trained_on_is_never_validated_on(tmp_path_factory, changes, seed, validation):
    """Along a chain of three runs, each begun from the one before, on data that change."""
    rows, trained, names = plain(), set[str](), set[str]()
    ancestor = None
    for generation in range(3):
        images = image_set(rows, ("a", "b", "c"))
        data = CONFIG.data.model_copy(
            update={"split_seed": seed * generation, "validation": validation}
        )
        config = CONFIG.model_copy(update={"data": data})
        pairs = zip(images.names, images.contents, strict=True)
        new = [content not in trained and name not in names for name, content in pairs]
        asked = len(divide(config, images.labels)[1])
        said: list[str] = []
        if not any(new):
            with pytest.raises(DatasetError, match="none is left to validate on"):
                choose(config, images, None, ancestor, False, False, said.append)
            return
        found = choose(config, images, None, ancestor, False, False, said.append)
        parts = found.train, found.validation
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(images)))
        assert all(new[at] for at in parts[1])
        natural = all(new[at] for at in divide(config, images.labels)[1])
        assert natural == found.whole
        if natural:
            np.testing.assert_array_equal(parts[1], divide(config, images.labels)[1])
        assert len(parts[1]) == min(asked, sum(new))
        assert bool(said) == (len(parts[1]) < asked)
        folder = tmp_path_factory.mktemp("chain")
        (folder / "checkpoints").mkdir()
        (folder / "config.yaml").write_text("name: own\n")
        write_samples(folder, found.samples)
        origin = provenance(config, images.classes, found.samples.mark)
        ancestor = (folder / "checkpoints" / "step-4.safetensors", origin)
        trained |= {images.contents[at] for at in parts[0]}
        names = {images.names[at] for at in parts[0]}
        for fresh, (kind, choice) in enumerate(changes[generation * 5 :][:5]):
            change(rows, kind, choice, fresh + 10 * generation)


def test_what_an_ancestor_of_an_ancestor_was_trained_on_is_known(tmp_path):
    """Also where the run between has not seen it."""
    first = Begun(tmp_path / "first", image_set(plain()))
    own = plain(first=100, classes="ab")
    ancestor = first.path, first.origin
    second = Begun(tmp_path / "second", image_set(own, ("a", "b", "c")), ancestor)
    known = {first.images.contents[at] for at in first.chosen.train}
    assert {*second.chosen.samples.earlier} == known
    moved = {f"c/{at}": ("c", content) for at, content in enumerate(sorted(known))}
    # Of nothing that is known, and of one of each class that is new.
    rows = {**moved, "a/x": ("a", f"{90:032x}"), "b/x": ("b", f"{91:032x}")}
    images = image_set(rows)
    third = choose(
        CONFIG, images, None, (second.path, second.origin), False, False, first.said.append
    )
    assert {images.names[at] for at in third.validation} == {"a/x", "b/x"}
    assert "data.validation: 2 samples, not 5: all others" in first.said[-1]


def test_other_pictures_of_the_same_names_may_validate(tmp_path):
    """Names say something in the same folder alone; contents do everywhere."""
    run = Begun(tmp_path, image_set(plain()))
    elsewhere = settled(parse_config(TEXT.replace("pics", "others"), "own.yaml"))
    known = [run.images.contents[at] for at in run.parts[0]]
    rows = plain(first=100)
    rows |= {f"b/known{at}": ("b", content) for at, content in enumerate(known)}
    images = image_set(rows)
    ancestor = (run.path, run.origin)
    found = choose(elsewhere, images, None, ancestor, False, False, run.said.append)
    assert not found.whole
    held = {images.contents[at] for at in found.validation}
    assert held
    assert not held & {*known}
    # Another size of the same pictures is the same folder, where a name says enough.
    larger = settled(parse_config(TEXT.replace("size: 4", "size: 8"), "own.yaml"))
    rows = {name: (label, f"{50 + int(x, 16):032x}") for name, (label, x) in plain().items()}
    validated = {run.images.names[at] for at in run.parts[1]}
    changed = image_set({**rows, **{f"a/{at}": ("a", f"{150 + at:032x}") for at in range(90, 96)}})
    found = choose(larger, changed, None, ancestor, False, False, run.said.append)
    held = {changed.names[at] for at in found.validation}
    assert held <= validated | {f"a/{at}" for at in range(90, 96)}
    assert held


OWN = settled(
    parse_config(
        TEXT.replace("validation: 0.25", "stratified: true").replace(
            "train: pics", "train: pics, validation: checked"
        ),
        "own.yaml",
    )
)


@pytest.mark.parametrize(
    ("begun", "asked", "found"),
    [
        (None, None, None),
        (None, False, None),
        (None, True, True),
        (True, None, True),
        ("each", None, "each"),
        ("each", "each", "each"),
        # What contradicts is left as it is, for the comparison of the configs to refuse.
        ("each", True, True),
        (True, "each", "each"),
        ("each", False, False),
    ],
)
def test_a_run_that_goes_on_divides_as_it_began(begun, asked, found):
    one, other = (
        CONFIG.model_copy(update={"data": CONFIG.data.model_copy(update={"stratified": each})})
        for each in (asked, begun)
    )
    assert settled(one, other).data.stratified == found


def test_own_validation_samples_are_validated_on(tmp_path):
    held = np.arange(24) % 4 == 1
    images = replace(image_set(plain()), held=held)
    run = Begun(tmp_path, images, config=OWN)
    assert (run.chosen.whole, run.said) == (True, [])
    np.testing.assert_array_equal(run.chosen.validation, np.flatnonzero(held))
    np.testing.assert_array_equal(run.chosen.train, np.flatnonzero(~held))
    assert run.chosen.validation.dtype == run.chosen.train.dtype == np.int32
    np.testing.assert_array_equal(run.chosen.samples.places("v"), np.flatnonzero(held))
    # A picture that is in the other part now stays in that of the run.
    swapped = replace(images, held=~held)
    np.testing.assert_array_equal(run.goes_on(swapped, config=OWN).validation, run.parts[1])
    (run.run / SAMPLES).unlink()
    assert run.goes_on(images, config=OWN).whole
    with pytest.raises(CheckpointError, match="or is divided otherwise"):
        run.goes_on(swapped, config=OWN)


def test_own_validation_samples_that_were_trained_on_are_trained_on(tmp_path):
    before = Begun(tmp_path, image_set(plain()))
    ancestor = before.path, before.origin
    known = [images_at in before.parts[0] for images_at in range(24)]
    own = [at for at in range(24) if not known[at]][:2]
    held = np.isin(np.arange(24), [*own, *before.parts[0][:3]])
    images, said = replace(image_set(plain()), held=held), list[str]()
    found = choose(OWN, images, None, ancestor, False, False, said.append)
    assert (found.validation.tolist(), found.whole) == (own, False)
    assert len(found.train) == 22
    key = "data.dataset.image_folder.validation"
    assert said == [
        f"{key}: 2 samples, not 5: all others were trained on by the network that init_from names"
    ]
    images = replace(images, held=np.isin(np.arange(24), before.parts[0][:3]))
    with pytest.raises(DatasetError, match=rf"^{key}: the network .* samples, or remove it$"):
        choose(OWN, images, None, ancestor, False, False, said.append)
    # Without its list, an ancestor on the same data is known by the config, and its own part too.
    kept = replace(image_set(plain()), held=np.arange(24) % 4 == 1)
    other = Begun(tmp_path / "other", kept, config=OWN)
    (other.run / SAMPLES).unlink()
    found = choose(OWN, kept, None, (other.path, other.origin), False, False, said.append)
    assert found.whole
    assert len(said) == 1


def test_a_fold_leaves_out_what_was_trained_on():
    """Whatever data.validation says, which has no effect on folds."""
    fold = "validation: 0\n  fold: {count: 3, index: 2}"
    config = parse_config(TEXT.replace("validation: 0.25", fold), "own.yaml")
    labels = np.repeat(np.arange(3, dtype=np.int32), 4)
    train, held = divide(config, labels)
    assert (len(train), len(held)) == (8, 4)
    barred = np.zeros(12, np.bool_)
    barred[held[:3]] = True
    train, rest = divide(config, labels, barred=barred)
    assert rest.tolist() == [held[3]]
    assert sorted([*train, *rest]) == [*range(12)]
    assert (np.diff(train) > 0).all()
    barred[held] = True
    with pytest.raises(DatasetError, match="none is left to validate on"):
        divide(config, labels, barred=barred)
    counts = np.bincount(labels[divide(settled(config), labels)[1]], minlength=3)
    assert counts.max() - counts.min() <= 1
