"""Which tests cost much: what ``-m "not slow"`` leaves out, and what is done with ``--long`` alone.

By file below tests/, or by function of a file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# A second of a core or more for a test, or many seconds for all of a function.
SLOW = frozenset(
    (
        "cli/test_abandoned.py",
        "cli/test_compress.py",
        "cli/test_encodings.py",
        "cli/test_kills.py",
        "cli/test_main.py",
        "cli/test_machines.py",
        "cli/test_report.py",
        "cli/test_side_by_side.py",
        "cli/test_signals.py",
        "cli/test_started_at_once.py",
        "cli/test_surroundings.py",
        "cli/test_sweep.py",
        "cli/test_sweep_generations.py",
        "cli/test_together.py",
        "faults/test_failing_calls.py",
        "faults/test_power_loss.py",
        "training/ranks/test_asynchronous.py",
        "training/ranks/test_failures.py",
        "training/ranks/test_same_bits.py",
        "training/ranks/test_watchdog.py",
        "training/test_random_nets.py",
        "training/test_soak.py",
    )
)
# What they draw by seed is alike: the first of it finds most.
DRAWN = frozenset(
    (
        "backends/cuda/fused/test_dense_update_emulated.py",
        "backends/cuda/fused/test_tensor_conv_emulated.py",
        "backends/cuda/fused/test_tensor_dense_emulated.py",
    )
)
LONG = frozenset(("cli/test_kills.py", "faults/test_power_loss.py"))


def marks(item: pytest.Item) -> tuple[str, ...]:
    """Those that a test gets."""
    file = item.path.relative_to(TESTS).as_posix()
    names = {file, f"{file}::{getattr(item, 'originalname', item.name)}"}
    drawn = getattr(item, "callspec", None)
    seed = drawn.params.get("seed", 0) if drawn is not None and names & DRAWN else 0
    if seed or names & LONG:
        return ("slow", "long")
    return ("slow",) if names & (SLOW | DRAWN) else ()
