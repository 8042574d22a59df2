"""Inputs that nobody meant: every reader reads them, or refuses them in a short message.

DNNSTACK_FUZZ=100000 draws so many for each reader, each time others, in parts for pytest-xdist.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, seed, settings

from ..support.costly import TURNS
from .harness import Target, examine
from .targets import TARGETS

pytestmark = pytest.mark.timeout(0 if os.environ.get("DNNSTACK_FUZZ") else 600)

COUNT = int(os.environ.get("DNNSTACK_FUZZ", "0"))
USUAL, MOST_A_PART = 100, 5000
PARTS = range(-(-(COUNT or USUAL) // MOST_A_PART))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", TARGETS)
def test_it_is_read_or_refused_in_a_short_message(name, part, tmp_path, pytestconfig):
    target, turn = TARGETS[name], pytestconfig.option.turn
    count = COUNT or (USUAL if turn is None else USUAL // TURNS)
    read = []

    @seed(random.SystemRandom().getrandbits(64) if COUNT else part + (turn or 0))
    @settings(
        max_examples=min(count - part * MOST_A_PART, MOST_A_PART),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(data=target.inputs)
    def run(data: bytes) -> None:
        read.append(examine(target, data, tmp_path))

    run()
    # A few may all be refused.
    assert any(read) or turn is not None, "no input was read, so only refusals were tested"


@pytest.mark.parametrize("name", TARGETS)
def test_sound_files_are_read(name, tmp_path):
    target: Target = TARGETS[name]
    assert examine(target, target.seeds()[0], tmp_path)
