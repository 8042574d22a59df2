"""What networks answer: evaluations, ensembles, comparisons and predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from dnnstack.datasets import Picture
from dnnstack.many.comparison import Comparison
from dnnstack.many.ensemble import EnsembleEvaluation, Gain
from dnnstack.reports.compare_text import as_text as comparison_text
from dnnstack.reports.ensemble_text import text_of
from dnnstack.reports.evaluate_text import as_text as evaluation_text
from dnnstack.reports.predict_text import as_colours, blocks, csv_row, headline
from dnnstack.reports.predict_text import as_text as prediction_text
from dnnstack.training.inference.predict import Answer, Prediction, columns
from dnnstack.training.inference.tally import Mistake

from ..support.described import as_json, at_widths, joined
from .golden_objects import evaluation

SMALL = np.array([[6, 2, 0], [1, 9, 0], [0, 2, 0]])


THIRD_ALONE = np.array([[0, 5, 0], [0, 5, 0], [0, 5, 0]])


def _evaluation() -> str:
    """Eleven mistakes with their sources, and what averaging over views says."""
    found = evaluation(SMALL, "animal {}")
    sources = ["row 1: 0, 1", "/elsewhere/a/long/path/" + "x" * 50 + ".png", *["row 3"] * 9]
    worst = tuple(Mistake(i, 0, 1 + i % 2, 0.99, 0.01, s) for i, s in enumerate(sources))
    found = replace(found, worst=worst, tta="mirror", tta_share=0.25)
    texts = at_widths(lambda width: evaluation_text(found, width), 80, 60, 40)
    # Classes that are never answered, that are not there, and that are all there is.
    long = "a name of which no more than the beginning is shown: {}"
    cases = ((SMALL.T, long), (THIRD_ALONE, "{}"), (np.eye(3, dtype=int) * 4, "{}"))
    others = [evaluation(*each) for each in cases]
    flawless = evaluation_text(replace(others[-1], worst=()), 80)
    cut = evaluation_text(replace(others[0], top_k={}), 120)
    return joined(texts, cut, flawless, *(as_json(each.to_json()) for each in (found, *others)))


def _large_evaluation() -> str:
    matrix = np.diag(np.arange(8, 20)) * 60
    matrix[0, 1:7], matrix[3, 0] = (6, 5, 4, 3, 2, 1), 12
    texts = at_widths(
        lambda width: evaluation_text(evaluation(matrix, "the class of the {}th"), width), 80, 50
    )
    return joined(texts, evaluation_text(evaluation(np.full((40, 40), 1000), "class {}"), 80))


def _ensemble(*, votes: bool) -> str:
    members = (
        evaluation(SMALL),
        replace(evaluation(SMALL.T, step=2), checkpoint=Path("other.dnnz")),
    )
    found = EnsembleEvaluation(
        **vars(evaluation(SMALL + np.eye(3, dtype=int)))
        | {"loss": float("nan") if votes else 0.25},
        members=members,
        combine="votes" if votes else "probabilities",
        weights=(0.5, 0.5) if votes else (0.75, 0.25),
        weighted=not votes,
        over_best=Gain(0.01, -0.005, 0.025),
        over_mean=Gain(-0.02, -0.03, 0.0),
    )
    found = replace(found, tta="none" if votes else "own")
    return joined(at_widths(lambda width: text_of(found, width), 80, 44), as_json(found.to_json()))


def _comparison(*counts: int) -> str:
    first, second = evaluation(SMALL), evaluation(SMALL.T, step=3)
    found = Comparison(first, second, *counts)
    texts = at_widths(lambda width: comparison_text(found, width), 80, 40)
    return joined(texts, as_json(found.to_json()))


def _of_one() -> str:
    return comparison_text(Comparison(evaluation(SMALL), evaluation(SMALL), 15, 0, 0, 5))


def prediction(count: int, doubt: str = "", colour: bool = False) -> Prediction:
    """Of so many classes, the second the likeliest; a picture with every kind of block."""
    shares = [0.02, 0.9, 0.05, 0.03, *[0.0] * count][:count]
    answers = [Answer(f"class {k}", k, share) for k, share in enumerate(shares)]
    image = np.zeros((3 if colour else 1, 9, 12), np.uint8)
    grey = 10 if colour else 11
    image[:, ::2, 4:8], image[:, 1::2, 6:10], image[-1:, :, grey:] = 255, 230, 112
    ranked = tuple(sorted(answers, key=lambda answer: -answer.probability))
    picture = Picture(image, ("inverted", "centred_by_mass"))
    return Prediction(Path("-a.png"), ranked, picture, doubt, tuple(shares))


def _prediction() -> str:
    found, doubtful = prediction(4), prediction(3, "an odd shape")
    steps = tuple(f"step_{k}_of_many" for k in range(12))
    many = [Answer(f"a class with a very long name, the {k}th", k, 0.1) for k in range(10)]
    seen = Picture(np.full((1, 28, 28), 255, np.uint8), steps)
    long = Prediction(Path("a"), tuple(many), seen)
    heads = csv_row(columns(["a", "=b", "c\n"]))
    return joined(
        at_widths(lambda width: prediction_text(found, "a.png", width=width), 100, 50, 30, 12),
        prediction_text(doubtful, "b.png", best_first=True, plain=True),
        headline(doubtful, "b.png"),
        prediction_text(long, "x"),
        *(heads, csv_row(found.to_row()), csv_row(doubtful.to_row())),
        as_json([found.to_json(), doubtful.to_json(), long.to_json()]),
    )


def _colours() -> str:
    parts = as_colours(prediction(4, colour=True), "a.png", width=60)
    return "".join(f"{'ours' if ours else 'text'} {text!r}\n" for text, ours in parts)


def _blocks() -> str:
    """Greys, which are not drawn; two tones with every threshold; wide."""
    greys = np.tile(np.arange(64, 193, 8, np.uint8), (1, 4, 1))
    levels = np.zeros((1, 1, 21), np.uint8)
    levels[0, 0, :7] = 0, 64, 111, 112, 113, 192, 255
    wide = np.zeros((1, 20, 66), np.uint8)
    wide[:, :10, :33] = 255
    flat = np.full((1, 1, 100), 255, np.uint8)
    pictures = (greys, levels[:, :, :20], levels, wide, flat)
    return "".join(f"{row}|\n" for each in pictures for row in ("-", *blocks(each)))


ANSWERS: dict[str, Callable[[], str]] = {
    "evaluation": _evaluation,
    "evaluation_of_12": _large_evaluation,
    "ensemble": lambda: _ensemble(votes=False),
    "ensemble_of_votes": lambda: _ensemble(votes=True),
    "comparison": lambda: _comparison(900, 60, 30, 10),
    "comparison_by_chance": lambda: _comparison(10, 4, 4, 2),
    "comparison_of_one": _of_one,
    "prediction": _prediction,
    "prediction_in_colours": _colours,
    "blocks": _blocks,
}
