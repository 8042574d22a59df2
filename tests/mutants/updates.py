"""Faults in updates that the kernel of a gradient makes."""

from __future__ import annotations

from .mutant import Mutant

_WEIGHTS = "backends/cuda/fused/test_dense_update.py"

UPDATES = (
    Mutant(
        "CUDA: weights are updated before others have read them",
        "backends/cuda/binding/at_once.py",
        "        found.insert(last + 1, op)\n        del found[at]\n",
        "        pass\n",
        (f"{_WEIGHTS}::test_nothing_reads_weights_that_were_updated",),
    ),
    Mutant(
        "CUDA: the next batch is gathered over what the update still reads",
        "backends/cuda/operations/sgd.py",
        "weights.blocks if meet else 0",
        "0",
        (f"{_WEIGHTS}::test_the_next_batch_waits_for_what_reads_the_present_one",),
    ),
    Mutant(
        "CUDA: the next batch is gathered beside an update that still reads this one",
        "backends/cuda/operations/sgd.py",
        "        b.forget_early()\n",
        "        pass\n",
        (f"{_WEIGHTS}::test_the_launch_of_the_update_computes_them",),
    ),
    Mutant(
        "CUDA: weights are read while an update in front may still write them",
        "backends/cuda/fused/dense_update.py",
        "int(b.in_front() == TAIL)",
        "1",
        (f"{_WEIGHTS}::test_weights_are_read_early_behind_a_tail_alone",),
    ),
    Mutant(
        "CUDA: what another kernel has moved is moved again",
        "backends/cuda/operations/sgd.py",
        "table = update.table({*others, *moved})",
        "table = update.table(others)",
        (f"{_WEIGHTS}::test_the_rest_is_left_to_the_update",),
    ),
    Mutant(
        "CUDA: blocks beyond those of another kernel do its work",
        "backends/cuda/sources/sgd.cuh",
        "return block < gap ? block : block + gaps;",
        "return block;",
        ("backends/cuda/operations/test_step_end_emulated.py",),
    ),
    Mutant(
        "CUDA: the last stage of a weight gradient is left out",
        "backends/cuda/fused/weights.cuh",
        "for (int turn = 0; turn < TURNS; ++turn)",
        "for (int turn = 0; turn < most(1, TURNS - 1); ++turn)",
        ("backends/cuda/fused/test_dense_update_emulated.py",),
    ),
)
