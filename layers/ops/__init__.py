"""The closed set of operations: for each its formula, shape rule, FLOPs and bytes.

Conventions: pictures NCHW, filters OIHW, dense weights (units, inputs). Convolution is
cross-correlation. ReLU'(0) = 0. A tie in max-pooling goes to the first pixel in row-major order.
Average pooling divides by the number of pixels inside the picture. Softmax runs over axis 1. A
target of -1 masks its sample: it counts in no loss and no metric. Losses are averaged over the
samples that count, or summed. ``step`` counts training steps from 0. Fields named ``activation``
and ``bias_grad``, and the bias of MatMul and Conv2d, are filled by rewrites alone.
"""

from __future__ import annotations

from .linear import BiasAdd, BiasGrad, Conv2d, Conv2dBackwardData, Conv2dBackwardFilter, MatMul
from .losses import (
    CrossEntropy,
    CrossEntropyBackward,
    MeanSquaredError,
    MeanSquaredErrorBackward,
    Metrics,
    Reduction,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from .pointwise import (
    ACTIVATIONS,
    FROM_OUTPUT,
    Activation,
    ActivationBackward,
    Pool2d,
    Pool2dBackward,
    PoolKind,
    Reshape,
    Softmax,
    SoftmaxBackward,
)
from .step import Advance, ClipByNorm, GatherBatch, GlobalNorm, SgdUpdate

__all__ = [
    "ACTIVATIONS",
    "FROM_OUTPUT",
    "Activation",
    "ActivationBackward",
    "Advance",
    "BiasAdd",
    "BiasGrad",
    "ClipByNorm",
    "Conv2d",
    "Conv2dBackwardData",
    "Conv2dBackwardFilter",
    "CrossEntropy",
    "CrossEntropyBackward",
    "GatherBatch",
    "GlobalNorm",
    "MatMul",
    "MeanSquaredError",
    "MeanSquaredErrorBackward",
    "Metrics",
    "Pool2d",
    "Pool2dBackward",
    "PoolKind",
    "Reduction",
    "Reshape",
    "SgdUpdate",
    "Softmax",
    "SoftmaxBackward",
    "SoftmaxCrossEntropy",
    "SoftmaxCrossEntropyBackward",
]
