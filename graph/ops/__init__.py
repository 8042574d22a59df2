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

from .augment import *
from .bands import *
from .classic import *
from .collectives import *
from .combine import *
from .formulas import *
from .fused import *
from .linear import *
from .losses import *
from .norm import *
from .pointwise import *
from .quantized import *
from .sharing import *
from .statistics import *
from .step import *
from .updates import *
