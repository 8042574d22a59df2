"""Colours, sets, windows and borders against plain computations, picture by picture."""

from __future__ import annotations

from math import radians

import numpy as np
import pytest
from dnnstack.common.random import words
from dnnstack.graph.augmentations import (
    RandomErasing,
    RandomResizedCrop,
    Rotate,
    Shift,
    augmentation_keys,
    rectangles,
)
from dnnstack.graph.mixing import DRAWS
from dnnstack.graph.varying import ColourJitter, RandAugment, TrivialAugment, variants

from ..support.plain_augment import FILL, SEED, gathered, pictures

GREY = np.array([0.299, 0.587, 0.114])
U = (0.5 + np.arange(DRAWS)[:, None] / 1.1673039782614187 ** np.arange(1, 5)) % 1
NAMES = ["", "rotate", "shear_y", "shear_x", "down", "right"]
NAMES += ["brightness", "contrast", "saturation", "solarize", "posterize"]


def drawn(each, count, epoch):
    (key,) = augmentation_keys((each,), SEED)
    return np.concatenate([words(key, epoch, row, 1) for row in range(count)]).astype(np.int64)


def recoloured(picture, changes):
    """Each change by its own definition; picture: (C, H, W)."""
    v = picture.astype(float)
    grey = GREY if len(v) == 3 else np.full(len(v), 1 / len(v))
    for name, a in changes:
        level = np.tensordot(grey, v, 1)
        if name == "hue" and len(v) == 3:
            # A point moves around an axis (Rodrigues).
            axis, (sine, cosine) = np.full(3, 3**-0.5), (np.sin(a), np.cos(a))
            along = axis[:, None, None] * np.tensordot(axis, v, 1)
            v = v * cosine + np.cross(axis, v, axisb=0, axisc=0) * sine + along * (1 - cosine)
        elif name in ("brightness", "contrast", "saturation"):
            about = {"brightness": 0, "contrast": level.mean(), "saturation": level}[name]
            v = about + (v - about) * (1 + a)
    v = np.floor(v + 0.5).clip(0, 255).astype(int)
    # Of these the furthest counts.
    last = {n: max((abs(a) for name, a in changes if name == n), default=0) for n in NAMES[9:]}
    v = np.where(v >= 256 - round(256 * last["solarize"]), 255 - v, v)
    return v >> round(last["posterize"]) << round(last["posterize"])


@pytest.mark.parametrize("channels", [3, 1, 2])
def test_jitter_changes_one_after_the_other(channels):
    each, images = ColourJitter(0.5, 0.8, 0.7, 0.3), pictures(40, channels, 5, 4)
    got = gathered((each,), images, list(range(40)), 40, 2)
    names, reach = ("brightness", "contrast", "saturation", "hue"), (0.5, 0.8, 0.7, 0.6 * np.pi)
    for picture, found, (w0, *_) in zip(images, got, drawn(each, 40, 2), strict=True):
        amounts = (2 * U[w0 * DRAWS >> 32] - 1) * reach
        want = recoloured(picture, list(zip(names, amounts, strict=True)))
        # The matrix has 16 binary places.
        assert np.abs(found - want).max() <= 1
        assert (found != want).mean() < 0.1


def changes_of(u, level, reach):
    place = u * 11
    return NAMES[int(place)], (-1 if place % 1 < 0.5 else 1) * level / 30 * reach[int(place)]


RAND = (0, radians(30), 0.3, 0.3, 150 / 331 * 6, 150 / 331 * 5, 0.9, 0.9, 0.9, 1, 4)
WIDE = (0, radians(135), 0.99, 0.99, 32, 32, 0.99, 0.99, 0.99, 1, 6)
SETS = [
    (RandAugment(3, 21), RAND, lambda u: [(u[k], 21) for k in range(3)]),
    (TrivialAugment(), WIDE, lambda u: [(u[0], int(u[1] * 31))]),
]


