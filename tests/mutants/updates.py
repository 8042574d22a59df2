"""Faults in updates, and in what a search finds for them."""

from __future__ import annotations

from .mutant import Mutant

_SETTLING = "backends/cuda/test_settling.py"
_SEARCH = "backends/cuda/test_tuner.py"
_PLANS = "backends/cuda/test_timed_plans.py"
_ERRORS = "backends/cuda/test_errors.py"
_MODULES = "backends/cuda/libraries/test_modules.py"
_WEIGHTS = "backends/cuda/fused/test_dense_update.py"

UPDATES = (
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
        "CUDA: a product that there is no more is not named",
        "backends/cuda/operations/linear.py",
        "if not chosen.isdecimal():",
        "if False:",
        (f"{_WEIGHTS}::test_a_choice_that_there_is_no_more_is_named",),
    ),
    Mutant(
        "CUDA: the update is given a second product",
        "backends/cuda/fused/dense_update.py",
        "if b.decisions.weights is not None:",
        "if False:",
        (f"{_WEIGHTS}::test_a_choice_where_it_does_not_serve_is_an_error",),
    ),
    Mutant(
        "CUDA: the first of two updates takes along what belongs to the last",
        "backends/cuda/operations/sgd.py",
        "ends = last_advance(b.graph, op) is not None",
        "ends = True",
        (f"{_WEIGHTS}::test_only_the_last_update_takes_along",),
    ),
    Mutant(
        "CUDA: what a product has moved is moved again",
        "backends/cuda/operations/sgd.py",
        "        others.add(weights.op.c)\n",
        "",
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
    Mutant(
        "CUDA: a choice that there is no more is passed over in silence",
        "backends/cuda/backend.py",
        'if "/" not in name and name not in WHOLE:',
        "if False:",
        (f"{_SETTLING}::test_a_checkpoint_may_name_a_choice_that_there_is_no_more",),
    ),
    Mutant(
        "CUDA: an evaluation refuses the table of an older training",
        "backends/cuda/backend.py",
        "                if trained:\n                    _check_names",
        "                if True:\n                    _check_names",
        (f"{_SETTLING}::test_a_checkpoint_may_name_a_choice_that_there_is_no_more",),
    ),
    Mutant(
        "search: what makes few launches is tried one by one alone",
        "backends/cuda/tuner.py",
        "    return _united(build, *best, rivals, options, deadline)\n",
        "    return best\n",
        (f"{_SEARCH}::test_fewest_launches_are_tried_together_where_each_alone_loses",),
    ),
    Mutant(
        "search: only what is fastest at first is looked into further",
        "backends/cuda/tuner.py",
        "NEAR = 1.1",
        "NEAR = 1.0",
        (f"{_SEARCH}::test_what_is_nearly_as_fast_is_looked_into_further",),
    ),
    Mutant(
        "search: the update is to make two products",
        "backends/cuda/binding/at_once.py",
        "not is_at_end(name, choice) or len(without_ends(others, name)) == len(others)",
        "True",
        (f"{_SEARCH}::test_the_update_makes_one_product_at_most",),
    ),
    Mutant(
        "search: a kernel that computes wrongly is taken where none computes rightly",
        "backends/cuda/timed_plans.py",
        '    right = seconds < float("inf") and graph.verified(graph.plan, workspace)\n',
        "    right = True\n",
        (f"{_PLANS}::test_what_computes_wrongly_is_never_the_fastest",),
    ),
    Mutant(
        "search: launches of layouts that are not taken count",
        "backends/cuda/tuner.py",
        "return self.launches.get(frozenset(choices.items()), 0) > FEW_LAUNCHES",
        "return max(self.launches.values(), default=0) > FEW_LAUNCHES",
        (f"{_SEARCH}::test_launches_of_what_is_rejected_switch_nothing_off",),
    ),
    Mutant(
        "search: a table is tried again as its own rival",
        "backends/cuda/tuner.py",
        "if turn >= len(others) or found.get(name) == others[turn]:",
        "if turn >= len(others):",
        (f"{_SEARCH}::test_no_table_is_tried_twice_for_its_rivals",),
    ),
    Mutant(
        "memory: the first run needs a second copy of the state on the GPU",
        "backends/cuda/executable.py",
        "        return array.get()\n",
        "        raise\n",
        (f"{_ERRORS}::test_the_first_run_does_without_a_second_copy_where_memory_is_short",),
    ),
    Mutant(
        "memory: what is spare stays spare where code finds no memory",
        "backends/cuda/libraries/modules.py",
        "                api.pool.release()\n",
        "",
        (f"{_MODULES}::test_code_that_finds_no_memory_is_loaded_once_what_is_spare_is_free",),
    ),
    Mutant(
        "peers: memory is freed that another still has open",
        "backends/cuda/libraries/peers.py",
        "    _gathered(ranks, np.zeros(1, np.uint8))\n",
        "",
        ("backends/cuda/operations/test_peers.py::test_ranks_that_cannot_reach_it_take_nccl",),
    ),
)
