"""Ensembles: the answers of several networks as one, and what that gains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..common.errors import CheckpointError, UsageError
from ..common.targets import MEASURES, named
from ..common.text import nfc, shape_text
from ..datasets import ImageSet, Preparation
from ..datasets.identity import matched_classes
from ..training.inference.evaluate import Evaluation, Part
from ..training.inference.forward import Forward
from ..training.inference.intervals import normal, paired
from ..training.inference.predict import preparation
from ..training.inference.tally import Tally
from ..training.inference.trained import Trained
from ..training.metrics import errors, goodness, right_of
from .answers import answers

Combine = Literal["probabilities", "logits", "votes"]
Probabilities = NDArray[np.float64]
MIXED = "own"
"""The ``tta`` of an ensemble whose members' configs name different views."""
# Of a probability whose logarithm is taken: those of float32 end there.
_TINY = float(np.finfo(np.float32).tiny)
# The search for weights ends when no weight can gain more nats than this per sample.
_ENOUGH = 1e-7
_MOST_ROUNDS = 20_000


@dataclass(frozen=True)
class Gain:
    """A difference of accuracies, or of R2, with its 95% confidence interval, see ``paired`` and
    ``normal``."""

    difference: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        return {"difference": self.difference, "interval": [self.low, self.high]}


@dataclass(frozen=True, repr=False)
class EnsembleEvaluation(Evaluation):
    """The results of an ensemble. ``loss``: the mean of -log of the probability of the true class;
    nan for votes, numbers and questions, which have none.

    ``members``: each alone, on the same pictures; ``over_best``, ``over_mean``: by how much more
    pictures are right than with the best member on these pictures, and than with a member on
    average. ``checkpoint``: that of the first member.
    """

    members: tuple[Evaluation, ...] = ()
    combine: Combine = "probabilities"
    weights: tuple[float, ...] = ()
    weighted: bool = False
    over_best: Gain = field(default=Gain(0.0, 0.0, 0.0))
    over_mean: Gain = field(default=Gain(0.0, 0.0, 0.0))

    def __repr__(self) -> str:
        return (
            f"<EnsembleEvaluation of {len(self.members)} networks on {self.dataset} ({self.part}): "
            f"{self._told()}>"
        )

    @property
    def title(self) -> str:
        return f"an ensemble of {len(self.members)} networks"

    @property
    def best(self) -> int:
        """The index of the member with the highest accuracy, or R2; of equal ones the first."""
        return int(np.argmax([member.accuracy for member in self.members]))

    def to_json(self) -> dict[str, Any]:
        """The keys of an evaluation, with ``ensemble`` in place of ``checkpoint``."""
        own = super().to_json()
        del own["checkpoint"]
        own["loss"] = None if np.isnan(self.loss) else self.loss
        members = [
            {"checkpoint": str(member.checkpoint), "weight": weight, **member.right_json()}
            for member, weight in zip(self.members, self.weights, strict=True)
        ]
        ensemble = {
            "combine": self.combine,
            "weighted": self.weighted,
            "members": members,
            "best": self.best,
            f"mean_{MEASURES[self.kind]}": float(
                np.mean([member.accuracy for member in self.members])
            ),
            "gain_over_best": self.over_best.to_json(),
            "gain_over_mean": self.over_mean.to_json(),
        }
        return {"ensemble": ensemble, **own}


def combined(
    members: Sequence[NDArray[Any]], combine: Combine, weights: Sequence[float]
) -> tuple[Probabilities, Probabilities]:
    """Scores, whose greatest is the answer, and probabilities: (N, K) each, from M times (N, K).

    probabilities: sum of w p; logits: the softmax of the sum of w log p, which is that of the
    weighted logits, since log p differs from them by a number for each picture; votes: the share of
    the members that answer a class, where the scores decide a tie by the mean probability.
    Logarithms are those of at least 1e-38. ``weights``: sum to 1. Raises UsageError for logits of
    outputs that are no probabilities.
    """
    total = np.zeros(members[0].shape)
    for p, weight in zip(members, weights, strict=True):
        if combine == "logits":
            if p.size and float(p.min()) < 0:
                raise UsageError(
                    "--combine logits: a member's outputs are no probabilities, because its loss "
                    "takes scores of any sign as they are; use --combine votes"
                )
            total += weight * np.log(np.maximum(p, _TINY, dtype=np.float64))
        elif combine == "votes":
            total[np.arange(len(p)), p.argmax(1)] += weight
        else:
            total += weight * p
    if combine == "logits":
        total = np.exp(total - total.max(1, keepdims=True))
        total /= total.sum(1, keepdims=True)
    if combine != "votes":
        return total, total
    mean = sum((np.clip(p, 0, 1) for p in members), np.zeros(total.shape)) / len(members)
    # Less than half a vote, so that it decides only between equal numbers of votes.
    return np.rint(total * len(members)) + mean / 2, total


