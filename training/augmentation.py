"""Input pictures: augmented for training, in several views for evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..common.errors import ConfigError, ShapeError
from ..common.records import dataclass
from ..configs import RunConfig
from ..graph.augmentations import (
    AUGMENTATIONS,
    Augmentation,
    OwnAugmentation,
    augmentation_keys,
)
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import (
    AverageViews,
    ChangePixels,
    GatherAugmented,
    GatherBatch,
    View,
    Views,
)

if TYPE_CHECKING:
    from .preprocessing import Preprocessing


def augmentations(config: RunConfig, shape: Shape) -> tuple[Augmentation, ...]:
    """The config's augmentations for pictures (C, H, W).

    Raises ConfigError if one does not fit these pictures.
    """
    _, height, width = shape
    found = []
    for place, chosen in enumerate(config.data.augment):
        each = AUGMENTATIONS[chosen.type](**chosen.options())
        if reason := each.misfit(height, width):
            raise ConfigError(
                f"data.augment.{place}.{chosen.type}: {reason}, which have {height}x{width} pixels"
            )
        found.append(each)
    return tuple(found)


def gather(
    graph: Graph, tensors: Mapping[str, Tensor], scaling: Preprocessing, augment: Sequence[Any]
) -> None:
    """Add the operation that gathers a batch; ``tensors`` are its fields."""
    given: dict[str, Any] = {**tensors, "scale": scaling.scale, "shift": scaling.shift}
    keys = augmentation_keys(augment, graph.seed)
    # Those of plugins come last.
    moves = [each for each in augment if not isinstance(each, OwnAugmentation)]
    own = augment[len(moves) :]
    x = y = tensors["x"]
    if own:
        x = given["x"] = graph.tensor("x.gathered", y.shape)
    if moves:
        fill, chosen = mean_pixel(scaling), keys[: len(moves)]
        graph.add(GatherAugmented(**given, augment=tuple(moves), keys=chosen, fill=fill))
    else:
        graph.add(GatherBatch(**given))
    for place, each in enumerate(own, len(moves)):
        last = place == len(augment) - 1
        changed = y if last else graph.tensor(f"x.{each.kind}.{place}", y.shape)
        graph.add(
            ChangePixels(
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


def mean_pixel(scaling: Preprocessing) -> tuple[int, ...]:
    """For each channel, the pixel that is nearest to 0 after normalisation."""
    pairs = zip(scaling.scale, scaling.shift, strict=True)
    return tuple(min(max(round(-shift / scale), 0), 255) for scale, shift in pairs)


@dataclass(frozen=True)
class TestTime:
    """Views of a picture whose scores are averaged with ``weights``; one view is the picture."""

    __test__ = False

    views: tuple[View, ...] = (View(),)
    weights: tuple[float, ...] = (1.0,)

    def check(self, shape: Shape) -> None:
        """Raise ShapeError if pictures (C, H, W) are too small to be shifted."""
        reach = max(max(abs(view.down), abs(view.right)) for view in self.views)
        if reach >= min(shape[1:]):
            raise ShapeError(
                f"evaluate.tta: shifts pictures by {reach} pixel and reflects the border, but "
                f"these have {shape[1]}x{shape[2]} pixels; use 'mirror' or 'none'"
            )

    def spread(self, graph: Graph, x: Tensor) -> Tensor:
        """All views of a batch, concatenated: (N, C, H, W) -> (V N, C, H, W)."""
        if len(self.views) == 1:
            return x
        y = graph.tensor("views", (len(self.views) * x.shape[0], *x.shape[1:]))
        graph.add(Views(x=x, y=y, views=self.views))
        return y

    def average(self, graph: Graph, scores: Tensor) -> Tensor:
        """The average over the views: (V N, K) -> (N, K)."""
        if len(self.views) == 1:
            return scores
        count = scores.shape[0] // len(self.views)
        y = graph.tensor("average", (count, *scores.shape[1:]))
        graph.add(AverageViews(x=scores, y=y, weights=self.weights))
        return y


PLAIN = TestTime()
# The views of Jordan 2024 (cifar10-airbench): shifted pictures are mirrored too.
TEST_TIME: dict[str, TestTime] = {
    "none": PLAIN,
    "mirror": TestTime((View(), View(True)), (0.5, 0.5)),
    "mirror+translate": TestTime(
        tuple(View(flip, by, by) for by in (0, -1, 1) for flip in (False, True)),
        (0.25, 0.25, 0.125, 0.125, 0.125, 0.125),
    ),
}
