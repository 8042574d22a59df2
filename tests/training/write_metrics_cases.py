"""Writes metrics_cases.json: figures of random answers, as scikit-learn computes them.

    python tests/training/write_metrics_cases.py

It needs scikit-learn, which nothing else here does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    from sklearn import metrics as sk  # type: ignore[import-not-found]

    rng = np.random.default_rng(7)
    found: list[dict[str, Any]] = []

    def case(kind: str, targets: Any, answers: Any, overall: Any, outputs: Any = ()) -> None:
        given = {"kind": kind, "targets": targets.tolist(), "answers": answers.tolist()}
        found.append({**given, "overall": overall, "outputs": list(outputs)})

    targets = rng.normal(size=(9, 2)).round(2) * [1, 30]
    answers = (targets + rng.normal(size=(9, 2)) * [0.5, 8]).round(2)
    figures = []
    for k in range(2):
        pair = targets[:, k], answers[:, k]
        rmse = float(sk.root_mean_squared_error(*pair))
        mae = float(sk.mean_absolute_error(*pair))
        figures.append({"r2": float(sk.r2_score(*pair)), "rmse": rmse, "mae": mae})
    r2 = float(sk.r2_score(targets, answers, multioutput="variance_weighted"))
    rmse = float(np.sqrt(sk.mean_squared_error(targets, answers)))
    mae = float(sk.mean_absolute_error(targets, answers))
    case("numbers", targets, answers, {"r2": r2, "rmse": rmse, "mae": mae}, figures)

    yes = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 0, 1], [1, 0, 1]])
    # Coarse answers bring ties.
    answers = (rng.integers(0, 5, yes.shape) / 4 * [1, 0.4, 1]).round(2)
    figures = []
    for k in range(3):
        said, own = answers[:, k] > 0.5, yes[:, k]
        rates = sk.precision_recall_fscore_support(own, said, average="binary", zero_division=0)
        named = dict(zip(("precision", "recall", "f1"), map(float, rates[:3]), strict=True))
        both = len({*own.tolist()}) == 2
        auc = float(sk.roc_auc_score(own, answers[:, k])) if both else None
        accuracy = float(sk.accuracy_score(own, said))
        figures.append({"accuracy": accuracy, **named, "roc_auc": auc})
    keys = ("accuracy", "precision", "recall", "f1", "roc_auc")
    known = {key: [each[key] for each in figures if each[key] is not None] for key in keys}
    case("yes_no", yes, answers, {key: float(np.mean(known[key])) for key in keys}, figures)

    labels = np.array([0, 1, 2, 2, 1, 0, 1, 2])
    answers = rng.dirichlet(np.ones(4), 8).round(3)
    said = answers.argmax(1)
    rates = sk.precision_recall_fscore_support(labels, said, average="macro", zero_division=0)
    named = dict(zip(("precision", "recall", "f1"), map(float, rates[:3]), strict=True))
    case("class", labels, answers, {"accuracy": float(sk.accuracy_score(labels, said)), **named})
    Path(__file__).with_name("metrics_cases.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
