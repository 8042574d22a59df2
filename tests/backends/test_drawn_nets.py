"""Stored texts are about every kind of thing that a config can name."""

from __future__ import annotations

import json

import pytest
from dnnstack.layers.build import LAYERS
from dnnstack.layers.losses import LOSSES
from dnnstack.optimizers import RULES

from ..support.whole_sections import DRAWN

TEXT = json.dumps(DRAWN)
# Bound in the configs that ship, or as operations alone.
ELSEWHERE = {"heaviside", "perceptron", "binary_cross_entropy", "mae", "huber"}
ELSEWHERE |= {"distill", "lion", "rmsprop"}
ELSEWHERE |= {"conv1d", "max_pool1d", "avg_pool1d", "global_avg_pool1d"}


@pytest.mark.parametrize("kinds", [LAYERS, LOSSES, RULES])
def test_drawn_trainings_have_every_kind(kinds: dict[str, object]) -> None:
    missing = {kind for kind in kinds if f'"{kind}"' not in TEXT}
    assert missing <= ELSEWHERE
