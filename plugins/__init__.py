"""What a plugin imports: a Python file of yours that defines layers, losses and the like.

    from dnnstack.plugins import In, Op, Out, SingleLayer, kernel

docs/plugins.md has an example of every kind.
"""

from __future__ import annotations

from ..common.errors import ConfigError, DatasetError, ShapeError
from ..common.options import (
    Check,
    Count,
    Epochs,
    Form,
    Fraction,
    Listed,
    NotNegative,
    OptionError,
    Padding,
    Positive,
    Share,
    Size,
)
from ..datasets.download import Downloads
from ..datasets.image_set import DataFile, Dataset, DatasetInfo, ImageSet, Split
from ..graph import ops
from ..graph.augmentations import OwnAugmentation
from ..graph.graph import Graph, In, InOut, Op, Out, Shape, Tensor
from ..graph.ops.formulas import Array, RowFormula, UpdateFormula, one_hot
from ..layers.initializers import Initializer
from ..layers.layer import Layer, SingleLayer
from ..layers.losses.loss import Loss
from ..optimizers.rules import Decaying, ElementwiseRule, Member, Rule
from ..optimizers.schedules.schedule import Length, Rates, Schedule
from .kernels import kernel

__all__ = [
    "Array",
    "Check",
    "ConfigError",
    "Count",
    "DataFile",
    "Dataset",
    "DatasetError",
    "DatasetInfo",
    "Decaying",
    "Downloads",
    "ElementwiseRule",
    "Epochs",
    "Form",
    "Fraction",
    "Graph",
    "ImageSet",
    "In",
    "InOut",
    "Initializer",
    "Layer",
    "Length",
    "Listed",
    "Loss",
    "Member",
    "NotNegative",
    "Op",
    "OptionError",
    "Out",
    "OwnAugmentation",
    "Padding",
    "Positive",
    "Rates",
    "RowFormula",
    "Rule",
    "Schedule",
    "Shape",
    "ShapeError",
    "Share",
    "SingleLayer",
    "Size",
    "Split",
    "Tensor",
    "UpdateFormula",
    "kernel",
    "one_hot",
    "ops",
]
