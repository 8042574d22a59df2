"""Faults in the formulas of operations, losses and rewrites, on NumPy and on oneDNN."""

from __future__ import annotations

from .mutant import Mutant

_WINDOW = "graph/test_geometry.py"
_LINEAR = "graph/ops/test_linear.py"
_POINTWISE = "graph/ops/test_pointwise.py"
_NORM = "graph/ops/test_norm.py"
_LOSSES = "graph/ops/test_losses.py"
_STEP = "graph/ops/test_step.py"
_AUGMENT = "graph/ops/test_augment.py"
_DRAWN = "graph/ops/test_augment_statistics.py"
_REWRITES = "graph/test_rewrites.py"
_PARITY = "backends/test_parity.py::test_operation"
_REFERENCE = "backends/reference"
_ONEDNN = "backends/onednn"
_APART = "backends/cuda/operations/test_disjoint_pool.py"
_EMULATED = "backends/cuda/fused/test_tensor_conv_emulated.py"
_VIEWS = "training/inference/test_test_time.py"
_SHARED_VIEWS = f"{_VIEWS}::test_a_share_is_of_those_with_the_closest_scores[numpy-mirror]"
_SMALL = "backends/cuda/operations/test_small_emulated.py"
_SURE = f"{_SMALL}::test_the_least_sure_samples_are_those_of_the_reference"

