"""An evaluation as text of at most 80 columns."""

from __future__ import annotations

from .evaluate import Evaluation

_WIDTH = 80
_NAME = 12


def as_text(result: Evaluation) -> str:
    """Accuracy and loss, then the confusion matrix, or classes alone where it is too wide."""
    lines = [
        f"{result.checkpoint}",
        f"on {result.dataset}, split {result.part}: {result.count} pictures",
        "",
        f"accuracy  {result.accuracy:.2%}  ({result.correct} right, "
        f"{result.count - result.correct} wrong)",
        f"loss      {result.loss:.4f}",
        "",
    ]
    return "\n".join(lines + (_matrix(result) or _classes(result)))


def _matrix(result: Evaluation) -> list[str] | None:
    names = [_cut(name) for name in result.classes]
    left = max(len("true"), *map(len, names))
    cell = 2 + max(len(str(result.confusion.max())), *map(len, names))
    if left + cell * len(names) + len("   right") > _WIDTH:
        return None
    lines = ["confusion: a row is a true class, a column what the network answered", ""]
    lines.append(" " * left + "".join(f"{name:>{cell}}" for name in names) + "   right")
    for name, row, part in zip(names, result.confusion.tolist(), _parts(result), strict=True):
        # Most cells are zero; a dot lets the mistakes stand out.
        cells = "".join(f"{number or '.':>{cell}}" for number in row)
        lines.append(f"{name:>{left}}{cells}{part:>8}")
    return lines


def _classes(result: Evaluation) -> list[str]:
    left = max(len("class"), *(len(_cut(name, 40)) for name in result.classes))
    lines = [f"{'class':<{left}}  pictures  right"]
    for name, row, part in zip(result.classes, result.confusion, _parts(result), strict=True):
        lines.append(f"{_cut(name, 40):<{left}}  {int(row.sum()):>8}  {part:>6}")
    return [*lines, "", "(--json has the confusion matrix)"]


def _parts(result: Evaluation) -> list[str]:
    """The share of each class that was right."""
    pairs = zip(result.confusion.diagonal().tolist(), result.confusion.sum(1).tolist(), strict=True)
    return [f"{right / count:.1%}" if count else "-" for right, count in pairs]


def _cut(name: str, width: int = _NAME) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"
