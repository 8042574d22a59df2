"""Loss, accuracy and confusion of a trained network over a whole set of pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend
from ...common.errors import DatasetError, Warned
from ...common.records import dataclass
from ...common.text import shape_text
from ...configs.suggest import expected
from ...datasets import Downloads, ImageSet, describe, evaluation_order, load
from ...datasets.identity import some
from ...datasets.pictures import resized
from ..assemble import describe_data, load_data
from ..augmentation import views_of
from ..own_samples import choose, in_classes, listed_samples
from ..records.runs import is_in_own_folder
from ..splits import divide
from .intervals import wilson
from .trained import Trained, check_folders

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


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The results. confusion: (K, K) int64, rows are the true classes, columns the answers.

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

    def __repr__(self) -> str:
        return (
            f"<Evaluation of {str(self.checkpoint)!r} on {self.dataset} ({self.part}): "
            f"{self.correct} of {self.count} right, {self.accuracy:.2%}, loss {self.loss:.4f}>"
        )

    @property
    def title(self) -> str:
        """What was evaluated, in the first line of a report."""
        return str(self.checkpoint)

    @property
    def count(self) -> int:
        return int(self.confusion.sum())

    @property
    def correct(self) -> int:
        return int(np.trace(self.confusion))

    @property
    def accuracy(self) -> float:
        return self.correct / self.count

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
            found.append(
                {
                    "label": self.classes[index],
                    "index": index,
                    "count": count,
                    "correct": right,
                    "accuracy": right / count if count else None,
                    "precision": right / max(given[index], 1),
                    "recall": right / max(count, 1),
                    "recall_interval": [*wilson(right, count)] if count else None,
                    "f1": 2 * right / max(count + given[index], 1),
                }
            )
        return found

    def means(self) -> tuple[float, float, float]:
        """The means of precision, recall and F1 over the classes that have pictures or answers."""
        there = (self.confusion.sum(0) + self.confusion.sum(1)).tolist()
        kept = [
            entry for entry, any_of_it in zip(self.per_class(), there, strict=True) if any_of_it
        ]
        precision, recall, f1 = (
            sum(entry[key] for entry in kept) / len(kept) for key in ("precision", "recall", "f1")
        )
        return precision, recall, f1

    def confused(self, most: int) -> list[tuple[int, int, int]]:
        """The most common mistakes, at most ``most``: (true class, answer, pictures)."""
        wrong = self.confusion - np.diag(np.diag(self.confusion))
        order = np.argsort(-wrong.reshape(-1), kind="stable")[:most]
        pairs = [(*divmod(int(cell), len(wrong)), int(wrong.flat[cell])) for cell in order]
        return [pair for pair in pairs if pair[2] > 0]

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        return {
            "checkpoint": str(self.checkpoint),
            "dataset": self.dataset,
            "split": self.part,
            "tta": self.tta,
            "tta_share": self.tta_share,
            "size": [*self.size],
            "count": self.count,
            "correct": self.correct,
            "accuracy": self.accuracy,
            "accuracy_interval": [*self.interval],
            "loss": self.loss,
            "per_class": self.per_class(),
            "mean": dict(zip(("precision", "recall", "f1"), self.means(), strict=True)),
            "confusion_matrix": self.confusion.tolist(),
            "top_k": {str(k): right / self.count for k, right in self.top_k.items()},
            "top_k_intervals": {
                str(k): [*wilson(right, self.count)] for k, right in self.top_k.items()
            },
            "worst": [asdict(mistake) for mistake in self.worst],
        }


class Tally:
    """Accumulates confusion, ranks and mistakes over batches."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._cells = np.zeros(classes * classes, np.int64)
        self._ranks = np.zeros(classes, np.int64)
        self._wrong: list[Mistake] = []

    def add(
        self, index: NDArray[Any], labels: NDArray[Any], scores: Scores, probabilities: Scores
    ) -> None:
        """index, labels: (n,); scores, probabilities: (n, K), in the same order."""
        rows = np.arange(len(labels))
        answers = scores.argmax(1)
        self._cells += np.bincount(labels * self._classes + answers, minlength=len(self._cells))
        own = scores[rows, labels][:, None]
        # Of equal scores, the first class counts as the likelier, as for the answer.
        before = np.arange(self._classes) < labels[:, None]
        ranks = ((scores > own) | ((scores == own) & before)).sum(1)
        self._ranks += np.bincount(ranks, minlength=self._classes)
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
        named = order[:_WORST]
        return tuple(replace(m, source=sources[m.index] if sources else "") for m in named)


