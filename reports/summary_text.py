"""The summary of a network as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..common.cells import cells
from ..common.printable import paragraph
from ..common.text import samples_of, shape_text
from .summary import Memory, NetworkSummary, Row
from .tables import fitted
from .units import bytes_text, digits, quantity

if TYPE_CHECKING:
    from ..backends.cuda.memory_plan import MemoryPlan

_HEAD = ("layer", "output", "parameters", "MFLOP", "weights", "activation", "unrolled")
# What a narrow terminal has no room for, from the last column on.
_SPARED = (6, 5, 4, 3)


def as_text(summary: NetworkSummary, width: int | None = None) -> str:
    """The table, its totals and their meaning; longer names than fit ``width`` are cut.

    Where that is not enough, the last columns are left out: their totals are below the table, too.
    """
    loss = summary.rows[-1]
    of = "" if summary.ranks == 1 else f" of one of {summary.ranks} ranks"
    rows = [
        (
            "  " * row.depth + (_name(row) if row is not loss else row.name),
            shape_text(row.output_shape),
            f"{row.parameters:,}" if row.parameters else "-",
            _mflop(row.forward_flops),
            bytes_text(row.weight_bytes) if row.weight_bytes else "-",
            bytes_text(row.activation_bytes) if row.activation_bytes else "-",
            "-" if row.unrolled is None else f"{row.unrolled:.3g}",
        )
        for row in summary.rows
    ]
    total = (
        "total",
        "",
        f"{summary.parameters:,}",
        _mflop(summary.forward_flops),
        bytes_text(summary.training.parameters),
        bytes_text(summary.training.activations),
        "",
    )
    every: list[tuple[str, ...]] = [_HEAD, *rows, total]
    if all(row.unrolled is None for row in summary.rows):
        every = [row[:-1] for row in every]
    head, *body, foot = fitted(every, "<<>", width, _SPARED[7 - len(every[0]) :])
    rule = "-" * cells(head)
    notes = [*_meanings(summary, head), *_statistics(summary)]
    lines = [
        f"{summary.config}: {summary.dataset}, {samples_of(summary.input_shape)} "
        f"{shape_text(summary.input_shape)}, "
        f"{len(summary.classes)} classes, {loss.type}",
        *_rank(summary),
        "",
        head,
        rule,
        *body,
        rule,
        foot,
        "",
        *([*notes, ""] if notes else []),
        *_memory(f"memory of a training step{of}, {_batch(summary)}", summary.training),
        "",
        f"evaluation, batch {summary.evaluation_batch_size}, takes "
        f"{bytes_text(summary.evaluation.total)}",
        "A backend adds padding and copies in other layouts.",
        "",
        *_gpu(summary.gpu, of),
        "",
        f"a training step{of} computes {quantity(summary.step_flops, 'FLOP')}, of which forward "
        f"{quantity(summary.step_forward_flops, 'FLOP')}",
        *_sent(summary),
    ]
    return paragraph(lines)


def _meanings(summary: NetworkSummary, head: str) -> list[str]:
    """What the columns mean, of those that the table has."""
    samples, count = samples_of(summary.input_shape), summary.batch_size // summary.parts
    lines = (
        f"MFLOP: forward of one {samples[:-1]}; a multiplication and an addition count as two.",
        f"activation: kept for backward, {count} {samples[:-1] if count == 1 else samples}; "
        "-: a view, or in a fused call.",
        "unrolled: how often im2col repeats the input, K^2 H' W' / (H W).",
    )
    return [line for line in lines if line.partition(":")[0] in head]


def _rank(summary: NetworkSummary) -> list[str]:
    """Whose figures follow, if several ranks train the network."""
    if summary.ranks == 1:
        return []
    share = f"a band of each picture of a {_batch(summary)}"
    if summary.bands == 1:
        share = _batch(summary)
    return [f"figures of one of {summary.ranks} ranks, which computes {share}"]


def _batch(summary: NetworkSummary) -> str:
    """The batch, or the share of it that one of several ranks has."""
    whole = summary.batch_size
    if summary.ranks == 1 or summary.bands > 1:
        return f"batch {whole}" if summary.ranks == 1 else f"batch of {whole}"
    return f"{whole // summary.ranks} of a batch of {whole}"


def _sent(summary: NetworkSummary) -> list[str]:
    """What leaves a rank."""
    if summary.ranks == 1:
        return []
    sent = bytes_text(summary.sent_bytes)
    sent = f"at most {sent}" if summary.bands > 1 else sent
    lines = [f"in a step each of {summary.ranks} ranks sends {sent}"]
    if len(summary.sent_by_phase) > 1:
        each = (f"{bytes_text(n)} {phase}" for phase, n in summary.sent_by_phase.items())
        lines.append(f"of these {', '.join(each)}")
    return lines


def _statistics(summary: NetworkSummary) -> list[str]:
    """The running statistics that a checkpoint has besides the parameters, if any."""
    if not summary.statistics:
        return []
    return [f"Besides the parameters: {summary.statistics:,} running statistics of batch norm."]


def _gpu(plan: MemoryPlan | None, of: str) -> list[str]:
    """The memory of every section, and of what they share."""
    title = f"memory of training{of} on a GPU, at most"
    if plan is None:
        return [title, "  none is enough: a tensor would have 2^31 elements or more"]
    named = {
        "parameters": plan.parameters,
        "gradients": plan.gradients,
        "optimizer": plan.optimizer,
        "data set": plan.data,
        **{
            f"{name}, batch {need.batch_size}": need.activations
            for name, need in plan.sections.items()
        },
        "workspaces": plan.workspaces,
        "total": plan.total,
    }
    return _amounts(title, named.items())


def _memory(title: str, memory: Memory) -> list[str]:
    named = {key.replace("_", " "): count for key, count in vars(memory).items()}
    if not memory.statistics:
        del named["statistics"]
    return _amounts(title, {**named, "total": memory.total}.items())


def _amounts(title: str, named: Iterable[tuple[str, int]]) -> list[str]:
    return [title, *(f"  {name:<24}{bytes_text(count):>10}" for name, count in named)]


def _name(row: Row) -> str:
    """The name without those of enclosing layers, and the type unless the name contains it."""
    name = row.name.rpartition(".")[2]
    return name if name.rpartition("_")[0] == row.type or not row.type else f"{name}: {row.type}"


def _mflop(flops: int) -> str:
    """Millions with about three digits."""
    value = flops / 1e6
    return f"{value:,.{digits(value) + (value < 0.9995)}f}" if flops else "-"