@pytest.mark.parametrize(("each", "reach", "draws"), SETS, ids=["rand", "trivial"])
def test_members_of_a_set(each, reach, draws):
    rng, counts, others = np.random.default_rng(3), dict.fromkeys(NAMES, 0), 0
    found = variants(each, 3, 6, 5)
    for row in range(DRAWS):
        changes = [changes_of(u, level, reach) for u, level in draws(U[row])]
        plane = np.eye(3)
        for name, a in changes:
            counts[name] += 1
            step = np.eye(3)
            if name == "rotate":
                step[:2, :2] = [[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]
            place = {"shear_y": (0, 1), "shear_x": (1, 0), "down": (0, 2), "right": (1, 2)}
            if name in place:
                step[place[name]] = a if "shear" in name else -a
            plane = plane @ step
        np.testing.assert_allclose(found.plane[row], plane[:2], atol=1e-12)
        picture = rng.integers(0, 256, (3, 6, 5))
        mean = found.colours[row, 3] @ picture.mean((1, 2))
        v = np.tensordot(found.colours[row, :3], picture, 1) + mean
        v = np.floor(v + 0.5).clip(0, 255).astype(int)
        first, kept = found.ends[row]
        v = np.where(v >= first, 255 - v, v) & kept
        others += (v != recoloured(picture, changes)).sum() / v.size / DRAWS
    # A value that is halfway between two may be rounded to either.
    assert others < 1e-3
    drawn_each = np.array([*counts.values()]) / sum(counts.values())
    np.testing.assert_allclose(drawn_each, 1 / 11, atol=0.003)


def test_a_window_is_scaled_to_the_whole():
    each, images = RandomResizedCrop((0.2, 0.6), (0.5, 2.0)), pictures(30, 2, 9, 7)
    got = gathered((each,), images, list(range(30)), 30, 1)
    sizes = each.rectangles(9, 7)
    for picture, found, (w0, w1, w2, _) in zip(images, got, drawn(each, 30, 1), strict=True):
        high, wide = sizes[w2 * len(sizes) >> 32]
        y = (w0 * (9 - high + 1) >> 32) + (np.arange(9) + 0.5) * high / 9 - 0.5
        x = (w1 * (7 - wide + 1) >> 32) + (np.arange(7) + 0.5) * wide / 7 - 0.5
        mirrored = np.pad(picture.astype(float), ((0, 0), (1, 1), (1, 1)), "reflect")
        rows = [[np.interp(y + 1, np.arange(11), line) for line in c.T] for c in mirrored]
        want = [[np.interp(x + 1, np.arange(9), line) for line in np.array(c).T] for c in rows]
        np.testing.assert_allclose(found, want, atol=1e-9)
    whole = gathered((RandomResizedCrop((1.0, 1.0), (7 / 9, 7 / 9)),), images, [0], 1, 0)
    np.testing.assert_array_equal(whole, images[:1])


def test_sizes_of_rectangles():
    found = rectangles((0.1, 0.3), (0.5, 4.0), 40, 50)
    area, ratio = found.prod(1) / 2000, found[:, 1] / found[:, 0]
    assert (len(found), *found.max(0)) == (64 * 64, 34, 48)
    assert (area.min(), area.mean(), area.max()) == pytest.approx((0.1, 0.2, 0.3), abs=0.02)
    logs = np.log([ratio.min(), ratio.max(), np.exp(np.log(ratio).mean())])
    np.testing.assert_allclose(logs, np.log([0.5, 4, 2**0.5]), atol=0.05)
    # What reaches beyond the picture is left out.
    assert rectangles((0.9, 1.0), (1.0, 9.0), 10, 10).max() == 10
    assert "no rectangle" in RandomErasing(1.0, (0.9, 1.0), (9.0, 9.0)).misfit(10, 10)


@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_a_share_of_the_pictures_is_erased(probability):
    each, images = RandomErasing(probability, (0.1, 0.3)), np.full((500, 1, 9, 8), 9, np.uint8)
    covered = (gathered((each,), images, list(range(500)), 500, 0) == FILL).sum((1, 2, 3))
    assert (covered > 0).mean() == pytest.approx(probability, abs=0.06)
    sizes = each.rectangles(9, 8).prod(1)
    assert covered[covered > 0].mean() == pytest.approx(sizes.mean(), rel=0.1)
    w2 = drawn(each, 500, 0)[:, 2] * len(sizes) >> 32
    assert ((covered == 0) | (covered == sizes[w2])).all()


def test_a_border_that_reflects():
    images = pictures(6, 1, 5, 4)
    far = gathered((Shift(40.0, "reflect"),), images, list(range(6)), 6, 0)
    for picture, found, (w0, w1, *_) in zip(images, far, drawn(Shift(1.0), 6, 0), strict=True):
        wide = np.pad(picture[0].astype(float), 64, "reflect")
        down, right = ((2 * (w + 0.5) / 2**32 - 1) * 40 for w in (w0, w1))
        rows = np.array([np.interp(np.arange(5) - down + 64, np.arange(133), c) for c in wide.T])
        want = [np.interp(np.arange(4) - right + 64, np.arange(132), line) for line in rows.T]
        np.testing.assert_allclose(found[0], want, atol=1e-9)
    plain = np.full((3, 1, 1, 6), 200, np.uint8)
    assert (gathered((Rotate(180.0, "reflect"),), plain, [0, 1, 2], 3, 0) == 200).all()
    assert (gathered((Rotate(180.0),), plain, [0, 1, 2], 3, 0) < 200).any()