def load_part(
    trained: Trained,
    part: Part,
    root: Path,
    dataset: str | None = None,
    downloads: Downloads | None = None,
    notice: Callable[[str], object] = lambda text: None,
    size: tuple[int, int] | None = None,
    read: Callable[..., ImageSet] = load_data,
) -> tuple[ImageSet, NDArray[np.int32]]:
    """The pictures of a split and the indices that belong to it.

    Classes are matched by name, and labels are those of the network. dataset: a data set other than
    that of training, with the same channels and classes. ``train`` and ``validation`` are the parts
    into which training divided the training set. ``notice`` is told of changes since the training.
    size: (height, width) to be evaluated at, which ``fitted`` gives to pictures without files;
    ``read`` loads the own data set.
    Raises DatasetError, CheckpointError, and ShapeError for a size that the network cannot take.
    """
    if part not in get_args(Part):
        raise DatasetError(f"split: {expected(get_args(Part), str(part), repr(part))}")
    config, origin = trained.config, (trained.path, trained.checkpoint.provenance)
    own = config.data.dataset.type
    name = own if dataset is None else dataset
    if name == own:
        check_folders(trained.checkpoint, config)
    split: Literal["train", "test"] = "test" if part == "test" else "train"
    try:
        info = describe_data(config, root) if name == own else describe(name, root=root)
        fits = name == own or len(info.classes) == len(trained.classes)
        if info.shape[0] != trained.input_shape[0] or not fits:
            needed = f"{shape_text(trained.input_shape)} and {len(trained.classes)} classes"
            raise DatasetError(
                f"dataset '{name}' has pictures {shape_text(info.shape)} and {len(info.classes)} "
                f"classes; {trained.path} needs {needed}"
            )
        trained.at_size(size or info.shape[1:])
        if name == own:
            images = read(config, split, root, downloads, origin[1].pixel_bits, size)
        else:
            images = load(name, split, root=root, downloads=downloads)
    except DatasetError:
        gone = _missing_folders(trained, root) if name == own else ()
        if not gone:
            raise
        first, *others = map(str, gone)
        nor = f" and no {others[0]} either" if others else ""
        raise DatasetError(
            f"{first}: cannot be read, as there is no such folder{nor}; the network was trained on "
            "its pictures. If it was renamed, give it its name again, or make a link of that name "
            "to it; if it is in another folder now, name that one with --data-dir"
        ) from None
    if part == "test" or name != own:
        images = in_classes(images, trained.classes, str(trained.path), notice, name != own)
    if part == "test":
        listed = listed_samples(origin) if name == own else None
        known = set() if listed is None else listed.trained_contents()
        pairs = zip(images.names, images.contents, strict=True)
        if seen := [sample for sample, content in pairs if content in known]:
            text = f"{len(seen)} of {len(images)} pictures were trained on: {some(seen)}"
            notice(Warned(text))
        return images, np.arange(len(images), dtype=np.int32)
    if name == own:
        taken = choose(config, images, origin, None, False, True, notice)
        images, train, validation = taken.images, taken.train, taken.validation
    else:
        train, validation = divide(config, images.labels, images.held)
    if part == "train":
        return images, train
    if len(validation) == 0:
        raise DatasetError(
            f"{trained.path}: was trained without validation samples (data.validation: 0); "
            "use --split train or --split test"
        )
    return images, validation


def fitted(
    trained: Trained,
    images: ImageSet,
    size: tuple[int, int] | None,
    notice: Callable[[str], object],
) -> ImageSet:
    """The pictures, or sequences as a whole, scaled to ``size``, by default as they are."""
    if size not in (None, images.images.shape[2:]):
        found = resized(images.images, size, not trained.takes_pictures)
        images = replace(images, images=found)
    own, shape = trained.input_shape, images.images.shape[1:]
    if shape != own:
        notice(f"pictures are {shape_text(shape)}; in training they were {shape_text(own)}")
    return images


def _missing_folders(trained: Trained, root: Path) -> tuple[Path, ...]:
    """Where the pictures that it was trained on, or is tested on, were looked for if they are gone.

    First where the config of the run has them.
    """
    chosen = trained.config.data.dataset
    own = trained.config.data.root if is_in_own_folder(trained.path) else None
    if chosen.type == "image_folder":
        options = chosen.options()
        for name in filter(None, (options["train"], options["validation"], options["test"])):
            above = [root] if own is None else [Path(own), root]
            found = [folder / Path(name).expanduser() for folder in above]
            missing = [folder for folder in found if not folder.exists()]
            if found[-1] in missing:
                return tuple(dict.fromkeys(missing))
    return ()


def evaluate(
    trained: Trained,
    backend: Backend,
    images: ImageSet,
    index: NDArray[np.int32],
    part: Part,
    progress: Callable[[int], object] = lambda count: None,
    tta: str | None = None,
    hear: Callable[[NDArray[np.int32], Scores, Scores], object] = lambda *batch: None,
) -> Evaluation:
    """Run every picture of ``index`` through the network once, in the views of ``tta``.

    ``tta``: a name of TEST_TIME, by default the config's; scores are averaged over its views, of
    the config's ``evaluate.tta_share`` of each batch.
    The pictures may be of another size than in training, see ``Trained.at_size``.
    The last batch is padded with masked samples. ``progress`` is called with the number of
    pictures of each batch, ``hear`` with its samples (n,), in the order of ``index``, their scores
    and their probabilities (n, K).
    """
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
        tally = Tally(len(trained.classes))
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
        confusion=tally.confusion,
        top_k=tally.top_k(),
        worst=tally.worst(images.sources),
        tta=tta,
        tta_share=views.share if tta != "none" else 1.0,
        size=(height, width),
    )
