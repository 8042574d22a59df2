"""Gathering with augmentation, and views: on pixels, whose values do not follow the law."""

from __future__ import annotations

from typing import Any

import numpy as np
from dnnstack.graph import ops
from dnnstack.graph.augmentations import (
    AlternatingFlip,
    Augmentation,
    Cutout,
    Elastic,
    OwnAugmentation,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    Recolour,
    Rotate,
    Scale,
    Shift,
    augmentation_keys,
)
from dnnstack.graph.graph import Shape
from dnnstack.graph.mixing import CutMix, Mixing, MixUp
from dnnstack.graph.varying import ColourJitter, RandAugment, TrivialAugment
from numpy.typing import NDArray

from .op_draft import Draft, case

# The middle of the allowed 1/255: rounded places move an interpolated pixel a little.
INTERPOLATED = 40_000


def gather_augmented(
    d: Draft, augment: tuple[Augmentation, ...], picture: Shape, step: int, missing: bool = False
) -> None:
    n, steps, count = 4, 3, 9
    pictures = d.rng.integers(0, 256, (count, *picture)).astype(np.uint8)
    order = d.rng.integers(0, count, n * steps).astype(np.int32)
    if missing:
        order[n * (step % steps) + 1] = -1
    if any(each.interpolates for each in augment):
        d.length = INTERPOLATED
    d.graph.add(
        ops.GatherAugmented(
            images=d.given("images", pictures, "data"),
            labels=d.given("labels", np.arange(count, dtype=np.int32), "data"),
            order=d.given("order", order, "data"),
            step=d.given("step", np.array([step], np.int64), "state"),
            x=d.out("x", n, *picture),
            target=d.out("target", n, dtype="int32"),
            scale=tuple(1 / 255 + 0.001 * c for c in range(picture[0])),
            shift=tuple(0.5 * c - 0.4 for c in range(picture[0])),
            augment=augment,
            keys=augmentation_keys(augment, 7),
            fill=tuple(100 + c for c in range(picture[0])),
        )
    )


COLOUR, GREY = (3, 6, 5), (1, 9, 8)
LISTS: dict[str, tuple[Augmentation, ...]] = {
    "none": (),
    "crop": (RandomCrop(2),),
    "reflect": (RandomCrop(3, "reflect"),),
    "flip": (RandomFlip(),),
    "alternating": (AlternatingFlip(),),
    "cutout": (Cutout(3),),
    "cut_all": (Cutout(5),),
    "crop_flip_cutout": (RandomCrop(2), RandomFlip(), Cutout(2)),
    "cutout_flip_crop": (Cutout(3), AlternatingFlip(), RandomCrop(2), RandomCrop(1, "reflect")),
    "recolour": (Recolour(),),
    "recolour_twice": (Recolour(), Cutout(2), Recolour(), RandomFlip()),
    "recolour_scale": (Scale(0.8, 1.2), Cutout(2), Recolour()),
    "jitter": (ColourJitter(0.4, 0.5, 0.6, 0.2),),
    "jitter_recolour": (Recolour(), ColourJitter(0.9, 0.7), RandomFlip(), Recolour()),
    "erasing": (RandomErasing(), RandomErasing(1.0, (0.2, 0.5), (1.0, 1.0))),
    "window": (RandomResizedCrop(),),
    "window_flip": (RandomResizedCrop((0.3, 0.6), (0.5, 2.0)), RandomFlip(), RandomErasing(0.9)),
    "set": (RandAugment(2, 20), ColourJitter(hue=0.5)),
    "set_reflect": (RandomCrop(1), RandAugment(4, 30, "reflect"), Rotate(40.0)),
    "trivial": (TrivialAugment(), Cutout(1)),
    "reflected": (Shift(9.0, "reflect"), Scale(0.2, 0.5), Elastic(9.0, 1.0)),
    "rotate": (Rotate(30.0),),
    "shift": (Shift(2.5),),
    "scale": (Scale(0.7, 1.4),),
    "elastic": (Elastic(6.0, 1.5),),
    "plane": (Rotate(20.0), Scale(0.8, 1.2), Shift(1.5), Elastic(3.0, 1.0)),
    "between": (RandomCrop(1), Cutout(2), Scale(0.9, 1.3), Rotate(15.0), RandomFlip(), Cutout(3)),
}
for name, augment in LISTS.items():
    for picture in (COLOUR, GREY):
        case(f"gather_augmented-{name}-{picture[0]}", gather_augmented, augment, picture, 4)
case("gather_augmented-first_epoch", gather_augmented, LISTS["cutout_flip_crop"], COLOUR, 1)
case("gather_augmented-missing", gather_augmented, LISTS["crop_flip_cutout"], COLOUR, 5, True)


class Invert(OwnAugmentation):
    """As a plugin's: every second picture is inverted, by what is drawn."""

    kind = "invert"

    def apply(self, pixels: NDArray[np.float32], words: NDArray[np.uint32]) -> NDArray[Any]:
        chosen = (words[:, 0] % 2 == 0).reshape(-1, 1, 1, 1)
        return np.where(chosen, 255 - pixels, pixels)


