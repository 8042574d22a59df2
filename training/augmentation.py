"""Input pictures: augmented for training, in several views for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..common.errors import ConfigError, ShapeError
from ..common.records import dataclass
from ..common.text import samples_of
from ..configs import RunConfig
from ..graph import ops
from ..graph.augmentations import (
    AUGMENTATIONS,
    Augmentation,
    OwnAugmentation,
    augmentation_keys,
    changes_colours,
)
from ..graph.graph import Graph, Shape, Tensor
from ..graph.mixing import Mixing

if TYPE_CHECKING:
    from .preprocessing import Preprocessing

MOST_CHANNELS = 48
"""Whose matrix of colours a block of a GPU can hold."""


def augmentations(config: RunConfig, shape: Shape) -> tuple[Augmentation, ...]:
    """The config's augmentations for pictures (C, H, W).

    Raises ConfigError if one does not fit these pictures.
    """
    channels, height, width = shape
    found = []
    for place, chosen in enumerate(config.data.augment):
        each = AUGMENTATIONS[chosen.type](**chosen.options())
        if reason := each.misfit(height, width):
            reason += f", which have {height}x{width} pixels"
        if channels > MOST_CHANNELS and changes_colours([each]):
            reason = (
                f"changes colours of at most {MOST_CHANNELS} channels, but there are {channels}"
            )
        if samples_of(shape) != "pictures" and not isinstance(each, OwnAugmentation):
            reason = f"changes pictures, but the samples are {samples_of(shape)}; remove it"
        if reason:
            raise ConfigError(f"data.augment.{place}.{chosen.type}: {reason}")
        found.append(each)
    return tuple(found)


def gather(
    graph: Graph, tensors: Mapping[str, Tensor], scaling: Preprocessing, augment: Sequence[Any]
) -> None:
    """Add the operations that gather a batch; ``tensors`` are the fields of a ``GatherBatch``.

    With a mixing, the order has N partners behind the N samples of each batch, and targets are
    (N, K).
    """
    given: dict[str, Any] = {**tensors, "scale": scaling.scale, "shift": scaling.shift}
    keys = augmentation_keys(augment, graph.seed)
    own = [each for each in augment if isinstance(each, OwnAugmentation)]
    mixes = mixings(augment)
    moves = augment[: len(augment) - len(mixes) - len(own)]
    x = y = tensors["x"]
    count, target, labels = y.shape[0], tensors["target"], tensors["labels"]
    if mixes:
        count *= 2
        target = graph.tensor("target.pairs", (count, *labels.shape[1:]), labels.dtype)
    if mixes or own:
        x = graph.tensor("x.gathered", (count, *y.shape[1:]))
    given |= {"x": x, "target": target}
    if moves:
        fill, chosen = mean_pixel(scaling), keys[: len(moves)]
        graph.add(ops.GatherAugmented(**given, augment=tuple(moves), keys=chosen, fill=fill))
    else:
        graph.add(ops.GatherBatch(**given))
    if mixes:
        graph.add(
            ops.MixSamples(
                x=x,
                target=target,
                step=tensors["step"],
                y=(x := graph.tensor("x.mixed", y.shape) if own else y),
                mixed=tensors["target"],
                mixes=mixes,
                key=keys[len(moves)],
                steps=tensors["order"].size // count,
            )
        )
    for place, each in enumerate(own, len(augment) - len(own)):
        last = place == len(augment) - 1
        changed = y if last else graph.tensor(f"x.{each.kind}.{place}", y.shape)
        graph.add(
            ops.ChangePixels(
                x=x,
                step=tensors["step"],
                y=changed,
                augment=each,
                key=keys[place],
                scale=scaling.scale,
                shift=scaling.shift,
            )
        )
        x = changed


def mixings(augment: Sequence[Augmentation]) -> tuple[Mixing, ...]:
    """Those that mix a picture with a partner: a batch of N gathers 2 N samples then."""
    return tuple(each for each in augment if isinstance(each, Mixing))


def mean_pixel(scaling: Preprocessing) -> tuple[int, ...]:
    """For each channel, the pixel that is nearest to 0 after normalisation."""
    pairs = zip(scaling.scale, scaling.shift, strict=True)
    return tuple(min(max(round(-shift / scale), 0), 255) for scale, shift in pairs)


@dataclass(frozen=True)
class TestTime:
    """Views of a picture whose scores are averaged with ``weights``; one view is the picture.

    ``share``: of each batch, this share is seen in all views, those pictures whose two largest
    scores are the closest; of the others the picture alone is seen.
    """

    __test__ = False

    views: tuple[ops.View, ...] = (ops.View(),)
    weights: tuple[float, ...] = (1.0,)
    share: float = 1.0

    def seen(self, count: int) -> int:
        """How many pictures of a batch are seen in all views."""
        if len(self.views) == 1:
            return count
        return ops.share_of(count, self.share)

    def check(self, shape: Shape, classes: int) -> None:
        """Raise ShapeError if samples (C, H, W) are no pictures, or too small to be shifted.

        ConfigError if a share of them is to be chosen by the scores of a single class.
        """
        if self.share < 1.0 and len(self.views) > 1 and classes < 2:
            raise ConfigError(
                "evaluate.tta_share: compares the scores of two classes, but there is one; leave "
                "it out"
            )
        if len(self.views) > 1 and samples_of(shape) != "pictures":
            raise ShapeError(
                f"evaluate.tta: views are of pictures, but the samples are {samples_of(shape)}; "
                "use 'none'"
            )
        reach = max(max(abs(view.down), abs(view.right)) for view in self.views)
        if reach >= min(shape[1:]):
            raise ShapeError(
                f"evaluate.tta: shifts pictures by {reach} pixel and reflects the border, but "
                f"these have {shape[1]}x{shape[2]} pixels; use 'mirror' or 'none'"
            )

    def scores(
        self, graph: Graph, x: Tensor, target: Tensor | None, forward: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Scores (N, K) of a batch (N, C, H, W), averaged over the views.

        ``forward`` adds the network, from pictures to scores. target: (N,), needed for a share.
        """
        if len(self.views) == 1:
            return forward(x)
        if self.seen(x.shape[0]) == x.shape[0]:
            views = self.spread(graph, x)
            return self._average(graph, forward(views), x.shape[0])
        assert target is not None
        plain = forward(x)
        with graph.at("views", "forward"):
            place = graph.tensor("views.place", target.shape, "int32")
            rows = graph.tensor("views.rows", (self.seen(x.shape[0]),), "int32")
            graph.add(
                ops.LeastSure(scores=plain, target=target, place=place, rows=rows, share=self.share)
            )
        views = self.spread(graph, x, rows)
        # No name of a layer has a slash.
        with graph.under("views/"):
            found = forward(views)
        return self._average(graph, found, x.shape[0], plain, place)

    def spread(self, graph: Graph, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """All views of a batch, or of some rows, concatenated: (N, C, H, W) -> (V N, C, H, W)."""
        count = x.shape[0] if rows is None else rows.size
        y = graph.tensor("views", (len(self.views) * count, *x.shape[1:]))
        with graph.at("views", "data"):
            graph.add(ops.Views(x=x, rows=rows, y=y, views=self.views))
        return y

    def _average(
        self,
        graph: Graph,
        x: Tensor,
        count: int,
        scores: Tensor | None = None,
        place: Tensor | None = None,
    ) -> Tensor:
        """The average over the views: (V N, K) -> (N, K)."""
        y = graph.tensor("average", (count, *x.shape[1:]))
        with graph.at("views", "forward"):
            graph.add(ops.AverageViews(x=x, scores=scores, place=place, y=y, weights=self.weights))
        return y


PLAIN = TestTime()
# The views of Jordan 2024 (cifar10-airbench): shifted pictures are mirrored too.
TEST_TIME: dict[str, TestTime] = {
    "none": PLAIN,
    "mirror": TestTime((ops.View(), ops.View(True)), (0.5, 0.5)),
    "mirror+translate": TestTime(
        tuple(ops.View(flip, by, by) for by in (0, -1, 1) for flip in (False, True)),
        (0.25, 0.25, 0.125, 0.125, 0.125, 0.125),
    ),
}


def views_of(name: str, share: float | None = None) -> TestTime:
    """The views of a name of TEST_TIME, for this share of each batch; None: for all of it."""
    return replace(TEST_TIME[name], share=1.0 if share is None else share)
