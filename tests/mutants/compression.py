"""Faults in pruning, the sharing of weights, and compressed networks."""

from __future__ import annotations

from .mutant import Mutant

_CODING = "training/records/formats/test_coding.py"
_FILE = "training/records/formats/test_dnnz.py"
_GRAPH = "graph/test_quantization.py"
_QUANTIZATION = "training/compressed/test_quantization.py"
_PRUNING = "training/test_pruning.py"
_SHARING = "training/test_sharing.py"

COMPRESSION = (
    Mutant(
        "compressed: padding stands for one zero more",
        "training/records/formats/dnnz_arrays.py",
        "    places += np.arange(len(places), dtype=places.dtype)\n",
        "    places += np.flatnonzero(gaps != padding).astype(places.dtype)\n",
        (f"{_CODING}::test_gaps_are_padded_where_they_are_wider_than_their_symbols",),
    ),
    Mutant(
        "compressed: words may end before the bits do",
        "training/records/formats/huffman.py",
        "    if not 0 <= left < 8 or (left and data[-1] & ((1 << left) - 1)):\n",
        "    if left < 0:\n",
        (f"{_CODING}::test_other_texts_are_refused",),
    ),
    Mutant(
        "compressed: a block begins at a byte",
        "training/records/formats/huffman.py",
        "_word_places(step, begin & 7)",
        "_word_places(step, 0)",
        (f"{_CODING}::test_symbols_come_back",),
    ),
    Mutant(
        "compressed: arrays of any size",
        "training/records/formats/dnnz.py",
        "> MOST_TIMES * len(content)",
        "> MOST_TIMES**9",
        (f"{_FILE}::test_it_cannot_take_more_memory_than_its_length_allows",),
    ),
    Mutant(
        "compressed: the digest is not compared",
        "training/records/formats/dnnz.py",
        "if hashlib.sha256(content).digest() != data[-_DIGEST:]:",
        "if False:",
        (f"{_FILE}::test_every_damage_is_found",),
    ),
    Mutant(
        "pruning: a negative weight becomes -0.0",
        "backends/reference/updates.py",
        "v * m + 0 for v, m",
        "v * m for v, m",
        (f"{_PRUNING}::test_they_stay_0_with_any_optimizer_and_a_resume_is_exact",),
    ),
    Mutant(
        "pruning: gradients of pruned weights count in the norm",
        "passes/prune.py",
        "before=(before, *section.before), ",
        "",
        (f"{_PRUNING}::test_gradients_of_pruned_weights_do_not_count_in_the_norm",),
    ),
    Mutant(
        "pruning: the smallest weights are kept",
        "optimizers/pruning.py",
        "np.argsort(-np.abs(values.ravel())",
        "np.argsort(np.abs(values.ravel())",
        (f"{_PRUNING}::test_training_begins_with_the_largest_weights_of_another_run",),
    ),
    Mutant(
        "pruning: weights that were pruned before count in the deviation",
        "optimizers/pruning.py",
        "kept = values[values != 0]",
        "kept = values.ravel()",
        (f"{_PRUNING}::test_a_factor_times_the_deviation_of_what_is_left_decides",),
    ),
    Mutant(
        "sensitivity: a parameter stays pruned while the next is measured",
        "training/compressed/sensitivity.py",
        "            executable.write(tensor, values)\n",
        "            pass\n",
        ("cli/test_compress.py::test_sensitivity",),
    ),
    Mutant(
        "compress: multiply-adds of a convolution are those of a pixel",
        "reports/multiply_adds.py",
        "prod(op.y.shape[2:])",
        "1",
        ("cli/test_compress.py::test_a_network_becomes_a_small_file",),
    ),
    Mutant(
        "quantization: a batch norm's offset is not scaled",
        "backends/reference/quantized.py",
        "    b = (b - mean) * a\n",
        "    b = b - mean\n",
        (f"{_GRAPH}::test_it_computes_nearly_the_same_with_integers_between_its_products",),
    ),
    Mutant(
        "quantization: numbers are quantized early although some are negative",
        "graph/quantization.py",
        "and not to.signed",
        "",
        (f"{_GRAPH}::test_integers_with_a_sign_keep_their_relu",),
    ),
    Mutant(
        "quantization: one scale for all filters on oneDNN",
        "backends/onednn/quantized.py",
        "scales_and_sums(op, of_weights, *others)",
        "scales_and_sums(op, 0 * of_weights + of_weights[0], *others)",
        (f"{_GRAPH}::test_onednn_computes_the_same_integers",),
    ),
    Mutant(
        "quantization: scales of any length of fraction",
        "training/compressed/quantization.py",
        "np.ceil(np.ldexp(fractions, _SCALE_BITS))",
        "np.ldexp(fractions, _SCALE_BITS)",
        (f"{_QUANTIZATION}::test_weights_are_127_steps_of_a_scale_and_come_back_bit_for_bit",),
    ),
    Mutant(
        "quantization: a file's scale may be negative",
        "training/records/formats/dnnz_arrays.py",
        "(np.isfinite(scales) & (scales > 0)).all()",
        "np.isfinite(scales).all()",
        (f"{_QUANTIZATION}::test_other_files_are_refused",),
    ),
    Mutant(
        "filters: a batch norm in a block keeps its channels",
        "training/compressed/filters.py",
        "    found += [(tensor.name, 0, index) for tensor in own]\n    return index",
        "    return index",
        (
            "training/compressed/test_filters.py"
            "::test_inside_blocks_all_but_the_ends_of_paths_get_narrower",
        ),
    ),
    Mutant(
        "filters: the weakest are kept",
        "training/compressed/filters.py",
        "np.argsort(-sums",
        "np.argsort(sums",
        ("training/compressed/test_filters.py::test_it_computes_what_the_whole_does_without_them",),
    ),
    Mutant(
        "sharing: the mean of the gradients",
        "backends/reference/sharing.py",
        "    return np.bincount(numbers, gradient.ravel(), count + 1)[1:]",
        "    members = np.maximum(np.bincount(numbers, None, count + 1), 1)\n"
        "    return (np.bincount(numbers, gradient.ravel(), count + 1) / members)[1:]",
        (f"{_SHARING}::test_a_centroid_moves_by_the_sum_of_its_gradients",),
    ),
    Mutant(
        "compress: a stage that was stopped begins again elsewhere",
        "training/compressed/pipeline.py",
        "found = open_member(folder, notice)\n",
        "found = None\n",
        ("cli/test_compress.py::test_a_kill_loses_nothing",),
    ),
    Mutant(
        "compress: pictures are looked for as a stranger's",
        "training/records/runs.py",
        "    return run_of_checkpoint(path) is not None or compressed.is_file()\n",
        "    return run_of_checkpoint(path) is not None\n",
        ("cli/test_compress.py::test_a_network_of_own_pictures",),
    ),
)
