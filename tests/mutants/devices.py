"""Faults in the backends for a CPU, on oneDNN, and for a GPU, as far as they show without one."""

from __future__ import annotations

from .mutant import Mutant

_PARITY = "backends/test_parity.py::test_operation"
_ONEDNN = "backends/onednn"
_FORMULAS = "backends/cuda/sources/test_formulas.py"
_FEEDS = "backends/cuda/binding/test_feeds.py"
_KEPT = "backends/cuda/libraries/test_kept_graphs.py"
_PLAN = "backends/cuda/test_memory_plan.py"
_LAYOUT = "backends/cuda/libraries/test_layout.py"
_EMULATED = "backends/cuda/fused/test_tensor_conv_emulated.py"
_TENSOR = "backends/cuda/fused/test_tensor_conv.py"
_PRODUCT = "backends/cuda/fused/test_tensor_dense_emulated.py::test_any_product"
_PRODUCTS = "backends/cuda/fused/test_tensor_dense.py"
_KEEPING = "training/groups/test_keeping.py"
_NUMBERS = "training/groups/test_numbers.py"
_PICTURES = "backends/cuda/binding/test_pictures.py"

DEVICES = (
    Mutant(
        "oneDNN: an epilogue's activation is left out",
        f"{_ONEDNN}/convolution.py",
        "post_ops(op, written)",
        "None",
        (f"{_PARITY}[cpu-conv2d-bias-relu]", f"{_PARITY}[cpu-conv2d-stride-bias-relu]"),
    ),
    Mutant(
        "oneDNN: padding of a convolution at the other ends",
        f"{_ONEDNN}/convolution.py",
        "Dims(top, left), Dims(bottom, right)",
        "Dims(bottom, right), Dims(top, left)",
        (f"{_PARITY}[cpu-conv2d-lopsided]",),
    ),
    Mutant(
        "oneDNN: the target's probability without smoothing",
        f"{_ONEDNN}/losses.py",
        "        if spread:\n            lost += spread * every.sum()\n",
        "",
        (f"{_PARITY}[cpu-softmax_cross_entropy-masked]",),
    ),
    Mutant(
        "oneDNN: a masked target takes from the sample before it",
        f"{_ONEDNN}/losses.py",
        "places = first + target if masked is None else (first + target)[~masked]",
        "places = first + target",
        (f"{_PARITY}[cpu-softmax_cross_entropy_backward-masked]",),
    ),
    Mutant(
        "oneDNN: a masked sample keeps its pixels",
        f"{_ONEDNN}/step.py",
        "            values[target < 0] = 0.0\n",
        "            pass\n",
        ("backends/onednn/test_executable.py::test_masked_samples_count_in_nothing",),
    ),
    Mutant(
        "oneDNN: momentum is not applied",
        f"{_ONEDNN}/updates.py",
        "momentum = follow(live, scalar(b, op.momentum), lambda op: op.momentum)",
        "momentum = follow(live, scalar(b, op.momentum), lambda op: 1.0)",
        (f"{_PARITY}[cpu-update-momentum-none]",),
    ),
    Mutant(
        "oneDNN: weight decay has the wrong sign",
        f"{_ONEDNN}/updates.py",
        "factors.append((keep.array(), 1.0, op.weight_decay[i] * op.factor(i)))",
        "factors.append((keep.array(), 1.0, -op.weight_decay[i] * op.factor(i)))",
        (f"{_PARITY}[cpu-update-nesterov-all]",),
    ),
    Mutant(
        "oneDNN: memory is given away while it is still read",
        f"{_ONEDNN}/places.py",
        "all(self._last.get(t, inf) < position for t in place.tensors)",
        "all(self._last.get(t, inf) < position + 1 for t in place.tensors)",
        ("backends/onednn/test_memory.py::test_shared_memory_is_less_and_changes_no_bit",),
    ),
    Mutant(
        "oneDNN: what is read later is written over",
        f"{_ONEDNN}/bind.py",
        "not any(t in op.reads() for op in later)",
        "True",
        (
            "backends/onednn/test_norm.py::test_what_is_needed_later_is_not_written_over",
            "backends/onednn/test_norm.py::test_a_term_that_is_needed_later_is_not_summed_into",
        ),
    ),
    Mutant(
        "oneDNN: copies of changing parameters are made once",
        f"{_ONEDNN}/bind.py",
        "if tensor.role in SHARED and tensor not in self._updated:",
        "if tensor.role in SHARED:",
        ("backends/onednn/test_executable.py::test_tunings_agree_but_for_the_last_bits",),
    ),
    Mutant(
        "CUDA: the hinge's slope beyond its margin",
        "layers/losses/hinge.py",
        "return m > 0.0f ? (power == 1",
        "return m > 1.0f ? (power == 1",
        (f"{_FORMULAS}::test_losses",),
    ),
    Mutant(
        "CUDA: cross-entropy without label smoothing",
        "graph/ops/losses.py",
        "(k == r.target ? 1.0f - label_smoothing : 0.0f) + label_smoothing / r.classes",
        "(k == r.target ? 1.0f : 0.0f)",
        (f"{_FORMULAS}::test_losses",),
    ),
    Mutant(
        "CUDA: the mean is over masked rows too",
        "backends/cuda/sources/formulas.cuh",
        "count += target[row] >= 0;",
        "count += 1;",
        (f"{_FORMULAS}::test_losses",),
    ),
    Mutant(
        "CUDA: a masked row has a loss",
        "backends/cuda/sources/row_loss.cu",
        "        if (row.target >= 0) {\n",
        "        {\n",
        (f"{_FORMULAS}::test_losses",),
    ),
    Mutant(
        "CUDA: Adagrad adds the gradient instead of its square",
        "optimizers/adagrad.py",
        "states[0]) + g * g;",
        "states[0]) + g;",
        (f"{_FORMULAS}::test_updates",),
    ),
    Mutant(
        "CUDA: an update counts from 0",
        "backends/cuda/sources/elementwise_update.cu",
        "step[0] - s.start + 1}",
        "step[0] - s.start}",
        (f"{_FORMULAS}::test_updates",),
    ),
    Mutant(
        "CUDA: the copy in bfloat16 is not renewed",
        "backends/cuda/sources/elementwise_update.cu",
        "        if (s.copy) put(s.copy + i, p);\n",
        "",
        (f"{_FORMULAS}::test_updates",),
    ),
    Mutant(
        "CUDA: bfloat16 is cut instead of rounded",
        "backends/cuda/libraries/layout.py",
        "rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16",
        "rounded = bits >> 16",
        (f"{_LAYOUT}::test_bfloat16_rounds_to_the_nearest_even",),
    ),
    Mutant(
        "CUDA: rows and columns of a stored picture swapped",
        "backends/cuda/libraries/layout.py",
        "return (h * w * c, 1, w * c, c) if self.nhwc",
        "return (h * w * c, 1, c, h * c) if self.nhwc",
        (f"{_LAYOUT}::test_pictures_come_back_and_padding_is_zero",),
    ),
    Mutant(
        "CUDA: a streamed batch is the one after",
        "backends/cuda/binding/feeds.py",
        "rows = order[at * n : (at + 1) * n]",
        "rows = np.roll(order, -n)[at * n : (at + 1) * n]",
        (f"{_FEEDS}::test_batches_come_in_order_and_start_again",),
    ),
    Mutant(
        "CUDA: a masked sample has a place",
        "backends/cuda/binding/feeds.py",
        "np.where(rows < 0, -1, np.arange(n, dtype=np.int32))",
        "np.arange(n, dtype=np.int32)",
        (f"{_FEEDS}::test_batches_come_in_order_and_start_again",),
    ),
    Mutant(
        "CUDA: a copy does not wait for the batch before it",
        "backends/cuda/binding/feeds.py",
        "        self._copies.wait_event(slot.taken)\n",
        "",
        (f"{_FEEDS}::test_a_copy_waits_until_the_batch_before_in_its_slot_is_taken",),
    ),
    Mutant(
        "CUDA: what was gathered for the order before stays",
        "backends/cuda/binding/feeds.py",
        "        self._ahead.clear()\n        self._next = None\n",
        "",
        (f"{_FEEDS}::test_a_new_order_drops_what_was_gathered_ahead",),
    ),
    Mutant(
        "CUDA: the samples of a shared section count once too often",
        "backends/cuda/memory_plan.py",
        "return max(rest // max(sum(need.per_sample for need in alike), 1), 0)",
        "return max(rest // max(sum(need.per_sample for need in alike), 1) + 1, 0)",
        (f"{_PLAN}::test_a_network_that_cannot_fit_is_refused_with_the_largest_batch_that_can",),
    ),
    Mutant(
        "CUDA: every training makes its graphs of cuDNN anew",
        "backends/cuda/libraries/cudnn_library.py",
        "found = kept.pop(spec) if spec in kept else make()",
        "found = make()",
        (f"{_KEPT}::test_the_second_training_makes_no_graph",),
    ),
    Mutant(
        "CUDA: graphs that a search has tried are kept with all their plans",
        "backends/cuda/libraries/cudnn_library.py",
        "plans.built > MOST_BUILT and ",
        "plans.built < 0 and ",
        (f"{_KEPT}::test_a_graph_whose_plans_a_search_has_tried_is_not_kept",),
    ),
    Mutant(
        "CUDA: graphs of cuDNN outlive their handle",
        "backends/cuda/libraries/cudnn_library.py",
        "    graphs.clear()\n",
        "",
        (f"{_KEPT}::test_no_graph_outlives_its_handle",),
    ),
    Mutant(
        "CUDA: tensor cores take the first column of a warp for none",
        "backends/cuda/fused/tensor_conv.cu",
        "if (j >= 0 && j < ACROSS)",
        "if (j > 0 && j < ACROSS)",
        (f"{_EMULATED}::test_forward",),
    ),
    Mutant(
        "CUDA: rows below the picture are those of the next",
        "backends/cuda/fused/tensor_conv.cu",
        "const bool inside = row + r >= TOP && row + r < HEIGHT + TOP;",
        "const bool inside = row + r >= TOP;",
        (f"{_EMULATED}::test_the_gradient_of_pictures",),
    ),
    Mutant(
        "CUDA: warpgroups multiply rows of pixels by filters of the wrong rows",
        "backends/cuda/fused/warpgroup_conv.cu",
        "(KERNEL_H - 1 - k % KERNEL_H) * BLOCK_FILTERS * 16",
        "(k % KERNEL_H) * BLOCK_FILTERS * 16",
        (f"{_EMULATED}::test_forward",),
    ),
    Mutant(
        "CUDA: of two equal maxima warpgroups take the second column's",
        "backends/cuda/fused/warpgroup_conv.cu",
        "const u32 second = above | (equal & left_lower & ~right_lower);",
        "const u32 second = above | equal;",
        (f"{_EMULATED}::test_of_equal_maxima_the_first_is_told",),
    ),
    Mutant(
        "CUDA: products of warpgroups are not shown what was written",
        "backends/cuda/fused/warpgroup_conv.cu",
        "                    show_products();\n                    meet(warpgroup);",
        "                    meet(warpgroup);",
        (f"{_EMULATED}::test_forward",),
    ),
    Mutant(
        "CUDA: warpgroups spread maxima's gradients to the wrong row of windows",
        "backends/cuda/fused/warpgroup_filter.cu",
        "a[1][h + 2 * half] = permuted(0, v, how);",
        "a[1][h + 2 * half] = permuted(v, 0, how);",
        (f"{_EMULATED}::test_the_gradients_of_filters_through_a_max_pool",),
    ),
    Mutant(
        "CUDA: of a gradient of filters only the first team's sums count",
        "backends/cuda/fused/warpgroup_filter.cu",
        "UNROLLED(k, TEAMS - 1) {",
        "UNROLLED(k, 0) {",
        (f"{_EMULATED}::test_the_gradients_of_filters_and_biases",),
    ),
    Mutant(
        "CUDA: warpgroups multiply pixels of dy before they are there",
        "backends/cuda/fused/warpgroup_filter.cu",
        "        meet_team<TAP_GROUPS>(team);\n",
        "",
        (f"{_EMULATED}::test_the_gradients_of_filters_and_biases",),
    ),
    Mutant(
        "CUDA: a bias's gradient lacks half of its rows",
        "backends/cuda/fused/tensor_filter.cu",
        "                biases[m][h] += __shfl_xor_sync(~0u, biases[m][h], 2);\n",
        "",
        (f"{_EMULATED}::test_the_gradients_of_filters_and_biases",),
    ),
    Mutant(
        "CUDA: no row of zeros is counted among the shared memory of a convolution",
        "backends/cuda/fused/conv_tilings.py",
        "tile = padded(self.filter_bytes, 16) + self._row_pitch * 16",
        "tile = padded(self.filter_bytes, 16)",
        (f"{_EMULATED}::test_forward",),
    ),
    Mutant(
        "CUDA: tensor cores are given more padding than the window is large",
        "backends/cuda/fused/tensor_conv.py",
        "and max(top, bottom) < height",
        "and max(top, bottom) <= height",
        (f"{_TENSOR}::test_where_they_serve",),
    ),
    Mutant(
        "CUDA: a product on tensor cores has no bias",
        "backends/cuda/fused/tensor_dense.cu",
        "    if (bias) v += bias[column];\n",
        "",
        (_PRODUCT,),
    ),
    Mutant(
        "CUDA: a product on tensor cores drops the end of its depth",
        "backends/cuda/fused/tensor_dense.cu",
        "e * 8 < size && k < DEPTH",
        "e * 8 < size && k + CHUNK < DEPTH",
        (_PRODUCT,),
    ),
    Mutant(
        "CUDA: a product's bias and activation reach its padding",
        "backends/cuda/fused/tensor_dense.cu",
        "    if (column >= COUNTED) return 0.0f;\n",
        "",
        (_PRODUCT,),
    ),
    Mutant(
        "CUDA: a product on tensor cores is taken unseen",
        "backends/cuda/timed_plans.py",
        "if other < GAIN * seconds and candidates.verified(index, pointer):",
        "if other < GAIN * seconds:",
        (f"{_PRODUCTS}::test_a_search_times_them_beside_the_algorithms",),
    ),
    Mutant(
        "keeping: sections with other operations count as the same",
        "backends/keeping.py",
        "return (*_frame(other), other.ops)",
        "return (*_frame(other), len(other.ops))",
        (f"{_KEEPING}::test_what_is_compiled_anew",),
    ),
    Mutant(
        "keeping: other numbers are not told to what is bound",
        "backends/live.py",
        "            live.renumber(other)\n",
        "",
        (f"{_NUMBERS}", "backends/cuda/test_renumber.py"),
    ),
    Mutant(
        "keeping: a number that an operation lacked counts as another one",
        "backends/live.py",
        "if all(_alike(*pair) for pair in found.values()) else None",
        "",
        ("backends/cuda/test_renumber.py::test_what_cannot_become_another_stays_as_it_was",),
    ),
    Mutant(
        "keeping: what no longer fits is not freed",
        "backends/keeping.py",
        "            kept.executable.close()\n        del kept",
        "            pass\n        del kept",
        (f"{_KEEPING}::test_what_is_compiled_anew",),
    ),
    Mutant(
        "oneDNN: of what is kept the state stays",
        f"{_ONEDNN}/executable.py",
        "        self._store.clear()\n",
        "        pass\n",
        (f"{_KEEPING}::test_renewed_it_is_empty_but_for_its_data",),
    ),
    Mutant(
        "CUDA: pictures that have been changed count as copied",
        "backends/cuda/binding/store.py",
        "is array and not array.flags.writeable:",
        "is array:",
        (f"{_PICTURES}::test_what_can_be_changed_is_copied_again",),
    ),
)