def best_weights(members: Sequence[NDArray[Any]], labels: NDArray[Any]) -> tuple[float, ...]:
    """The weights of the members whose average gives the labels the greatest likelihood.

    members: M times (N, K) probabilities; labels: (N,). Each round sets w_m to the mean over the
    samples of w_m p_m / sum of w p, p the probability of the label: expectation maximisation for
    the shares of a mixture, whose likelihood is concave, so that every round raises it and the
    limit is the best there is. Source: Dempster, Laird and Rubin 1977, section 4.3.
    """
    rows = np.arange(len(labels))
    own = np.stack([np.maximum(p[rows, labels], _TINY, dtype=np.float64) for p in members])
    weights = np.full(len(members), 1 / len(members))
    for _ in range(_MOST_ROUNDS):
        # The derivative of the likelihood by each weight; at the best weights none exceeds 1.
        slopes = (own / (weights @ own)).mean(1)
        if slopes.max() - 1 <= _ENOUGH:
            break
        weights = weights * slopes
        weights /= weights.sum()
    return tuple(weights.tolist())


def check_members(members: Sequence[Trained]) -> None:
    """Raise CheckpointError if the members do not take the same pictures or know other classes."""
    first = members[0]
    for other in members[1:]:
        if other.input_shape != first.input_shape:
            shapes = [shape_text(each.input_shape) for each in (other, first)]
            raise CheckpointError(
                f"{other.path}: takes samples {shapes[0]}, but {first.path} takes {shapes[1]}; "
                "networks that are combined or compared take the same"
            )
        if {*map(nfc, first.classes)} != {*map(nfc, other.classes)}:
            raise CheckpointError(
                f"{other.path}: knows other classes than {first.path}; networks that are combined "
                "or compared have the same classes"
            )
        kinds = [named(each.data.kind) for each in (other, first)]
        if kinds[0] != kinds[1]:
            raise CheckpointError(
                f"{other.path}: answers with {kinds[0]}, but {first.path} with {kinds[1]}; "
                "networks that are combined or compared have the same kind of targets"
            )
        columns = [each.checkpoint.provenance.columns for each in (other, first)]
        alike = [each and each.unsettled() for each in columns]
        if alike[0] != alike[1]:
            raise CheckpointError(
                f"{other.path}: was trained on other columns than {first.path}; networks that are "
                "combined or compared take the same columns, with the same categories"
            )
        bits = [each.checkpoint.provenance.pixel_bits for each in (other, first)]
        if bits[0] != bits[1]:
            raise CheckpointError(
                f"{other.path}: takes {bits[0]} bits of integer pixels, but {first.path} takes "
                f"{bits[1]}; networks that are combined or compared take the same pictures"
            )


@dataclass(frozen=True)
class Mixture:
    """How the members are combined; ``weights``: of each, summing to 1; equal if ``weighted`` is
    false."""

    combine: Combine
    weights: tuple[float, ...]
    weighted: bool = False

    @classmethod
    def of(cls, count: int, combine: Combine, weights: Sequence[float] | None = None) -> Mixture:
        """Equal weights, or those given, scaled to a sum of 1. Raises UsageError."""
        if weights is None:
            return cls(combine, (1 / count,) * count)
        if combine == "votes":
            raise UsageError("--combine votes: votes count equally; leave --weights out")
        if len(weights) != count:
            raise UsageError(
                f"--weights: expected {count} numbers, one for each network (got {len(weights)})"
            )
        total = sum(weights)
        if not all(0 <= weight < np.inf for weight in weights) or not 0 < total < np.inf:
            raise UsageError("--weights: expected numbers of at least 0, not all of them 0")
        return cls(combine, tuple(weight / total for weight in weights), True)


