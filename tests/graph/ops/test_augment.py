"""Augmented pictures, and what they must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.augmentations import (
    AlternatingFlip,
    Augmentation,
    Cutout,
    Elastic,
    RandomCrop,
    RandomFlip,
    Recolour,
    Rotate,
    Scale,
    Shift,
    disorder,
)

from ...support.frozen import changed
from ...support.opened import NAMES, opened
from ...support.plain_augment import gathered, pictures

WHOLE: list[tuple[Augmentation, ...]] = [
    (RandomCrop(1),),
    (RandomCrop(4),),
    (RandomCrop(4, "reflect"),),
    (RandomFlip(),),
    (AlternatingFlip(),),
    (Cutout(1),),
    (Cutout(5),),
    (RandomCrop(2), RandomFlip(), Cutout(3)),
    (Cutout(3), RandomCrop(3), AlternatingFlip(), Cutout(2)),
    (RandomFlip(), RandomCrop(2, "reflect"), RandomFlip(), RandomCrop(1)),
    (Recolour(),),
    (Cutout(3), Recolour(), RandomCrop(2), Recolour()),
]
INTERPOLATED: list[tuple[Augmentation, ...]] = [
    (Rotate(180.0),),
    (Shift(3.0),),
    (Scale(0.5, 2.0),),
    (Elastic(5.0, 0.8),),
    (Elastic(34.0, 4.0),),
    (Scale(0.7, 0.9), Rotate(40.0), Shift(2.0)),
    (Shift(2.0), Rotate(40.0), Elastic(3.0, 1.2), Scale(0.7, 0.9)),
    (RandomCrop(2), Cutout(2), Rotate(30.0), Elastic(3.0, 1.0), Recolour(), Cutout(2)),
]


def identity(augment: object) -> str:
    return repr(augment)


def test_pictures_are_what_they_were():
    """Those of a slow plain version, which drew and moved pixel by pixel."""
    found = {}
    for augment in (*WHOLE, *INTERPOLATED):
        for channels, height, width, epoch in ((2, 6, 7, 0), (3, 9, 5, 3), (1, 5, 5, 2**33)):
            images = pictures(6, channels, height, width)
            order, name = [5, 0, 3, 1], f"{augment}, {channels} channels"
            found[name] = {"x": gathered(augment, images, order, 4, epoch)}
            assert epoch == 0 or not np.array_equal(found[name]["x"], images[order])
    assert changed(__file__, found) == []


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("augment", [*WHOLE, *INTERPOLATED], ids=identity)
def test_other_backends(name, augment):
    """Whole pixels are equal to the bit; interpolated ones within a small part of 1 in 255."""
    backend = opened(name)
    for images, size in ((pictures(20, 3, 8, 6), 10), (pictures(9, 1, 28, 28), 3)):
        order = np.random.default_rng(1).permutation(len(images))[:size].tolist()
        want = gathered(augment, images, order, size, 3)
        got = gathered(augment, images, order, size, 3, backend)
        if any(each.interpolates for each in augment):
            assert np.abs(got - want).max() < 0.05
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("augment", [WHOLE[8], INTERPOLATED[-1]], ids=identity)
@pytest.mark.parametrize("name", NAMES)
def test_only_seed_epoch_and_sample_decide(name, augment):
    """Not the batch size, not the place in the order, not the steps done before in this process."""
    images, order = pictures(12, 1, 6, 6), [4, 9, 2, 11, 7, 0]
    whole = gathered(augment, images, order, 6, 2, opened(name))
    for size in (1, 2, 3):
        steps = len(order) // size
        for step in range(steps):
            part = gathered(augment, images, order, size, 2 * steps + step, opened(name))
            np.testing.assert_array_equal(part, whole[step * size : (step + 1) * size])
    turned = gathered(augment, images, order[::-1], 6, 2, opened(name))
    np.testing.assert_array_equal(turned, whole[::-1])
    assert not np.array_equal(gathered(augment, images, order, 6, 3, opened(name)), whole)


@pytest.mark.parametrize("augment", [WHOLE[8], INTERPOLATED[-1]], ids=identity)
def test_how_many_pictures_are_worked_on_at_a_time(augment, monkeypatch):
    images, order = pictures(7, 2, 6, 6), [6, 0, 5, 1, 4, 2, 3]
    whole = gathered(augment, images, order, 7, 3)
    for name in ("_MOVED", "_RESAMPLED"):
        monkeypatch.setattr(f"dnnstack.backends.reference.augment.{name}", 3 * 72)
    np.testing.assert_array_equal(gathered(augment, images, order, 7, 3), whole)


@pytest.mark.parametrize("augment", [WHOLE[8], INTERPOLATED[-1]], ids=identity)
def test_nothing_is_kept_from_an_epoch_to_the_next(augment):
    images, order = pictures(4, 1, 8, 8), [0, 1, 2, 3]
    for before in ((0,), (5, 2), (1, 0, 1)):
        got = gathered(augment, images, order, 2, 3, opened("cpu"), before)
        np.testing.assert_array_equal(got, gathered(augment, images, order, 2, 3, opened("cpu")))


def test_an_affine_map_without_freedom_changes_nothing():
    images = pictures(3, 2, 6, 5)
    got = gathered((Scale(1.0, 1.0), Shift(1e-12), Rotate(1e-12)), images, [0, 1, 2], 3, 0)
    np.testing.assert_allclose(got, images, atol=1e-6)


WRONG: list[tuple[tuple[Augmentation, ...], str]] = [
    ((RandomCrop(5, "reflect"),), "random_crop: padding 5 must be less than the sides"),
    ((RandomFlip(), Cutout(6)), "cutout: size 6 is larger than a side of the pictures"),
    ((Rotate(5), RandomFlip(), Shift(1)), "put them side by side, 'random_flip' before or after"),
    ((Elastic(1, 1), Elastic(1, 1)), "elastic can be used only once"),
]


@pytest.mark.parametrize(("augment", "message"), WRONG, ids=repr)
def test_what_cannot_be(augment, message):
    with pytest.raises(ShapeError, match=message):
        gathered(augment, pictures(2, 1, 5, 6), [0], 1, 0)


def test_order_of_the_list():
    assert disorder((RandomFlip(), Rotate(1), Elastic(1, 1), Shift(1), Cutout(1))) is None
    assert disorder((Rotate(1), Cutout(1), Cutout(1), Shift(1))) is not None