def change_pixels(d: Draft, *shape: int) -> None:
    d.graph.add(
        ops.ChangePixels(
            x=d.floats("x", *shape),
            step=d.given("step", np.array([3], np.int64), "state"),
            y=d.out("y", *shape),
            augment=Invert(),
            key=augmentation_keys((Invert(),), 7)[0],
            scale=tuple(0.25 + 0.5 * c for c in range(shape[1])),
            shift=tuple(0.5 * c - 0.4 for c in range(shape[1])),
        )
    )


case("change_pixels-colour", change_pixels, 6, 3, 4, 5)
case("change_pixels-grey", change_pixels, 5, 1, 2, 2)


MIXES: dict[str, tuple[Mixing, ...]] = {
    "mixup": (MixUp(0.4),),
    "cutmix": (CutMix(),),
    "both": (MixUp(0.8, 0.4), CutMix(1.0, 0.4)),
}


def mix_samples(d: Draft, mixes: tuple[Mixing, ...], wide: bool, *shape: int) -> None:
    n, classes, rng = shape[0], 5, d.rng
    target = rng.integers(0, classes, 2 * n).astype(np.int32)
    shares = rng.dirichlet(np.ones(classes), 2 * n).astype(np.float32)
    d.graph.add(
        ops.MixSamples(
            x=d.floats("x", 2 * n, *shape[1:]),
            target=d.given("target", shares if wide else target),
            step=d.given("step", np.array([7], np.int64), "state"),
            y=d.out("y", *shape),
            mixed=d.out("mixed", n, classes),
            mixes=mixes,
            key=augmentation_keys(mixes, 7)[0],
            steps=3,
        )
    )


for name, mixes in MIXES.items():
    case(f"mix_samples-{name}-classes", mix_samples, mixes, False, 12, 3, 7, 5)
    case(f"mix_samples-{name}-shares", mix_samples, mixes, True, 9, 1, 6, 8)


def views(d: Draft, *shape: int) -> None:
    chosen = (ops.View(), ops.View(True), ops.View(False, -1, 1), ops.View(True, 1, 1))
    y = d.out("y", len(chosen) * shape[0], *shape[1:])
    d.graph.add(ops.Views(x=d.floats("x", *shape), y=y, views=chosen))


def average_views(d: Draft, weights: tuple[float, ...], *shape: int) -> None:
    x = d.floats("x", len(weights) * shape[0], *shape[1:])
    d.graph.add(ops.AverageViews(x=x, y=d.out("y", *shape), weights=weights))


def views_of_rows(d: Draft, rows: list[int], *shape: int) -> None:
    chosen = (ops.View(), ops.View(True, -1, 1))
    y = d.out("y", len(chosen) * len(rows), *shape[1:])
    given = d.given("rows", np.array(rows, np.int32))
    d.graph.add(ops.Views(x=d.floats("x", *shape), rows=given, y=y, views=chosen))


def average_of_rows(d: Draft, weights: tuple[float, ...], place: list[int], classes: int) -> None:
    count, shape = max(place) + 1, (len(place), classes)
    d.graph.add(
        ops.AverageViews(
            x=d.floats("x", len(weights) * count, classes),
            scores=d.floats("scores", *shape),
            place=d.given("place", np.array(place, np.int32)),
            y=d.out("y", *shape),
            weights=weights,
        )
    )


def least_sure(d: Draft, scores: list[list[float]], target: list[int], share: float) -> None:
    n = len(scores)
    d.graph.add(
        ops.LeastSure(
            scores=d.given("scores", np.array(scores, np.float32)),
            target=d.given("target", np.array(target, np.int32)),
            place=d.out("place", n, dtype="int32"),
            rows=d.out("rows", ops.share_of(n, share), dtype="int32"),
            share=share,
        )
    )


NAN, INF = float("nan"), float("inf")
GAPS = [[3.0, 1.0, 2.5], [0.0, 4.0, 0.0], [1.0, 1.5, -9.0], [-2.0, -2.25, -2.0], [7.0, 7.5, 0.0]]
HARD = [[NAN, 1.0], [INF, INF], [-INF, -INF], [1.0, -INF], [2.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
for share in (0.2, 0.5, 0.6, 1.0):
    case(f"least_sure-{share}", least_sure, GAPS, [0, 1, 2, 0, 1], share)
    case(f"least_sure-masked-{share}", least_sure, GAPS, [0, 1, -1, -1, -1], share)
    case(f"least_sure-none-{share}", least_sure, GAPS, [-1] * 5, share)
for share in (0.28, 0.5, 1.0):
    case(f"least_sure-no_gap-{share}", least_sure, HARD, [0, 0, 1, 1, 0, -1, 1], share)
case("views-of_rows", views_of_rows, [2, 0, 3], 4, 2, 4, 5)
case("views-of_a_row", views_of_rows, [1], 2, 1, 2, 2)
case("average_views-of_rows", average_of_rows, (0.5, 0.25, 0.25), [2, -1, 0, -1, 1], 6)
case("average_views-of_a_row", average_of_rows, (0.5, 0.5), [-1, 0], 3)
case("views-colour", views, 3, 2, 4, 5)
case("views-smallest", views, 1, 1, 2, 2)
case("average_views-one", average_views, (1.0,), 3, 4)
case("average_views-six", average_views, (0.25, 0.25, 0.125, 0.125, 0.125, 0.125), 5, 10)
