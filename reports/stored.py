"""What ``eval`` and ``explain`` found of a run, stored beside it for ``report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.files import sha256_file
from ..training.inference.evaluate import Evaluation
from ..training.inference.trained import Trained
from ..training.records.runs import CONFIG, is_run
from .contact_sheet import write

if TYPE_CHECKING:
    from .explain import Explanation

EVALUATION, EXPLANATION, ROOFLINE = "eval.json", "explain.json", "roofline.svg"


def store_evaluation(trained: Trained, found: Evaluation, folder: Path) -> None:
    """Write the object of ``--json`` with the checkpoint's step and digest. Raises DatasetError."""
    origin = trained.checkpoint
    table = {**found.to_json(), "step": origin.state.step, "sha256": origin.sha256}
    write(json.dumps(table).encode(), folder / EVALUATION)


def store_explanation(found: Explanation, config: Path) -> list[Path]:
    """Write the object of ``--json`` with the config's digest, and of a measured step the roofline,
    beside the config of a run, not of others. Returns the picture. Raises DatasetError."""
    if config.name != CONFIG or not is_run(config.parent):
        return []
    table = {**found.to_json(), "sha256": sha256_file(config)}
    write(json.dumps(table).encode(), config.with_name(EXPLANATION))
    if not found.limits:
        return []
    write(found.roofline().encode(), config.with_name(ROOFLINE))
    return [config.with_name(ROOFLINE)]
