"""What the update at a step's end may take into its launch: the choice "ending"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ....graph.graph import Graph, Op, Tensor
from ....graph.ops import Advance, MatMul, SgdUpdate
from ..libraries.kernels import THREADS, Defines
from ..libraries.layout import ceil_div
from .buffer import Buffer

# The gradients of a classifier's end, and the batch of the next step.
TAIL, BATCH = "tail", "batch"
# Samples of a block where each takes few loads, and blocks of the others together.
FEW_LOADS, SAMPLES, GATHER_BLOCKS = 256, 4, 264


class TailGradients(NamedTuple):
    """A launch of dense_tail_gradients that the update makes.

    ``op``: the operation. ``targets``: the gradients of the output layer's weights, of the hidden
    layer's bias and of the output layer's, as far as there are any. ``given``, ``rest``: what the
    kernel is given in front of them and behind. ``columns``: of its blocks together.
    """

    op: Op
    targets: tuple[Tensor | None, ...]
    given: tuple[Any, ...]
    rest: tuple[Any, ...]
    defines: Defines
    columns: int
    dtype: str


class WeightProduct(NamedTuple):
    """The gradient of a dense layer's weights, with their update, that the update's launch makes.

    ``op``: the operation. ``right``: the buffer of the layer's inputs. ``given``: both operands and
    the rule. ``span``: where the weights begin and end in their arena. ``across``, ``blocks``:
    groups of columns, and blocks in all, of so many bytes of ``shared`` memory.
    """

    op: MatMul
    right: Buffer
    given: tuple[Any, ...]
    span: tuple[int, int]
    across: int
    blocks: int
    shared: int
    defines: Defines
    dtype: str


class NextBatch(NamedTuple):
    """Where a batch comes from and goes to: what gather_batch is given.

    ``step``: the counter of steps. ``work``: loads that a sample takes. ``alone``: appends its own
    launch to a binder.
    """

    step: Tensor
    before: tuple[Any, ...]
    x: Buffer
    behind: tuple[Any, ...]
    place: Any
    samples: int
    work: int
    alone: Callable[[Any], None]

    def given(self) -> tuple[int, int, tuple[Any, ...]]:
        """SAMPLES of next_batch.cuh, how many blocks gather them, and what they are given."""
        samples = SAMPLES if self.work <= FEW_LOADS else 1
        groups = ceil_div(self.samples, samples)
        parts = max(1, min(GATHER_BLOCKS // groups, ceil_div(self.work, THREADS)))
        arguments = (*self.before, self.x, *self.behind, self.samples, parts, self.place)
        return samples, groups * parts, arguments


class Update(NamedTuple):
    """What every kernel of an update is given.

    ``arrays``: parameters, gradients, momentum, copies in bfloat16. ``start``: where they begin in
    their arena; ``fours``: how many there are. ``rule``: the last arguments. ``table``: (factor of
    the rate, weight decay) of every tile, on the device; 0 of what others follow.
    """

    arrays: tuple[Any, Any, Any, Any]
    start: int
    fours: int
    rule: tuple[Any, ...]
    table: Callable[[Collection[Tensor]], Any]
    details: dict[str, object]


def wanted(choices: Mapping[str, str], what: str) -> bool:
    """Whether the choices say that the update takes it along."""
    return what in choices.get("ending", "").split(",")


def last_advance(graph: Graph, op: SgdUpdate) -> Advance | None:
    """The advance of the step, if it and nothing else follows the update."""
    after = graph.ops[graph.ops.index(op) + 1 :]
    if len(after) == 1 and isinstance(after[0], Advance) and after[0].step == op.step:
        return after[0]
    return None


def follows(graph: Graph, op: Op, gradients: tuple[Tensor, ...]) -> bool:
    """Whether the step ends with an update by SGD that follows these gradients, and nothing else in
    the step reads what the operation leaves."""
    left = set(op.writes())
    readers = [other for other in graph.ops if other is not op and left & set(other.reads())]
    (update,) = readers if len(readers) == 1 else (None,)
    if not isinstance(update, SgdUpdate) or last_advance(graph, update) is None:
        return False
    return set(gradients) <= set(update.gradients)
