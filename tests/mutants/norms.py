"""Faults in the kernels of batch norm, and in what they take along."""

from __future__ import annotations

from .mutant import Mutant

_EMULATED = "backends/cuda/operations/test_norm_emulated.py"
_RESIDUAL = "backends/cuda/fused/test_residual.py"
_SUMS = "backends/cuda/fused/test_tensor_conv_emulated.py::test_sums_for_a_batch_norm"
_NORM = "backends/cuda/sources/norm.cu"

NORMS = (
    Mutant(
        "batch norm: the last share of a block's rows is not added up",
        _NORM,
        "for (int k = 1; k < shares; ++k)",
        "for (int k = 1; k < shares - 1; ++k)",
        (f"{_EMULATED}::test_forward_and_backward",),
    ),
    Mutant(
        "batch norm: the running variance is moved by that of the batch as it is",
        _NORM,
        "momentum * (apart * fewer);",
        "momentum * var;",
        (f"{_EMULATED}::test_slices_are_united",),
    ),
    Mutant(
        "batch norm: the block's shortcut is taken off",
        _NORM,
        "if (ADDS) v[c] = rounded(v[c]) + more[c];",
        "if (ADDS) v[c] = v[c] - more[c];",
        (f"{_EMULATED}::test_what_a_residual_block_ends_in",),
    ),
    Mutant(
        "batch norm: what is left of the gradient has not gone through the activation",
        _NORM,
        "                        if (WRITES) g[c] = rounded(g[c]);\n",
        "                        if (WRITES) g[c] = rounded(g[c] + (FROM_OUTPUT ? 1.0f : 0.0f));\n",
        (f"{_EMULATED}::test_what_a_residual_block_ends_in",),
    ),
    Mutant(
        "residual: a norm that others read is taken into the sum",
        "backends/cuda/fused/residual.py",
        "alone = len(graph.consumers(term)) == 1 and term not in graph.results.values()",
        "alone = True",
        (f"{_RESIDUAL}::test_what_somebody_looks_at_is_kept",),
    ),
    Mutant(
        "residual: a sum that others read beside a slope is taken along",
        "backends/cuda/fused/residual.py",
        "if not alone and not plain:",
        "if False:",
        (f"{_RESIDUAL}::test_what_somebody_looks_at_is_kept",),
    ),
    Mutant(
        "sums of a convolution: pictures that are not there count",
        "backends/cuda/fused/tensor_conv.cu",
        "if (SUMS) left.add(o, rounded(a, b), exists);",
        "if (SUMS) left.add(o, rounded(a, b), true);",
        (_SUMS,),
    ),
    Mutant(
        "sums of a convolution: they are counted from another number than they are kept with",
        "backends/cuda/fused/channel_sums.cuh",
        "to_shared(at, origin[o][e], shared_pair(at).y + count);",
        "to_shared(at, origin[0][0], shared_pair(at).y + count);",
        (_SUMS,),
    ),
    Mutant(
        "sums of a convolution: the moments are computed all the same",
        "backends/cuda/operations/norm.py",
        "        slices, count = b.decisions.moments.get(norm.x, (slices, count))\n",
        "        pass\n",
        (f"{_RESIDUAL}::test_a_convolution_on_tensor_cores_leaves_the_moments",),
    ),
)
