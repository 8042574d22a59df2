"""Where small trainings end, against stored numbers: parameters, state, metrics and evaluations."""

from __future__ import annotations

import csv
from collections.abc import Callable

import numpy as np
from dnnstack.backends.base import Array, Backend
from dnnstack.configs import RunConfig
from dnnstack.training.inference.evaluate import evaluate
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.trained import Trained
from dnnstack.training.trainer import train

from ..support.frozen import changed
from ..support.stored import cases
from ..support.trainings import NOWHERE, end_of

Make = Callable[..., RunConfig]


def ended(config: RunConfig, backend: Backend) -> dict[str, Array]:
    summary = train(config, backend, NOWHERE)
    saved = end_of(summary)
    trained = Trained.of(saved)
    found = dict(saved.arrays)
    assert summary.validation is not None
    # What a checkpoint evaluates to is what training said of it; then the other views.
    for part, tta in (("validation", None), ("test", None), ("test", "none"), ("test", "mirror")):
        images, index = load_part(trained, part, NOWHERE)
        result = evaluate(trained, backend, images, index, part, **({"tta": tta} if tta else {}))
        found[f"{part} {tta}"] = np.array([result.loss, result.correct, result.tta_share])
    np.testing.assert_allclose(found["validation None"][0], summary.validation.loss, rtol=1e-6)
    rows = list(csv.DictReader((summary.run / "metrics.csv").read_text("utf-8").splitlines()))
    for key in ("step", "epoch", "loss", "accuracy", "learning_rate"):
        found[f"logged {key}"] = np.array([float(row[key]) for row in rows])
    scaling = saved.provenance.preprocessing
    found["preprocessing"] = np.array([scaling.scale, scaling.shift])
    return found


def test_ends_are_what_they_were(tiny: Make, reference: Backend) -> None:
    listed = cases(__file__, "overrides").items()
    found = {
        name: ended(tiny(f"name=n{n}", *more), reference) for n, (name, more) in enumerate(listed)
    }
    assert changed(__file__, found, rtol=1e-5) == []
