"""Gathering with augmentation for training, and views of a batch for evaluation."""

from __future__ import annotations

from math import ceil

from ...common.errors import ShapeError
from ...common.random import Key
from ...common.records import dataclass
from ..augmentations import Augmentation, OwnAugmentation, disorder
from ..graph import In, Op, Out
from ..mixing import Mixing
from .step import GatherBatch


class GatherAugmented(GatherBatch):
    """x[i] = augmented(images[r]) * scale + shift; all else as GatherBatch.

    ``augment`` acts in order, each as its class in graph.augmentations says, with its own key; the
    sample is r, the epoch floor(step / (len(order) / N)). ``fill``: the pixel, one number per
    channel, that cutout inserts. After a resampling pixels are fractions and are not rounded.

    One pass over the output is enough: its pixel (y, x) is followed backwards through the list. A
    crop, flip or cutout maps whole coordinates to whole ones, or ends in black or in ``fill``. The
    resampling maps (y, x) to q = A1^-1 ... Ak^-1 ((y, x) + elastic displacement at (y, x)), from
    where its four neighbours are followed further, those outside counting as 0.
    """

    augment: tuple[Augmentation, ...]
    keys: tuple[Key, ...]
    fill: tuple[int, ...]

    def check(self) -> None:
        super().check()
        if self.images.dtype != "uint8":
            raise ShapeError(
                f"{self.label()}: '{self.images.name}' holds {self.images.dtype}, but only bytes "
                "can be augmented; remove the augmentation"
            )
        _, channels, height, width = self.x.shape
        self.need(len(self.keys) == len(self.augment) and len(self.fill) == channels, self.x)
        for each in self.augment:
            if reason := each.misfit(height, width):
                raise ShapeError(f"{self.label()}: {each.kind}: {reason}, {height}x{width}")
        if found := disorder(self.augment):
            raise ShapeError(f"{self.label()}: {found[1]}")

    def flops(self) -> int:
        resampled = any(each.interpolates for each in self.augment)
        return (10 if resampled else 2) * self.x.size


class ChangePixels(Op):
    """y = changed(x), by an augmentation of a plugin, on pixels = (x - shift) / scale.

    ``key`` is the augmentation's; picture i of the step is number step N + i of the training.
    """

    flops_each = 4
    x: In
    step: In
    y: Out
    augment: OwnAugmentation
    key: Key
    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def check(self) -> None:
        self.same(self.x, self.y)
        self.need(len(self.scale) == len(self.shift) == self.x.shape[1], self.x)
        self.need(self.step.shape == (1,), self.step)


class MixSamples(Op):
    """y[i] = x[i] mixed with its partner x[N + i], mixed[i] = their targets likewise.

    x: (2 N, C, H, W), target: (2 N,) or (2 N, K), y: (N, C, H, W), mixed: (N, K). Picture i of a
    step is at place N (step mod steps) + i of epoch floor(step / steps); graph.mixing says what is
    drawn for it: a weight w and a rectangle. Within that y is the partner, else w x[i] + (1 - w)
    x[N + i]. mixed[i] = s t[i] + (1 - s) t[N + i], s = w (1 - area / (H W)); t is 1 for the class.
    """

    flops_each = 3
    x: In
    target: In
    step: In
    y: Out
    mixed: Out
    mixes: tuple[Mixing, ...]
    key: Key
    steps: int

    def check(self) -> None:
        n, *picture = self.y.shape
        self.need(self.x.shape == (2 * n, *picture), self.x, self.y)
        wide = self.mixed.shape[1:] if self.target.dtype == "float32" else ()
        self.need(self.target.shape == (2 * n, *wide), self.target, self.mixed)
        self.need(len(self.mixed.shape) == 2 and self.mixed.shape[0] == n, self.mixed, self.y)
        self.need(self.step.shape == (1,), self.step)


@dataclass(frozen=True)
class View:
    """A window of the picture's own size, ``down`` and ``right`` of it; then perhaps flipped.

    Beyond its border the picture is reflected. view[h, w] = picture[reflect(h + down),
    reflect(w' + right)] with w' = w, or W - 1 - w if ``flip``: the window is moved first, then its
    content is mirrored. reflect(-1) = 1 and reflect(H) = H - 2.
    """

    flip: bool = False
    down: int = 0
    right: int = 0


class Views(Op):
    """y[v N + i] = view v of x[i]; x: (N, C, H, W), y: (V N, C, H, W).

    rows: (M,), or None: y[v M + i] = view v of x[rows[i]], y: (V M, C, H, W).
    """

    x: In
    rows: In | None = None
    y: Out
    views: tuple[View, ...]

    def check(self) -> None:
        n, channels, height, width = self.x.shape
        count = len(self.views) * (n if self.rows is None else self.rows.size)
        self.need(self.y.shape == (count, channels, height, width), self.x, self.y)
        for view in self.views:
            fits = abs(view.down) < height and abs(view.right) < width
            self.need(fits, self.x)


class LeastSure(Op):
    """Which samples of a batch have the smallest gap between the two largest scores.

    scores: (N, K), target: (N,); rows: (M,), samples, the smallest gap first; place: (N,), where in
    ``rows`` a sample is, or -1. With n targets in the batch, ``share_of(n, share)`` samples have a
    place; M is enough for N. A sample without a target has no gap, nor has one with a NaN: it comes
    last. Of equal gaps the first sample comes first.
    """

    flops_each = 2
    scores: In
    target: In
    place: Out
    rows: Out
    share: float

    def check(self) -> None:
        n, classes = self.scores.shape
        self.need(classes > 1, self.scores)
        self.need(self.place.shape == self.target.shape == (n,), self.target, self.place)
        self.need(0.0 < self.share <= 1.0 and self.rows.size == share_of(n, self.share), self.rows)


def share_of(count: int, share: float) -> int:
    """How many of so many samples a share is: rounded up, and at least one if there are any.

    0.07 of 100 are 7, not 8 for a rounding.
    """
    return min(max(ceil(share * count - 5e-7), 1), count)


class AverageViews(Op):
    """y[i] = sum over v of weights[v] x[v N + i]; x: (V N, K), y: (N, K).

    With ``scores``, (N, K), and ``place``, (N,): of M samples, x: (V M, K). y[i] is the sum for
    row place[i] of each view, or scores[i] if place[i] is -1.
    """

    flops_each = 2
    x: In
    scores: In | None = None
    place: In | None = None
    y: Out
    weights: tuple[float, ...]

    def check(self) -> None:
        n, *rest = self.y.shape
        views, some = len(self.weights), self.place is not None
        self.need((self.scores is not None) == some, self.x, self.y)
        if self.scores is not None and self.place is not None:
            self.same(self.scores, self.y)
            self.need(self.place.shape == (n,), self.place, self.y)
            n = self.x.shape[0] // views
        self.need(self.x.shape == (views * n, *rest), self.x, self.y)