def evaluate_ensemble(
    members: Sequence[Trained],
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    part: Part,
    mixture: Mixture,
    progress: Callable[[int], object] = lambda count: None,
    tta: str | None = None,
    threshold: float | None = None,
) -> EnsembleEvaluation:
    """Run every picture of ``index`` through each member once, and combine their answers.

    ``tta``: a name of TEST_TIME, by default that of each member's config; a member's scores are
    averaged over the views first. ``progress`` is called with the pictures of each batch of each
    member.
    """
    found = [
        answers(member, backend, images, index, part, progress, tta, threshold)
        for member in members
    ]
    alone = [each.evaluation for each in found]
    first = alone[0]
    labels = images.labels[index]
    scores, probabilities = combined(
        [each.probabilities for each in found], mixture.combine, mixture.weights
    )
    tally = Tally(len(first.classes), images.kind, first.threshold, members[0].reject)
    tally.add(index, labels, scores, probabilities)
    loss = float("nan")
    if images.kind == "distribution" and mixture.combine != "votes":
        loss = float(errors(images.kind, labels, probabilities).mean())
    elif images.kind == "class" and mixture.combine != "votes":
        own = probabilities[np.arange(len(labels)), labels]
        loss = float(-np.log(np.maximum(own, _TINY)).mean())
    views = {(member.tta, member.tta_share) for member in alone}
    tta, share = (first.tta, first.tta_share) if len(views) == 1 else (MIXED, 1.0)
    each = np.stack([member.good for member in found])
    best = each[int(np.argmax([member.accuracy for member in alone]))]
    right = right_of(images.kind, labels, scores, first.threshold)
    good = goodness(images.kind, labels, right, probabilities)
    interval = normal if images.kind == "numbers" else paired
    return EnsembleEvaluation(
        checkpoint=first.checkpoint,
        dataset=first.dataset,
        part=first.part,
        classes=first.classes,
        loss=loss,
        tta=tta,
        tta_share=share,
        size=first.size,
        members=tuple(alone),
        combine=mixture.combine,
        weights=mixture.weights,
        weighted=mixture.weighted,
        over_best=Gain(float((good - best).mean()), *interval(good - best)),
        over_mean=Gain(float((good - each.mean(0)).mean()), *interval(good - each.mean(0))),
        **tally.fields(images.sources),
    )


def check_combine(trained: Trained, combine: Combine) -> None:
    """Raise UsageError for a way of combining that needs classes if there are none."""
    kind = trained.data.kind
    if combine != "probabilities" and kind in ("numbers", "yes_no"):
        raise UsageError(
            f"--combine {combine}: needs classes, but the targets are {named(kind)}; leave it out, "
            "and the answers are averaged"
        )


class EnsembleForward(Forward):
    """Computes the combined probabilities of several networks, as ``Forward`` does those of one."""

    def __init__(
        self, members: Sequence[Trained], backend: Backend, mixture: Mixture, tta: str = "none"
    ) -> None:
        # Each has a familiarity of its own, which is not that of the answers together.
        super().__init__(members[0].calibrated(None), backend)
        self._members = [Forward(member, backend, tta) for member in members]
        # The place in each member of the first one's classes.
        first = members[0].classes
        self._places = [matched_classes(member.classes, first) for member in members]
        self._mixture = mixture

    def __call__(self, inputs: NDArray[np.uint8] | NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, C, H, W) -> (N, K); of votes, the share that each class got."""
        both = zip(self._members, self._places, strict=True)
        found = [member(inputs)[:, places] for member, places in both]
        return combined(found, self._mixture.combine, self._mixture.weights)[1].astype(np.float32)

    def close(self) -> None:
        """Free what was compiled; a later call compiles again."""
        for member in self._members:
            member.close()


def check_preparation(members: Sequence[Trained]) -> None:
    """Raise CheckpointError if files of pictures are prepared in different ways for the members."""
    first = _preparation(members[0])
    for other in members[1:]:
        if _preparation(other) != first:
            raise CheckpointError(
                f"{other.path}: takes pictures that are prepared in another way than those of "
                f"{members[0].path}, because they were trained on different kinds of data sets"
            )


def _preparation(member: Trained) -> Preparation | None:
    """How pictures are prepared for a network; None if it takes numbers instead."""
    return preparation(member, None, False) if member.takes_pictures else None
