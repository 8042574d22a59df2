"""Augmentation against a slow plain version, its statistics, and what it must not depend on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import cos, exp, floor, radians, sin
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common import random
from dnnstack.common.errors import BackendUnavailableError, ShapeError
from dnnstack.graph.augmentations import (
    AlternatingFlip,
    Augmentation,
    Cutout,
    Elastic,
    RandomCrop,
    RandomFlip,
    Rotate,
    Scale,
    Shift,
    augmentation_keys,
    disorder,
)
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import GatherAugmented
from hypothesis import given, settings
from hypothesis import strategies as st

SEED, FILL = 11, 77


def onednn() -> Backend:
    from dnnstack.backends.onednn.backend import OneDnnBackend

    return OneDnnBackend(1)


def cuda() -> Backend:
    from dnnstack.backends.cuda.backend import CudaBackend

    return CudaBackend()


OTHERS: list[Any] = [
    pytest.param(onednn, id="onednn"),
    pytest.param(cuda, id="cuda", marks=pytest.mark.cuda),
]


def gathered(
    augment: tuple[Augmentation, ...],
    images: Array,
    order: list[int],
    batch_size: int,
    step: int,
    backend: Backend | None = None,
    before: tuple[int, ...] = (),
) -> Array:
    """x of a step after those ``before``: pixels as they are, (N, C, H, W)."""
    _, channels, height, width = images.shape
    graph = Graph("gather", batch_size)

    def tensor(name: str, value: Array, role: str) -> Tensor:
        made = graph.tensor(name, value.shape, str(value.dtype), role)  # type: ignore[arg-type]
        values[made] = value
        return made

    values: dict[Tensor, Array] = {}
    x = graph.tensor("x", (batch_size, channels, height, width))
    graph.add(
        GatherAugmented(
            images=tensor("images", images, "data"),
            labels=tensor("labels", np.zeros(len(images), np.int32), "data"),
            order=tensor("order", np.array(order, np.int32), "data"),
            step=tensor("step", np.array([step], np.int64), "state"),
            x=x,
            target=graph.tensor("target", (batch_size,), "int32"),
            scale=(1.0,) * channels,
            shift=(0.0,) * channels,
            augment=augment,
            keys=augmentation_keys(augment, SEED),
            fill=(FILL,) * channels,
        )
    )
    precision: Any = "fp64" if backend is None else "fp32"
    chosen = backend or ReferenceBackend(1)
    executable = chosen.compile({"gather": graph}, Options(precision))
    for made, value in values.items():
        executable.write(made, value)
    for now in (*before, step):
        executable.write(graph.ops[0].step, np.array([now], np.int64))  # type: ignore[attr-defined]
        executable.run("gather")
    found = executable.read(x)
    executable.close()
    return found


# ---------------------------------------------------------------- a slow plain version


Pixel = Callable[[int, int, int], float]


def word(augment: tuple[Augmentation, ...], index: int, block: int, counter: int, at: int) -> int:
    key = augmentation_keys(augment, SEED)[index]
    return int(random.words(key, counter, block, 1)[0, at])


def mirrored(at: int, size: int) -> int:
    at = abs(at)
    return 2 * (size - 1) - at if at >= size else at


def noise(augment: tuple[Augmentation, ...], index: int, size: Any, sample: int, epoch: int) -> Any:
    """Displacements (down, right) of every pixel, by the formula, sum by sum."""
    (height, width), each = size, augment[index]
    assert isinstance(each, Elastic)
    reach = int(4 * each.sigma + 0.5)
    weights = {k: exp(-k * k / (2 * each.sigma**2)) for k in range(-reach, reach + 1)}
    total = sum(weights.values())
    blocks = -(-height * width // 4)
    raw = np.zeros((2, height, width))
    for p in range(height * width):
        drawn = word(augment, index, sample * blocks + p // 4, epoch, p % 4)
        for side, half in enumerate((drawn & 0xFFFF, drawn >> 16)):
            raw[side, p // width, p % width] = (half + 0.5) / 2**15 - 1
    smooth = np.zeros_like(raw)
    for y in range(height):
        for x in range(width):
            for j in range(max(0, y - reach), min(height, y + reach + 1)):
                for i in range(max(0, x - reach), min(width, x + reach + 1)):
                    smooth[:, y, x] += raw[:, j, i] * weights[j - y] * weights[i - x] / total**2
    return smooth * each.alpha


def plainly(augment: tuple[Augmentation, ...], picture: Array, sample: int, epoch: int) -> Array:
    """One picture, augmentation after augmentation, each as the sentence that describes it."""
    channels, height, width = picture.shape
    pixels = picture.astype(np.float64)
    index = 0
    while index < len(augment):
        each = augment[index]
        if each.interpolates:
            count = index
            while count < len(augment) and augment[count].interpolates:
                count += 1
            pixels = resampled_plainly(augment, range(index, count), pixels, sample, epoch)
            index = count
            continue
        w = [word(augment, index, sample, epoch, at) for at in range(4)]
        if isinstance(each, RandomCrop):
            n = each.padding
            mode: Any = "constant" if each.mode == "zero" else "reflect"
            padded = np.pad(pixels, ((0, 0), (n, n), (n, n)), mode)
            y, x = (w[0] * (2 * n + 1)) >> 32, (w[1] * (2 * n + 1)) >> 32
            pixels = padded[:, y : y + height, x : x + width]
        elif isinstance(each, RandomFlip):
            pixels = pixels[:, :, ::-1] if w[0] >= 2**31 else pixels
        elif isinstance(each, AlternatingFlip):
            first = word(augment, index, sample, 0, 0) >= 2**31
            pixels = pixels[:, :, ::-1] if first != (epoch % 2 == 1) else pixels
        elif isinstance(each, Cutout):
            y = (w[0] * (height - each.size + 1)) >> 32
            x = (w[1] * (width - each.size + 1)) >> 32
            pixels = pixels.copy()
            pixels[:, y : y + each.size, x : x + each.size] = FILL
        index += 1
    return pixels


def resampled_plainly(
    augment: tuple[Augmentation, ...], indices: range, pixels: Array, sample: int, epoch: int
) -> Array:
    channels, height, width = pixels.shape
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    moved = np.zeros((2, height, width))
    for index in indices:
        if isinstance(augment[index], Elastic):
            moved = noise(augment, index, (height, width), sample, epoch)
    out = np.zeros_like(pixels)
    for row in range(height):
        for column in range(width):
            y = row + moved[0, row, column] - middle_y
            x = column + moved[1, row, column] - middle_x
            for index in reversed(indices):
                each = augment[index]
                u = [(word(augment, index, sample, epoch, at) + 0.5) / 2**32 for at in (0, 1)]
                if isinstance(each, Rotate):
                    angle = radians((2 * u[0] - 1) * each.degrees)
                    y, x = cos(angle) * y + sin(angle) * x, cos(angle) * x - sin(angle) * y
                elif isinstance(each, Scale):
                    factor = each.min + u[0] * (each.max - each.min)
                    y, x = y / factor, x / factor
                elif isinstance(each, Shift):
                    y -= (2 * u[0] - 1) * each.pixels
                    x -= (2 * u[1] - 1) * each.pixels
            y, x = y + middle_y, x + middle_x
            top, left = floor(y), floor(x)
            for j, i in ((0, 0), (0, 1), (1, 0), (1, 1)):
                if 0 <= top + j < height and 0 <= left + i < width:
                    share = (1 - abs(y - top - j)) * (1 - abs(x - left - i))
                    out[:, row, column] += share * pixels[:, top + j, left + i]
    return out


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
]
INTERPOLATED: list[tuple[Augmentation, ...]] = [
    (Rotate(180.0),),
    (Shift(3.0),),
    (Scale(0.5, 2.0),),
    (Elastic(5.0, 0.8),),
    (Elastic(34.0, 4.0),),
    (Scale(0.7, 0.9), Rotate(40.0), Shift(2.0)),
    (Shift(2.0), Rotate(40.0), Elastic(3.0, 1.2), Scale(0.7, 0.9)),
    (RandomCrop(2), Cutout(2), Rotate(30.0), Elastic(3.0, 1.0), RandomFlip(), Cutout(2)),
]


def identity(augment: object) -> str:
    return repr(augment)


def pictures(count: int, channels: int, height: int, width: int) -> Array:
    return np.random.default_rng(5).integers(1, 256, (count, channels, height, width), np.uint8)


@pytest.mark.parametrize("augment", WHOLE, ids=identity)
@pytest.mark.parametrize("epoch", [0, 3])
def test_whole_pixels(augment: tuple[Augmentation, ...], epoch: int) -> None:
    images = pictures(6, 2, 5, 7)
    order = [5, 0, 3, 1]
    got = gathered(augment, images, order, 4, epoch)
    want = [plainly(augment, images[sample], sample, epoch) for sample in order]
    np.testing.assert_array_equal(got, want)
    assert epoch == 0 or not np.array_equal(got, images[order])


@pytest.mark.parametrize("augment", INTERPOLATED, ids=identity)
def test_interpolated(augment: tuple[Augmentation, ...]) -> None:
    images = pictures(4, 2, 6, 7)
    order = [3, 1]
    got = gathered(augment, images, order, 2, 2)
    want = [plainly(augment, images[sample], sample, 2) for sample in order]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-8)


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("augment", [*WHOLE, *INTERPOLATED], ids=identity)
def test_other_backends(make: Callable[[], Backend], augment: tuple[Augmentation, ...]) -> None:
    """Whole pixels are equal to the bit; interpolated ones within a small part of 1 in 255."""
    try:
        backend = make()
    except BackendUnavailableError as error:
        pytest.skip(f"{error}")
    for images, size in ((pictures(20, 3, 8, 6), 10), (pictures(9, 1, 28, 28), 3)):
        order = np.random.default_rng(1).permutation(len(images))[:size].tolist()
        want = gathered(augment, images, order, size, 3)
        got = gathered(augment, images, order, size, 3, backend)
        if any(each.interpolates for each in augment):
            assert np.abs(got - want).max() < 0.05
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("augment", [WHOLE[8], INTERPOLATED[-1]], ids=identity)
@pytest.mark.parametrize("make", [pytest.param(lambda: ReferenceBackend(1), id="numpy"), *OTHERS])
def test_only_seed_epoch_and_sample_decide(
    make: Callable[[], Backend], augment: tuple[Augmentation, ...]
) -> None:
    """Not the batch size, not the place in the order, not the steps done before in this process."""
    try:
        make()
    except BackendUnavailableError as error:
        pytest.skip(f"{error}")
    images, order = pictures(12, 1, 6, 6), [4, 9, 2, 11, 7, 0]
    whole = gathered(augment, images, order, 6, 2, make())
    for size in (1, 2, 3):
        steps = len(order) // size
        for step in range(steps):
            part = gathered(augment, images, order, size, 2 * steps + step, make())
            np.testing.assert_array_equal(part, whole[step * size : (step + 1) * size])
    turned = gathered(augment, images, order[::-1], 6, 2, make())
    np.testing.assert_array_equal(turned, whole[::-1])
    assert not np.array_equal(gathered(augment, images, order, 6, 3, make()), whole)


@pytest.mark.parametrize("augment", [WHOLE[8], INTERPOLATED[-1]], ids=identity)
def test_how_many_pictures_are_worked_on_at_a_time(
    augment: tuple[Augmentation, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, order = pictures(7, 2, 6, 6), [6, 0, 5, 1, 4, 2, 3]
    whole = gathered(augment, images, order, 7, 3)
    for name in ("_MOVED", "_RESAMPLED"):
        monkeypatch.setattr(f"dnnstack.backends.reference.augment.{name}", 3 * 72)
    np.testing.assert_array_equal(gathered(augment, images, order, 7, 3), whole)


@pytest.mark.parametrize("augment", [WHOLE[8], INTERPOLATED[-1]], ids=identity)
def test_nothing_is_kept_from_an_epoch_to_the_next(augment: tuple[Augmentation, ...]) -> None:
    images, order = pictures(4, 1, 8, 8), [0, 1, 2, 3]
    for before in ((0,), (5, 2), (1, 0, 1)):
        got = gathered(augment, images, order, 2, 3, onednn(), before)
        np.testing.assert_array_equal(got, gathered(augment, images, order, 2, 3, onednn()))


# ---------------------------------------------------------------- statistics


def marked(height: int, width: int, count: int) -> Array:
    """Pictures that are black but for one pixel in the middle, right of it when flipped not."""
    images = np.zeros((count, 1, height, width), np.uint8)
    images[:, 0, height // 2, width // 2] = 200
    return images


def test_every_corner_is_equally_likely() -> None:
    count, n = 9000, 1
    images = marked(5, 5, count)
    x = gathered((RandomCrop(n),), images, list(range(count)), count, 0)
    rows, columns = np.nonzero(x[:, 0].reshape(count, -1) > 0)[1] // 5, np.nonzero(x)[3]
    found = Counter(zip(rows.tolist(), columns.tolist(), strict=True))
    assert len(found) == 9
    # 1000 each; the deviation is 30.
    assert all(850 < times < 1150 for times in found.values())


def test_half_are_flipped_and_independently_of_the_epoch() -> None:
    count = 4000
    images = np.zeros((count, 1, 1, 2), np.uint8)
    images[..., 0] = 1
    order = list(range(count))
    flips = [
        gathered((RandomFlip(),), images, order, count, epoch)[:, 0, 0, 1] for epoch in range(3)
    ]
    for flip in flips:
        assert abs(flip.mean() - 0.5) < 0.04
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs((flips[one] == flips[other]).mean() - 0.5) < 0.04


def test_alternating_flips_alternate() -> None:
    count = 2000
    images = np.zeros((count, 1, 1, 2), np.uint8)
    images[..., 0] = 1
    first, second, third = (
        gathered((AlternatingFlip(),), images, list(range(count)), count, epoch)[:, 0, 0, 1]
        for epoch in range(3)
    )
    np.testing.assert_array_equal(second, 1 - first)
    np.testing.assert_array_equal(third, first)
    assert abs(first.mean() - 0.5) < 0.05


def test_two_of_a_kind_are_drawn_apart() -> None:
    count = 1000
    images = np.zeros((count, 1, 1, 2), np.uint8)
    images[..., 0] = 1
    twice = gathered((RandomFlip(), RandomFlip()), images, list(range(count)), count, 0)
    # Under one key they would cancel out.
    assert 0.4 < twice[:, 0, 0, 1].mean() < 0.6


def test_cutout_cuts_its_size_anywhere() -> None:
    count = 2000
    images = np.full((count, 1, 5, 5), 9, np.uint8)
    x = gathered((Cutout(3),), images, list(range(count)), count, 0)[:, 0]
    assert set((x == FILL).sum((1, 2)).tolist()) == {9}
    # 3 x 3 corners: a border pixel's share is 1/9 at the corner, 9/9 in the middle.
    assert (x == FILL).mean(0)[2, 2] == 1.0
    assert abs((x == FILL).mean(0)[0, 0] - 1 / 9) < 0.03


def test_angles_and_moves_fill_their_range() -> None:
    """The centre of mass of a dot tells where it went."""
    count = 3000
    images = np.zeros((count, 1, 9, 9), np.uint8)
    images[:, 0, 4, 4] = 255
    x = gathered((Shift(2.0),), images, list(range(count)), count, 0)[:, 0]
    down = (x * np.arange(9)[:, None]).sum((1, 2)) / x.sum((1, 2)) - 4
    right = (x * np.arange(9)).sum((1, 2)) / x.sum((1, 2)) - 4
    for moved in (down, right):
        assert moved.min() < -1.95
        assert moved.max() > 1.95
        assert abs(moved.mean()) < 0.1
        assert abs(moved.std() - 2 / np.sqrt(3)) < 0.05
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.06


# ---------------------------------------------------------------- geometry


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_geometry(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    side = min(height, width)
    choices: list[st.SearchStrategy[Augmentation]] = [
        st.just(RandomFlip()),
        st.just(AlternatingFlip()),
        st.builds(Cutout, st.integers(1, side)),
    ]
    if side > 1:
        mode: Any = st.sampled_from(["zero", "reflect"])
        choices.append(st.builds(RandomCrop, st.integers(1, side - 1), mode))
    augment = tuple(data.draw(st.lists(st.one_of(choices), max_size=4)))
    images = pictures(3, data.draw(st.integers(1, 3)), height, width)
    epoch = data.draw(st.integers(0, 2**33))
    got = gathered(augment, images, [2, 0], 2, epoch)
    want = [plainly(augment, images[sample], sample, epoch) for sample in (2, 0)]
    np.testing.assert_array_equal(got, want)


def test_an_affine_map_without_freedom_changes_nothing() -> None:
    images = pictures(3, 2, 6, 5)
    got = gathered((Scale(1.0, 1.0), Shift(1e-12), Rotate(1e-12)), images, [0, 1, 2], 3, 0)
    np.testing.assert_allclose(got, images, atol=1e-6)


WRONG: list[tuple[tuple[Augmentation, ...], str]] = [
    ((RandomCrop(5, "reflect"),), "random_crop: padding 5 must be less than the sides"),
    ((RandomFlip(), Cutout(6)), "cutout: size 6 is more than a side of the pictures"),
    ((Rotate(5), RandomFlip(), Shift(1)), "put them side by side, 'random_flip' before or after"),
    ((Elastic(1, 1), Elastic(1, 1)), "elastic can be there once"),
]


@pytest.mark.parametrize(("augment", "message"), WRONG, ids=repr)
def test_what_cannot_be(augment: tuple[Augmentation, ...], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        gathered(augment, pictures(2, 1, 5, 6), [0], 1, 0)


def test_order_of_the_list() -> None:
    assert disorder((RandomFlip(), Rotate(1), Elastic(1, 1), Shift(1), Cutout(1))) is None
    assert disorder((Rotate(1), Cutout(1), Cutout(1), Shift(1))) is not None
