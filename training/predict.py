"""What a trained network sees in picture files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..common.errors import DatasetError
from ..datasets import read_picture
from ..layers.backends.base import Backend
from .trained import Trained


@dataclass(frozen=True)
class Answer:
    """A class with its probability."""

    label: str
    index: int
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of one picture, best first, and what was done to the picture."""

    path: Path
    top: tuple[Answer, ...]
    preprocessing: tuple[str, ...]

    @property
    def best(self) -> Answer:
        return self.top[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            **vars(self.best),
            "top": [dict(vars(answer)) for answer in self.top],
            "preprocessing": list(self.preprocessing),
        }


def predict(
    trained: Trained, backend: Backend, paths: Sequence[Path], top: int
) -> Iterator[Prediction | DatasetError]:
    """For each path in turn a prediction, or the error that says why there is none.

    Pictures go through the network one by one, so an answer never depends on its neighbours.
    """
    graph = trained.network.infer_graph(1)
    scaling = trained.checkpoint.state.preprocessing
    scale = np.array(scaling.scale, np.float32)[:, None, None]
    shift = np.array(scaling.shift, np.float32)[:, None, None]
    executable = trained.compile(backend, graph)
    try:
        for path in paths:
            try:
                picture = read_picture(path, trained.input_shape)
            except DatasetError as error:
                yield error
                continue
            executable.write(graph["x"], (picture.image.astype(np.float32) * scale + shift)[None])
            executable.run(graph.name)
            probabilities = executable.read(graph["probabilities"])[0].astype(np.float64)
            best = np.argsort(-probabilities, kind="stable")[:top]
            answers = tuple(
                Answer(trained.classes[i], int(i), float(probabilities[i])) for i in best
            )
            yield Prediction(path, answers, picture.steps)
    finally:
        executable.close()


def as_text(prediction: Prediction, width: int = 0) -> str:
    """One line: the path, filled up to ``width``, the answer, the next ones."""
    best, *others = prediction.top
    line = f"{prediction.path!s:<{width}}  {best.label}  {best.probability:6.1%}"
    if others:
        line += "  (then " + ", ".join(f"{a.label} {a.probability:.1%}" for a in others) + ")"
    return line
