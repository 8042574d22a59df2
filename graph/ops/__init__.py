"""The closed set of operations: for each its formula, shape rule, FLOPs and bytes.

Conventions: pictures NCHW, filters OIHW, dense weights (units, inputs). Convolution is
cross-correlation. ReLU'(0) = 0. A tie in max-pooling goes to the first pixel in row-major order.
Average pooling divides by the number of pixels inside the picture. Softmax runs over axis 1. A
target of -1 masks its sample: it counts in no loss and no metric. Losses are averaged over the
samples that count, or summed. ``step`` counts training steps from 0. Fields named ``activation``
and ``bias_grad``, and the bias of MatMul, Conv2d and BatchNormBackward are filled by rewrites
alone.
"""

from __future__ import annotations

from .augment import AverageViews, GatherAugmented, View, Views
from .classic import (
    ChannelScale,
    ChannelScaleBackward,
    ConnectFilters,
    ConnectFiltersBackward,
    Heaviside,
    Pad2d,
    Pad2dBackward,
    Rbf,
    RbfBackward,
)
from .combine import Add, Concat, PadChannels, Slice
from .formulas import RowFormula, UpdateFormula, one_hot
from .fused import Fused
from .linear import (
    BiasAdd,
    BiasGrad,
    Col2im,
    Conv2d,
    Conv2dBackwardData,
    Conv2dBackwardFilter,
    Im2col,
    MatMul,
)
from .losses import (
    CrossEntropy,
    Metrics,
    Reduction,
    RowLoss,
    RowLossBackward,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from .norm import (
    BatchNorm,
    BatchNormBackward,
    BatchNormInference,
    DivisiveNorm,
    DivisiveNormBackward,
    Dropout,
    DropoutBackward,
    Lrn,
    LrnBackward,
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
    Scale,
    Softmax,
    SoftmaxBackward,
)
from .step import Advance, ClipByNorm, GatherBatch, GlobalNorm, SgdUpdate
from .updates import Accumulate, AdamUpdate, Average, ElementwiseUpdate, MuonUpdate
