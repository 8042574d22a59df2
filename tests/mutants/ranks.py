"""Faults in what ranks do together."""

from __future__ import annotations

from .mutant import Mutant

_SHARE = "training/test_share.py"
_COLLECTIVES = "backends/cuda/operations/test_collectives.py"
_WATCHDOG = "training/ranks/test_watchdog.py"

RANKS = (
    Mutant(
        "ranks: gradients are not summed",
        "optimizers/optimizer.py",
        "        if self.ranks > 1 and weights:\n",
        "        if self.ranks > 2 and weights:\n",
        (f"{_SHARE}::test_the_fastest_calls_are_the_same_for_all_ranks",),
    ),
    Mutant(
        "ranks: gradients are summed one after the other",
        "backends/collectives.py",
        "            rows[i] += rows[i + stride]\n",
        "            rows[0] += rows[i + stride]\n",
        (f"{_COLLECTIVES}::test_rows_are_added_in_pairs",),
    ),
    Mutant(
        "ranks: the fastest calls are timed with what ranks do together",
        "backends/tuning.py",
        "    alone = [op for op in graph.ops if not op.shared_out]\n",
        "    alone = list(graph.ops)\n",
        (f"{_SHARE}::test_the_fastest_calls_are_the_same_for_all_ranks",),
    ),
    Mutant(
        "ranks: the table of calls depends on how many there are",
        "backends/tuning.py",
        '        left |= {"parts", "pending"}\n',
        '        left |= {"pending"}\n',
        (f"{_SHARE}::test_the_fastest_calls_are_the_same_for_all_ranks",),
    ),
    Mutant(
        "ranks: each begins with the first part",
        "training/stretches.py",
        "step * self.parts + self.share.rank * self.own",
        "step * self.parts",
        (f"{_SHARE}::test_counters_begin_with_the_own_parts",),
    ),
    Mutant(
        "ranks: any number of parts may be a rank's",
        "training/share.py",
        "if branch.bit_count() == 1}",
        "if branch}",
        (f"{_SHARE}::test_every_rank_has_a_branch_of_the_tree",),
    ),
    Mutant(
        "watchdog: it counts while nobody is waited for",
        "training/ranks/watchdog.py",
        "looks + 1 if now == turn and now % 2 else 0",
        "looks + 1 if now == turn else 0",
        (f"{_WATCHDOG}::test_only_a_long_wait_for_others_ends_a_process",),
    ),
    Mutant(
        "watchdog: many short waits are one long one",
        "training/ranks/watchdog.py",
        "looks + 1 if now == turn and now % 2 else 0",
        "looks + 1 if now % 2 else looks",
        (f"{_WATCHDOG}::test_only_a_long_wait_for_others_ends_a_process",),
    ),
    Mutant(
        "ranks: parameters that drift apart are saved",
        "training/ranks/leader.py",
        "            if mark != every[0][0]:\n",
        "            if mark != every[rank][0]:\n",
        ("training/ranks/test_failures.py::test_parameters_that_drift_apart_are_not_saved",),
    ),
    Mutant(
        "ranks: a rank with another program is let in",
        "training/ranks/team.py",
        "                if found.get(name) != value:\n",
        "                if name not in found:\n",
        ("training/ranks/test_failures.py::test_another_version_is_named",),
    ),
)
