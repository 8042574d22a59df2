"""Faults in what ranks do together."""

from __future__ import annotations

from .mutant import Mutant

_SHARE = "training/test_share.py"
_COLLECTIVES = "backends/cuda/operations/test_collectives.py"
_PEERS = "backends/cuda/operations/test_peers.py"
_EMULATED = "backends/cuda/operations/test_peers_emulated.py"
_END = "backends/cuda/operations/test_ranks_end_emulated.py"
_ASYNC = "training/ranks/test_asynchronous.py"
_SPLIT = "training/ranks/test_split.py"
_SPACE = "training/ranks/test_space.py"
_WATCHDOG = "training/ranks/test_watchdog.py"

RANKS = (
    Mutant(
        "ranks: gradients are not summed",
        "optimizers/optimizer.py",
        "        if self.ranks > 1 and alike:\n",
        "        if self.ranks > 2 and alike:\n",
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
        "not op.shared_out or isinstance(op, Exchange)]",
        "op]",
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
        "(1 << exponent for exponent in range(parts.bit_length()))",
        "range(1, parts + 1)",
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
    Mutant(
        "peers: a rank writes to what another still reads",
        "backends/cuda/sources/peers.cuh",
        "(area * 2 + turn % 2) * (RANKS - 1)",
        "area * 2 * (RANKS - 1)",
        (f"{_EMULATED}::test_a_fast_rank_writes_nothing_that_a_slow_one_still_reads",),
    ),
    Mutant(
        "peers: what is summed with the update is updated as what lies in front of it",
        "backends/cuda/sources/ranks_end.cu",
        "        const int at = place + values.place(i);\n",
        "        const int at = values.place(i);\n",
        (f"{_END}::test_ranks_sum_follow_and_gather",),
    ),
    Mutant(
        "peers: every rank gathers the first part of the next step",
        "backends/cuda/sources/next_batch.cuh",
        "((now + 1) * every + first)",
        "((now + 1) * every)",
        (f"{_END}::test_ranks_sum_follow_and_gather",),
    ),
    Mutant(
        "peers: what the update sums itself it also takes as summed before",
        "backends/cuda/operations/ranks_end.py",
        "    rest = update.table(small.op.values)\n",
        "    rest = update.table([])\n",
        (f"{_PEERS}::test_a_small_sum_and_the_metrics_are_one_launch",),
    ),
    Mutant(
        "peers: the norm of the gradients is that before the sum",
        "backends/cuda/binding/small_sums.py",
        "    update = behind[0] if behind else None\n",
        "    update = next((op for op in behind if isinstance(op, SgdUpdate)), None)\n",
        (f"{_PEERS}::test_what_comes_between_keeps_the_sum_apart",),
    ),
    Mutant(
        "peers: the next part is gathered where none follows",
        "backends/cuda/binding/launch_list.py",
        "        return [*self.steps, *[*other, *rest] * (times - 1), *last.steps]\n",
        "        return [*self.steps, *other, *[*rest, *other] * (times - 1)]\n",
        (f"{_PEERS}::test_the_next_part_is_gathered_with_the_sum",),
    ),
    Mutant(
        "peers: a rank goes its own way where another cannot reach it",
        "backends/cuda/libraries/peers.py",
        "    if reached.all():\n",
        "    if reached[ranks.rank].all():\n",
        (f"{_PEERS}::test_ranks_that_cannot_reach_it_take_nccl",),
    ),
    Mutant(
        "peers: the part that a rank has computed is not counted",
        "backends/cuda/operations/peers.py",
        "skip.parts + own)",
        "skip.parts)",
        (f"{_PEERS}::test_a_small_sum_and_the_metrics_are_one_launch",),
    ),
    Mutant(
        "peers: the last of several parts stands for their sum",
        "backends/cuda/binding/small_sums.py",
        " or whole.parts != 1:\n",
        ":\n",
        (f"{_PEERS}::test_of_several_parts_each_counts_itself",),
    ),
    Mutant(
        "peers: a sum beside backward takes gradients whose slices are not added up yet",
        "backends/cuda/binding/bind.py",
        "        reads = self.store.small_sums.reads(op)\n",
        "        reads = op.reads()\n",
        (f"{_PEERS}::test_a_sum_beside_backward_waits_for_its_gradients",),
    ),
    Mutant(
        "peers: a sum beside backward does not wait for other lanes",
        "backends/cuda/binding/bind.py",
        "            self.join(range(len(self.streams)))\n        self.join({",
        "            self.join([0])\n        self.join({",
        (f"{_PEERS}::test_a_sum_beside_backward_waits_for_its_gradients",),
    ),
    Mutant(
        "peers: what sums beside backward scale is scaled again",
        "backends/cuda/binding/early_sums.py",
        "        elif left and not small.takes(whole, left):\n",
        "        elif left:\n",
        (f"{_PEERS}::test_sums_beside_backward_have_room_of_their_own",),
    ),
    Mutant(
        "peers: of a sum in two places the second lies right behind the first",
        "backends/cuda/sources/peers.cu",
        "        put4(to + 4 * values.place(i), talk.sum(values, i));\n",
        "        put4(to + 4 * i, talk.sum(values, i));\n",
        (f"{_EMULATED}::test_all_ranks_have_the_sum_in_pairs_and_the_metrics",),
    ),
    Mutant(
        "peers: the second place of a sum is where the first ends",
        "backends/cuda/operations/peers.py",
        "last_start - first_stop if len(stretches) > 1 else 0",
        "0",
        (f"{_PEERS}::test_sums_beside_backward_have_room_of_their_own",),
    ),
    Mutant(
        "buckets: the update takes what the first stretch of a training adds up early",
        "optimizers/optimizer.py",
        "            trained = self._trained(parameters, steps_per_epoch, first_step)\n",
        "            trained = self._trained(parameters, steps_per_epoch, 0)\n",
        (f"{_SPLIT}::test_sums_in_pieces_change_no_bit",),
    ),
    Mutant(
        "split: the gradients of split layers are summed over the ranks again",
        "optimizers/optimizer.py",
        "            late = tuple(gradient for gradient in alike if gradient not in early)\n",
        "            late = tuple(gradients.values())\n",
        (f"{_SPLIT}::test_units_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "split: each rank clips by the norm of its own gradients",
        "optimizers/optimizer.py",
        "        if not apart:\n",
        "        if apart:\n            graph.add(GlobalNorm(gradients=alike + apart, norm=norm))\n"
        "            return norm\n        if not apart:\n",
        (f"{_SPLIT}::test_units_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "split: units are exchanged, but not put side by side",
        "backends/onednn/collectives.py",
        "        blocks[...] = received.swapaxes(0, 1)\n",
        "        blocks[...] = received.reshape(blocks.shape)\n",
        (f"{_SPLIT}::test_units_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "async: two servers hold the same number",
        "training/ranks/shard.py",
        "total * (server + 1) // servers",
        "min(total, total * (server + 1) // servers + 1)",
        (f"{_ASYNC}::test_every_number_is_held_by_one_server",),
    ),
    Mutant(
        "async: running statistics stay as they are",
        "training/ranks/shard.py",
        "        if self._kept is not None:\n",
        "        if self._kept is None:\n",
        (f"{_ASYNC}::test_servers_update_as_a_session_does",),
    ),
    Mutant(
        "async: any momentum is let in",
        "training/ranks/servers.py",
        "momentum > MOST_MOMENTUM and",
        "momentum > 1.0 and",
        (f"{_ASYNC}::test_what_cannot_be_asynchronous_is_refused",),
    ),
    Mutant(
        "split: every rank begins with the first rows",
        "training/session.py",
        "whole[self.setup.share.rank * own.shape[0] :][: own.shape[0]]",
        "whole[: own.shape[0]]",
        (f"{_SPLIT}::test_units_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "space: filters are updated with the gradient of the own rows",
        "optimizers/optimizer.py",
        "        if self.bands > 1 and not banded.isdisjoint(weights):\n",
        "        if self.bands > 9 and not banded.isdisjoint(weights):\n",
        (f"{_SPACE}::test_bands_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "space: every rank also adds up what all have alike",
        "training/network.py",
        "banded=number < count",
        "banded=count > 0",
        (f"{_SPACE}::test_bands_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "space: windows begin without the padding above",
        "layers/space.py",
        "    stride, top = window.stride[0], window.padding[0]\n",
        "    stride, top = window.stride[0], 0\n",
        (f"{_SPACE}::test_bands_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "space: the last rows of a picture are taken for another band's",
        "graph/ops/bands.py",
        "end = min(owner * each + each, self.height, ",
        "end = min(owner * each + each, ",
        (f"{_SPACE}::test_bands_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "space: the gradient of halo rows replaces that of the own",
        "backends/bands.py",
        "                target += rows_of\n",
        "                target[...] = rows_of\n",
        (f"{_SPACE}::test_bands_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "space: a GPU puts the gradient of halo rows in the place of the own",
        "backends/cuda/operations/bands.py",
        "(count, 0), to, count, back)",
        "(count, 0), to, count)",
        ("backends/cuda/operations/test_bands.py::test_rows_go_where_numpy_has_them",),
    ),
    Mutant(
        "space: batch norm between bands is let in",
        "layers/space.py",
        "    if not (_says_so(layer) or layer.by_pixel):\n",
        '    if not (_says_so(layer) or layer.by_pixel or layer.kind == "batch_norm"):\n',
        (f"{_SPACE}::test_what_has_no_bands_is_named_with_its_place",),
    ),
    Mutant(
        "space: ranks make parts of the batch too",
        "training/shared_parts.py",
        "(ranks > 1 and not config.in_bands)",
        "ranks > 1",
        (f"{_SPACE}::test_a_batch_in_one_part_stays_in_one_part",),
    ),
)
