"""The layers that a config can name."""

from __future__ import annotations

from .activation import Elu, Gelu, LeakyRelu, Relu, ScaledTanh, Sigmoid, Silu, Softplus, Tanh
from .batch_norm import BatchNormLayer
from .composite import ConcatLayer, Residual, Sequential
from .conv import Conv2dLayer
from .dense import Dense
from .dropout import DropoutLayer
from .flatten import Flatten
from .layer import Layer
from .lrn import LcnLayer, LrnLayer
from .perceptron import HeavisideLayer
from .pool import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from .rbf import RbfLayer
from .scaling import ScaleLayer
from .softmax import SoftmaxLayer
from .subsampling import Pad2dLayer, ScaledSubsampling

LAYERS: dict[str, type[Layer]] = {
    layer.kind: layer
    for layer in (
        Dense,
        Conv2dLayer,
        MaxPool2d,
        AvgPool2d,
        GlobalAvgPool2d,
        Flatten,
        ScaleLayer,
        SoftmaxLayer,
        BatchNormLayer,
        LrnLayer,
        LcnLayer,
        DropoutLayer,
        Relu,
        LeakyRelu,
        Sigmoid,
        Tanh,
        Elu,
        Softplus,
        Silu,
        Gelu,
        ScaledTanh,
        HeavisideLayer,
        Pad2dLayer,
        ScaledSubsampling,
        RbfLayer,
        Sequential,
        Residual,
        ConcatLayer,
    )
}
