"""What the stored reports are about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dnnstack.training.compressed.sensitivity import Curves, PrunedPoint, Sensitivity, SharedPoint
from dnnstack.training.inference.evaluate import Evaluation
from dnnstack.training.inference.tally import Mistake
from numpy.typing import NDArray


def evaluation(matrix: NDArray[np.int64], name: str = "{}", step: int = 1) -> Evaluation:
    """Of a matrix, with all of its pairs as mistakes. name: of a class, from its number."""
    wrong = np.argwhere(matrix - np.diag(np.diag(matrix))).tolist()
    right, count = int(np.trace(matrix)), int(matrix.sum())
    return Evaluation(
        checkpoint=Path(f"runs/net/checkpoints/step-{step}.safetensors"),
        dataset="animals",
        part="test",
        classes=tuple(name.format(k) for k in range(len(matrix))),
        loss=0.5 / step,
        confusion=matrix,
        top_k={1: right, 2: count - 2, 3: count},
        worst=tuple(
            Mistake(i, label, answer, 0.9 - i / 100, 0.05)
            for i, (label, answer) in enumerate(wrong)
        ),
    )


def sensitivity(count: int) -> Sensitivity:
    """Of so many parameters, each worse than the one before."""
    parameters = {
        f"{'a_block.' * (number == 0) * 5}dense_{number}.weight": Curves(
            1000 * (number + 1),
            (
                PrunedPoint(0.5, 0.9, 0.4),
                PrunedPoint(0.1, 0.895 - number / 1000, 0.4),
                PrunedPoint(0.01, 0.3, 2.0),
            ),
            (
                SharedPoint(8, 0.9, 0.4),
                SharedPoint(2, 0.896 - number / 1000, 0.5),
                SharedPoint(1, 0.2, 3.0),
            ),
        )
        for number in range(count)
    }
    return Sensitivity(Path("runs/net/checkpoints/step-1.safetensors"), 200, 0.9, 0.4, parameters)