ARITHMETIC = (
    Mutant(
        "class weights: not in the gradient",
        "layers/losses/class_weights.py",
        "return self._of(target, x)[:, None] * self.inner.gradient(x, target)",
        "return self.inner.gradient(x, target)",
        ("layers/test_gradients.py::test_loss[mse-class_weights-False]",),
    ),
    Mutant(
        "recolour: the colours of the flipped bit",
        "backends/reference/augment.py",
        "bits = values[:, 1:] >> (31 - np.arange(channels) % 32) & 1",
        "bits = values[:, 1:] >> (30 - np.arange(channels) % 32) & 1",
        ("graph/ops/test_augment.py::test_any_geometry",),
    ),
    Mutant(
        "windows: strides of height and width swapped",
        f"{_REFERENCE}/windows.py",
        "(down, right), (rows, columns) = window.stride",
        "(right, down), (rows, columns) = window.stride",
        (f"{_LINEAR}::test_convolution_stride_and_padding_by_axis",),
    ),
    Mutant(
        "windows: the output is one too large",
        "graph/geometry.py",
        "rows = (height + top + bottom - self.extent[0]) // self.stride[0] + 1",
        "rows = (height + top + bottom - self.extent[0] + 1) // self.stride[0] + 1",
        (f"{_WINDOW}::test_output_counts_the_windows_that_fit",),
    ),
    Mutant(
        "windows: the odd pixel of 'same' at the top",
        "graph/geometry.py",
        "return total // 2, total - total // 2",
        "return total - total // 2, total // 2",
        (f"{_WINDOW}::test_same_gives_the_size_over_the_stride",),
    ),
    Mutant(
        "windows: dilation ignored",
        f"{_REFERENCE}/windows.py",
        "seen[:, :, ::down, ::right, ::rows, ::columns]",
        "seen[:, :, ::down, ::right][..., : window.kernel[0], : window.kernel[1]]",
        (f"{_LINEAR}::test_convolution_dilation",),
    ),
    Mutant(
        "convolution: true convolution instead of correlation",
        f"{_REFERENCE}/linear.py",
        "columns = unfold(x, op.window, op.groups)\n    y = (by_group(w, op.groups)",
        "columns = unfold(x, op.window, op.groups)\n    y = (by_group(w[..., ::-1], op.groups)",
        (f"{_LINEAR}::test_convolution_is_cross_correlation",),
    ),
    Mutant(
        "activation: sign in the derivative of tanh",
        f"{_REFERENCE}/pointwise.py",
        '"tanh": lambda y, alpha: (1.0 - y) * (1.0 + y)',
        '"tanh": lambda y, alpha: (1.0 - y) * (1.0 - y)',
        ("graph/ops/test_pointwise.py::test_activation",),
    ),
    Mutant(
        "activation: ReLU passes the gradient at zero",
        f"{_REFERENCE}/pointwise.py",
        '"relu": lambda y, alpha: y > 0',
        '"relu": lambda y, alpha: y >= 0',
        ("graph/ops/test_pointwise.py::test_activation",),
    ),
    Mutant(
        "softmax: exponentials overflow",
        f"{_REFERENCE}/pointwise.py",
        "np.exp(x - x.max(1, keepdims=True))",
        "np.exp(x)",
        (f"{_POINTWISE}::test_softmax",),
    ),
    Mutant(
        "max-pooling: a tie goes to the last pixel",
        f"{_REFERENCE}/windows.py",
        "    for value in seen:\n",
        "    for value in list(seen)[::-1]:\n",
        (f"{_POINTWISE}::test_max_pool_ties_go_to_the_first_in_row_major_order",),
    ),
    Mutant(
        "max-pooling: padding may win",
        f"{_REFERENCE}/windows.py",
        "        for seen in positions(padded(x, op.window, -np.inf), op.window, output):\n",
        "        for seen in positions(padded(x, op.window), op.window, output):\n",
        (f"{_POINTWISE}::test_max_pool_padding_never_wins",),
    ),
    Mutant(
        "CUDA: a gradient of stride 2 is spread to every second column, but to each row",
        "backends/cuda/sources/spread.cuh",
        "if (tap == 0) fetch(to, from, exists);",
        "if (tap % 2 == 0) fetch(to, from, exists);",
        (
            f"{_EMULATED}::test_the_gradient_of_pictures_of_stride_2",
            f"{_EMULATED}::test_the_gradients_of_filters_and_biases_of_stride_2",
        ),
    ),
    Mutant(
        "CUDA: pixels between windows get a share of the gradient",
        "backends/cuda/sources/disjoint_pool.cu",
        "column < COLUMNS && w % STRIDE_W < KERNEL_W;",
        "column < COLUMNS;",
        (f"{_APART}::test_backward_writes_every_pixel",),
    ),
    Mutant(
        "CUDA: where several threads add up a window, some take the same pixels",
        "backends/cuda/sources/disjoint_pool.cu",
        "part + (first + k) * SPLIT",
        "part + first + k",
        (f"{_APART}::test_forward",),
    ),
    Mutant(
        "average pooling: padding is counted",
        f"{_REFERENCE}/windows.py",
        "return total / inside(op.window, op.x.shape, output, x)",
        "return total / op.window.area",
        (f"{_POINTWISE}::test_average_pool_divides_by_the_pixels_inside_the_picture",),
    ),
    Mutant(
        "batch norm: running variance without Bessel's correction",
        f"{_REFERENCE}/norm.py",
        "m * var * count / (count - 1)",
        "m * var",
        (f"{_NORM}::test_batch_norm",),
    ),
    Mutant(
        "batch norm: momentum on the wrong side",
        f"{_REFERENCE}/norm.py",
        "(1.0 - m) * running_mean + m * mean",
        "m * running_mean + (1.0 - m) * mean",
        (f"{_NORM}::test_batch_norm",),
    ),
    Mutant(
        "batch norm: eps added to the deviation",
        f"{_REFERENCE}/norm.py",
        "inverse_std = 1.0 / np.sqrt(var + op.eps)",
        "inverse_std = 1.0 / (np.sqrt(var) + op.eps)",
        (f"{_NORM}::test_eps_is_added_to_the_variance",),
    ),
    Mutant(
        "batch norm: the mean's share is missing in the gradient",
        f"{_REFERENCE}/norm.py",
        "centred = g - along_channels(offset, x) - h",
        "centred = g - h",
        (f"{_NORM}::test_batch_norm_backward",),
    ),
    Mutant(
        "dropout: what remains is not scaled",
        f"{_REFERENCE}/norm.py",
        "return x * mask * op.scale, mask",
        "return x * mask, mask",
        (f"{_NORM}::test_dropout_reads_the_words_of_seed_layer_and_step",),
    ),
    Mutant(
        "dropout: the same mask at every step",
        f"{_REFERENCE}/norm.py",
        "turn, part = divmod(int(step[0]), op.parts)",
        "turn, part = divmod(0 * int(step[0]), op.parts)",
        (f"{_NORM}::test_dropout_reads_the_words_of_seed_layer_and_step",),
    ),
    Mutant(
        "loss: label smoothing over K - 1 classes",
        "graph/ops/formulas.py",
        "label_smoothing / x.shape[1], x.dtype",
        "label_smoothing / (x.shape[1] - 1), x.dtype",
        (f"{_LOSSES}::test_label_smoothing",),
    ),
    Mutant(
        "loss: masked samples count",
        f"{_REFERENCE}/losses.py",
        "total = np.where(target >= 0, each, 0.0).sum(keepdims=True)",
        "total = each.sum(keepdims=True)",
        (
            f"{_LOSSES}::test_mean_squared_error",
            f"{_LOSSES}::test_loss_of_masked_samples_alone_is_zero",
        ),
    ),
    Mutant(
        "loss: the mean is over masked samples too",
        f"{_REFERENCE}/losses.py",
        'return 1.0 / max(int((target >= 0).sum()), 1) if reduction == "mean" else 1.0',
        'return 1.0 / max(len(target), 1) if reduction == "mean" else 1.0',
        (f"{_LOSSES}::test_cross_entropy",),
    ),
    Mutant(
        "loss: the gradient of masked samples is not zero",
        f"{_REFERENCE}/losses.py",
        "np.where(counted, away, 0.0)",
        "away",
        (f"{_LOSSES}::test_label_smoothing",),
    ),
    Mutant(
        "metrics: a masked sample may be right",
        f"{_REFERENCE}/losses.py",
        "    count = int((target >= 0).sum())\n",
        "    count = len(target)\n",
        (f"{_LOSSES}::test_metrics",),
    ),
    Mutant(
        "losses: the hinge's slope has the wrong sign",
        "layers/losses/hinge.py",
        "dx = slope - one_hot(target, x) * slope.sum(1, keepdims=True)",
        "dx = slope + one_hot(target, x) * slope.sum(1, keepdims=True)",
        ("layers/test_classic_losses.py::test_multi_margin",),
    ),
    Mutant(
        "gather: a missing sample has the pixels of another",
        f"{_REFERENCE}/step.py",
        "    x[rows < 0] = 0.0\n",
        "",
        (f"{_STEP}::test_gather_batch_of_a_missing_sample",),
    ),
    Mutant(
        "batch norm: a sum leaves out the shift of what it normalises",
        f"{_ONEDNN}/norm_add.py",
        "shift = None if op.bias is None else b.home(op.bias).view(thin)",
        "shift = None if op.bias is None else b.constant(thin, 0.0)",
        ("backends/onednn/test_norm_add.py",),
    ),
    Mutant(
        "clipping: each gradient by its own norm",
        f"{_REFERENCE}/step.py",
        "squares = sum(float(np.vdot(g, g)) for g in gradients)",
        "squares = float(np.vdot(gradients[0], gradients[0]))",
        (f"{_STEP}::test_clipping",),
    ),
    Mutant(
        "augmentation: every picture is flipped in the first epoch",
        f"{_REFERENCE}/augment.py",
        "        return (words[:, :1] >> np.uint32(31)).astype(np.int32)\n",
        "        return (words[:, :1] >> np.uint32(32)).astype(np.int32) + 1\n",
        (f"{_DRAWN}::test_half_are_flipped_and_independently_of_the_epoch",),
    ),
    Mutant(
        "augmentation: the same in every epoch",
        f"{_REFERENCE}/augment.py",
        "    words = drawn_words(key, samples, epoch)\n",
        "    words = drawn_words(key, samples, 0)\n",
        (f"{_DRAWN}::test_half_are_flipped_and_independently_of_the_epoch",),
    ),
    Mutant(
        "augmentation: one corner of the crop is never drawn",
        f"{_REFERENCE}/augment.py",
        "(2 * each.padding + 1,) * 2",
        "(2 * each.padding,) * 2",
        (f"{_DRAWN}::test_every_corner_is_equally_likely",),
    ),
    Mutant(
        "augmentation: the outermost pixel is repeated",
        f"{_REFERENCE}/augment.py",
        "    return np.where(at >= size, 2 * (size - 1) - at, at)\n",
        "    return np.where(at >= size, 2 * size - 1 - at, at)\n",
        (f"{_AUGMENT}::test_whole_pixels",),
    ),
    Mutant(
        "views: those of the surest pictures",
        f"{_REFERENCE}/augment.py",
        'rows = np.argsort(gap, kind="stable")[: op.rows.size]',
        'rows = np.argsort(-gap, kind="stable")[: op.rows.size]',
        (_SHARED_VIEWS, f"{_SURE}[least_sure-0.6-3]"),
    ),
    Mutant(
        "views: samples without a target take the place of others",
        f"{_REFERENCE}/augment.py",
        "np.isnan(gap) | (target < 0)",
        "np.isnan(gap)",
        (f"{_SURE}[least_sure-masked-0.6-1]",),
    ),
    Mutant(
        "views: of equal gaps the last comes first, on a GPU",
        "backends/cuda/sources/least_sure.cu",
        "(gaps[k] == own && k < i)",
        "(gaps[k] == own && k > i)",
        (f"{_SMALL}::test_many_samples_are_in_the_order_of_their_gaps",),
    ),
    Mutant(
        "views: a place that is not a view's own, on a GPU",
        "backends/cuda/sources/least_sure.cu",
        "at = (i64)own * classes + i % classes;",
        "at = (i64)(i / classes) * classes + i % classes;",
        (f"{_SMALL}::test_scores_of_views_are_averaged[average_views-of_rows]",),
    ),
    Mutant(
        "rewrites: an activation that others look past is fused",
        "graph/rewrites.py",
        "    return tensor not in graph.results.values() and graph.consumers(tensor) == [reader]\n",
        "    return True\n",
        (f"{_REWRITES}::test_an_intermediate_that_another_reads_is_not_fused_away",),
    ),
    Mutant(
        "rewrites: ReLU's mask by the pool's gradient",
        "graph/rewrites.py",
        "first = replace(mask, value=back.y, dy=back.dy, dx=masked)",
        "first = replace(mask, value=back.dy, dy=back.dy, dx=masked)",
        (f"{_REWRITES}::test_masking_after_pooling_is_equal_bit_for_bit",),
    ),
)
