"""The loss of a trained network over a whole set of samples, and what fits their targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend
from ...common.errors import ConfigError
from ...common.records import dataclass
from ...common.targets import MEASURES, Kind, named
from ...datasets import ImageSet, evaluation_order
from ..augmentation import views_of
from ..metrics import (
    Calibration,
    Measured,
    class_figures,
    errors,
    macro,
    measure,
    rates,
    worst_first,
)
from ..records.formats.state import shown
from .intervals import wilson
from .trained import Trained

Part = Literal["train", "validation", "test"]
Scores = NDArray[np.floating[Any]]


_RANKS = (1, 2, 3, 5)
_WORST = 40


@dataclass(frozen=True)
class Mistake:
    """A misclassified picture. index: in its data set; answer: the class it was taken for.

    ``probability`` is that of the answer, ``true_probability`` that of the label; ``source`` is
    that of ImageSet, such as the path of a file, and may be empty.
    """

    index: int
    label: int
    answer: int
    probability: float
    true_probability: float
    source: str = ""


@dataclass(frozen=True)
class Miss:
    """A sample of numbers or questions with one of the greatest ``errors``, and its answers."""

    index: int
    error: float
    targets: tuple[float, ...]
    answers: tuple[float, ...]
    source: str = ""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The results. confusion: (K, K) int64, rows are the true classes, columns the answers.

    ``kind``: of the targets; a distribution counts by its largest share, and numbers and questions
    have no confusion, but ``misses`` in place of ``worst``. ``measured``: the figures of the kind;
    ``pairs``: all targets and answers (N, K), of classes none; ``threshold``: above which an answer
    is yes.

    ``top_k[k]``: how many pictures had their class among the k likeliest. ``worst``: the mistakes
    with the lowest probability of the true class, worst first. ``tta``: a name of TEST_TIME, whose
    views ``tta_share`` of each batch was seen in. ``size``: (height, width) of the pictures.
    """

    checkpoint: Path
    dataset: str
    part: Part
    classes: tuple[str, ...]
    loss: float
    confusion: NDArray[np.int64]
    top_k: Mapping[int, int]
    worst: tuple[Mistake, ...]
    tta: str = "none"
    tta_share: float = 1.0
    size: tuple[int, ...] = ()
    kind: Kind = "class"
    measured: Measured = field(default=Measured({}))
    misses: tuple[Miss, ...] = ()
    pairs: tuple[NDArray[Any], NDArray[Any]] | None = None
    threshold: float = 0.5

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self._whose} on {self.dataset} ({self.part}): "
            f"{self._told()}, loss {self.loss:.4f}>"
        )

    @property
    def _whose(self) -> str:
        return repr(str(self.checkpoint))

    def _told(self) -> str:
        if self.counts:
            return f"{self.correct} of {self.count} right, {self.accuracy:.2%}"
        return f"{self.count} samples, {shown(MEASURES[self.kind], self.accuracy)}"

    @property
    def title(self) -> str:
        """What was evaluated, in the first line of a report."""
        return str(self.checkpoint)

    @property
    def counts(self) -> bool:
        """Whether a sample is right or wrong: one of classes, or of shares of them."""
        return self.kind in ("class", "distribution")

    @property
    def count(self) -> int:
        return int(self.confusion.sum()) if self.pairs is None else len(self.pairs[0])

    @property
    def correct(self) -> int:
        return int(np.trace(self.confusion))

    @property
    def accuracy(self) -> float:
        """The share of right answers; of numbers R2, as in training."""
        if self.counts:
            return self.correct / self.count
        found = self.measured.overall[MEASURES[self.kind]]
        return float("nan") if found is None else found

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval of the accuracy, see ``wilson``."""
        return wilson(self.correct, self.count)

    def per_class(self) -> list[dict[str, Any]]:
        """For each class its counts and rates.

        precision: the share of right answers among the pictures classified as this class; recall:
        the share of right answers among the pictures of this class, with its 95% confidence
        interval; f1: 2 TP / (2 TP + FP + FN). A share of nothing is 0, as with ``zero_division=0``
        of scikit-learn; accuracy and interval of a class without pictures are None.
        """
        found = []
        counts, given = self.confusion.sum(1).tolist(), self.confusion.sum(0).tolist()
        for index, right in enumerate(np.diag(self.confusion).tolist()):
            count = counts[index]
            precision, recall, f1 = rates(right, count, given[index])
            found.append(
                {
                    "label": self.classes[index],
                    "index": index,
                    "count": count,
                    "correct": right,
                    "accuracy": right / count if count else None,
                    "precision": precision,
                    "recall": recall,
                    "recall_interval": [*wilson(right, count)] if count else None,
                    "f1": f1,
                }
            )
        return found

    def means(self) -> tuple[float, float, float]:
        """The means of precision, recall and F1 over the classes that have pictures or answers."""
        return macro(self.confusion)

    def confused(self, most: int) -> list[tuple[int, int, int]]:
        """The most common mistakes, at most ``most``: (true class, answer, pictures)."""
        wrong = self.confusion - np.diag(np.diag(self.confusion))
        order = np.argsort(-wrong.reshape(-1), kind="stable")[:most]
        pairs = [(*divmod(int(cell), len(wrong)), int(wrong.flat[cell])) for cell in order]
        return [pair for pair in pairs if pair[2] > 0]

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        own = {
            "checkpoint": str(self.checkpoint),
            "dataset": self.dataset,
            "split": self.part,
            "kind": self.kind,
            "tta": self.tta,
            "tta_share": self.tta_share,
            "size": [*self.size],
            "count": self.count,
        }
        if not self.counts:
            outputs = zip(self.classes, self.measured.outputs, strict=True)
            return {
                **own,
                "loss": self.loss,
                **({"threshold": self.threshold} if self.kind == "yes_no" else {}),
                **self.measured.overall,
                "outputs": [{"label": label, **each} for label, each in outputs],
                "worst": [asdict(miss) for miss in self.misses],
            }
        keys = ("calibration_error", "cross_entropy", "kl_divergence")
        overall = self.measured.overall
        return {
            **own,
            **self.right_json(),
            **{key: overall[key] for key in keys if key in overall},
            "per_class": self.per_class(),
            "mean": dict(zip(("precision", "recall", "f1"), self.means(), strict=True)),
            "confusion_matrix": self.confusion.tolist(),
            "top_k": {str(k): right / self.count for k, right in self.top_k.items()},
            "top_k_intervals": {
                str(k): [*wilson(right, self.count)] for k, right in self.top_k.items()
            },
            "worst": [asdict(mistake) for mistake in self.worst],
        }

    def right_json(self) -> dict[str, Any]:
        """What a table of several networks shows of this one."""
        if not self.counts:
            return {**self.measured.overall, "loss": self.loss}
        return {
            "correct": self.correct,
            "accuracy": self.accuracy,
            "accuracy_interval": [*self.interval],
            "loss": self.loss,
        }


class Tally:
    """Accumulates confusion, ranks and mistakes over batches; of numbers and questions, all."""

    def __init__(self, classes: int, kind: Kind = "class", threshold: float = 0.5) -> None:
        self._classes, self._kind, self._threshold = classes, kind, threshold
        self._cells = np.zeros(classes * classes, np.int64)
        self._ranks = np.zeros(classes, np.int64)
        self._wrong: list[Mistake] = []
        self._calibration = Calibration()
        self._kept: list[tuple[NDArray[Any], NDArray[Any], Scores]] = []

    def add(
        self, index: NDArray[Any], targets: NDArray[Any], scores: Scores, probabilities: Scores
    ) -> None:
        """index: (n,); targets: (n,) or (n, K); scores, probabilities: (n, K), of each sample."""
        if self._kind != "class":
            self._kept.append((index, targets, probabilities))
        if self._kind in ("class", "distribution"):
            self._count(
                index, targets if targets.ndim == 1 else targets.argmax(1), scores, probabilities
            )

    def _count(
        self, index: NDArray[Any], labels: NDArray[Any], scores: Scores, probabilities: Scores
    ) -> None:
        rows = np.arange(len(labels))
        answers = scores.argmax(1)
        self._cells += np.bincount(labels * self._classes + answers, minlength=len(self._cells))
        own = scores[rows, labels][:, None]
        # Of equal scores, the first class counts as the likelier, as for the answer.
        before = np.arange(self._classes) < labels[:, None]
        ranks = ((scores > own) | ((scores == own) & before)).sum(1)
        self._ranks += np.bincount(ranks, minlength=self._classes)
        self._calibration.add(probabilities[rows, answers], answers == labels)
        for row in np.flatnonzero(answers != labels).tolist():
            label, answer = int(labels[row]), int(answers[row])
            p = probabilities[row]
            self._wrong.append(
                Mistake(int(index[row]), label, answer, float(p[answer]), float(p[label]))
            )

    @property
    def confusion(self) -> NDArray[np.int64]:
        return self._cells.reshape(self._classes, self._classes)

    def top_k(self) -> dict[int, int]:
        right = np.cumsum(self._ranks).tolist()
        return {k: right[k - 1] for k in _RANKS if k < self._classes or k == 1}

    def worst(self, sources: Sequence[str] = ()) -> tuple[Mistake, ...]:
        """The mistakes with the lowest probability of the true class; sources: of the data set."""
        order = sorted(self._wrong, key=lambda m: (m.true_probability, -m.probability, m.index))
        taken = order[:_WORST]
        return tuple(replace(m, source=sources[m.index] if sources else "") for m in taken)

    def fields(self, sources: Sequence[str] = ()) -> dict[str, Any]:
        """Those of an Evaluation that say what was found."""
        found: dict[str, Any] = {
            "kind": self._kind,
            "threshold": self._threshold,
            "confusion": self.confusion,
            "top_k": self.top_k(),
            "worst": self.worst(sources),
        }
        if not self._kept:
            return found | {
                "measured": Measured(class_figures(self.confusion, self._calibration.error))
            }
        index, targets, answers = map(np.concatenate, zip(*self._kept, strict=True))
        measured = measure(self._kind, targets, answers, self._threshold)
        found |= {"measured": measured, "pairs": (targets, answers)}
        if self._kind == "distribution":
            return found
        error = errors(self._kind, targets, answers)
        rows = worst_first(error, _WORST)
        misses = [
            Miss(
                int(index[row]),
                float(error[row]),
                tuple(targets[row].tolist()),
                tuple(answers[row].tolist()),
                sources[index[row]] if sources else "",
            )
            for row in rows
        ]
        return found | {"misses": tuple(misses), "top_k": {}}


def evaluate(
    trained: Trained,
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    part: Part,
    progress: Callable[[int], object] = lambda count: None,
    tta: str | None = None,
    hear: Callable[[NDArray[np.int32], Scores, Scores], object] = lambda *batch: None,
    threshold: float | None = None,
) -> Evaluation:
    """Run every picture of ``index`` through the network once, in the views of ``tta``.

    ``tta``: a name of TEST_TIME, by default the config's; scores are averaged over its views, of
    the config's ``evaluate.tta_share`` of each batch.
    The pictures may be of another size than in training, see ``Trained.at_size``.
    The last batch is padded with masked samples. ``progress`` is called with the number of
    pictures of each batch, ``hear`` with its samples (n,), in the order of ``index``, their scores
    and their probabilities (n, K). ``threshold``: an answer above it is yes, by default the
    config's. Raises ConfigError for a threshold of other targets.
    """
    threshold = threshold_of(trained, threshold)
    if (columns := trained.checkpoint.provenance.columns) is not None:
        images = replace(images, images=columns.filled(images.images))
    height, width = images.images.shape[2:]
    trained = trained.at_size((height, width))
    batch_size = min(trained.config.data.evaluation_batch_size, len(index))
    order = evaluation_order(index, batch_size).reshape(-1, batch_size)
    tta = trained.config.evaluate.tta if tta is None else tta
    views = views_of(tta, trained.config.evaluate.tta_share)
    scaling = trained.checkpoint.provenance.preprocessing
    graph = trained.network.evaluate_graph(
        batch_size, images.name, len(images), len(order), scaling, views
    )
    with closing(trained.compile(backend, graph)) as executable:
        executable.write(graph["images"], images.images)
        executable.write(graph["labels"], images.labels)
        executable.write(graph["order"], order.reshape(-1))
        executable.write(graph["step"], np.zeros(1, np.int64))
        executable.write(graph["sums"], np.zeros(3))
        tally = Tally(len(trained.classes), trained.data.kind, threshold)
        for batch in order:
            executable.run(graph.name)
            real = batch >= 0
            found = batch[real]
            scores = executable.read(graph["scores"])[real]
            probabilities = executable.read(graph["probabilities"])[real]
            tally.add(found, images.labels[found], scores, probabilities)
            hear(found, scores, probabilities)
            progress(len(found))
        sums = executable.read(graph["sums"])
    return Evaluation(
        checkpoint=trained.path,
        dataset=images.name.partition("/")[0],
        part=part,
        classes=trained.classes,
        loss=float(sums[0] / sums[2]),
        tta=tta,
        tta_share=views.share if tta != "none" else 1.0,
        size=(height, width),
        **tally.fields(images.sources),
    )


def threshold_of(trained: Trained, given: float | None) -> float:
    """Above which an answer is yes: this one, else the config's. Raises ConfigError."""
    kind = trained.data.kind
    if given is not None and kind != "yes_no":
        raise ConfigError(
            f"threshold: decides between yes and no, but the targets of {trained.path} are "
            f"{named(kind)}; leave it out"
        )
    return trained.config.evaluate.yes_above if given is None else given
