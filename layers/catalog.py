"""The layers that a config can name."""

from __future__ import annotations

from .activation import Elu, Gelu, LeakyRelu, Relu, Sigmoid, Silu, Softplus, Tanh
from .conv import Conv2dLayer
from .dense import Dense
from .flatten import Flatten
from .layer import Layer
from .pool import AvgPool2d, GlobalAvgPool2d, MaxPool2d
from .scaling import ScaleLayer
from .softmax import SoftmaxLayer

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
        Relu,
        LeakyRelu,
        Sigmoid,
        Tanh,
        Elu,
        Softplus,
        Silu,
        Gelu,
    )
}
