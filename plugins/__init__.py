"""What a plugin imports: a Python file of yours that defines layers, losses and the like.

    from dnnstack.plugins import In, Op, Out, SingleLayer, kernel

docs/plugins.md has an example of every kind.
"""

from __future__ import annotations

from ..common.errors import ConfigError as ConfigError
from ..common.errors import DatasetError as DatasetError
from ..common.errors import ShapeError as ShapeError
from ..common.options import Check as Check
from ..common.options import Count as Count
from ..common.options import Epochs as Epochs
from ..common.options import Form as Form
from ..common.options import Fraction as Fraction
from ..common.options import Listed as Listed
from ..common.options import NotNegative as NotNegative
from ..common.options import OptionError as OptionError
from ..common.options import Padding as Padding
from ..common.options import Positive as Positive
from ..common.options import Share as Share
from ..common.options import Size as Size
from ..datasets.download import Downloads as Downloads
from ..datasets.image_set import DataFile as DataFile
from ..datasets.image_set import Dataset as Dataset
from ..datasets.image_set import DatasetInfo as DatasetInfo
from ..datasets.image_set import ImageSet as ImageSet
from ..datasets.image_set import Split as Split
from ..graph import ops as ops
from ..graph.augmentations import OwnAugmentation as OwnAugmentation
from ..graph.graph import Graph as Graph
from ..graph.graph import In as In
from ..graph.graph import InOut as InOut
from ..graph.graph import Op as Op
from ..graph.graph import Out as Out
from ..graph.graph import Shape as Shape
from ..graph.graph import Tensor as Tensor
from ..graph.ops.formulas import Array as Array
from ..graph.ops.formulas import RowFormula as RowFormula
from ..graph.ops.formulas import UpdateFormula as UpdateFormula
from ..graph.ops.formulas import one_hot as one_hot
from ..layers.initializers import Initializer as Initializer
from ..layers.layer import Layer as Layer
from ..layers.layer import SingleLayer as SingleLayer
from ..layers.losses.loss import Loss as Loss
from ..optimizers.rules import Decaying as Decaying
from ..optimizers.rules import ElementwiseRule as ElementwiseRule
from ..optimizers.rules import Member as Member
from ..optimizers.rules import Rule as Rule
from ..optimizers.schedules.schedule import Length as Length
from ..optimizers.schedules.schedule import Rates as Rates
from ..optimizers.schedules.schedule import Schedule as Schedule
from .kernels import kernel as kernel
