"""What the choices say of a convolution or a product: what computes it, and in which of its ways.

Tables and checkpoints hold texts: a mark, by which ``KINDS`` knows the kind, and numbers.
"""

from __future__ import annotations

import re
from typing import ClassVar

from ....common.records import dataclass
from ...compiling import ChoiceError

_TEXT = re.compile(r"([a-z]*)(\d+(?:-\d+)*)", re.ASCII)


KINDS: dict[str, type[Choice]] = {}


@dataclass(frozen=True)
class Choice:
    """``numbers``: which candidate of its kind. Each kind has a mark that its texts begin with."""

    mark: ClassVar[str]
    numbers: tuple[int, ...]

    def __init_subclass__(cls, mark: str | None = None) -> None:
        if mark is not None:
            cls.mark, KINDS[mark] = mark, cls

    @property
    def text(self) -> str:
        return self.mark + "-".join(map(str, self.numbers))


class Counted(Choice):
    """One that is counted from 0."""

    @property
    def number(self) -> int:
        return self.numbers[0]


class Plan(Counted, mark=""):
    """A plan of cuDNN, or an algorithm of cuBLAS."""


class AsForward(Counted, mark="f"):
    """A plan that computes the data gradient as a forward convolution."""


class Bare(Counted, mark="b"):
    """A plan of a forward convolution that leaves bias and ReLU to the max-pool behind it."""


class Direct(Counted, mark="d"):
    """A shape of the kernels for pictures of few channels."""


class Tiled(Choice, mark="t"):
    """A tiling of the kernels on tensor cores."""


class Warpgroups(Choice, mark="w"):
    """A tiling of those whose products are of warpgroups."""


class Through(Choice, mark="p"):
    """As Tiled, with a max-pool behind or another gradient in front in the same kernel."""


class WarpgroupsThrough(Through, mark="pw"):
    """As Warpgroups, with that."""


class AtEnd(Choice, mark="e"):
    """A tiling of a weight gradient that the update's launch computes."""


def parsed(name: str, text: str) -> Choice:
    """What a text says under a name. Raises ChoiceError if it is no choice."""
    found = _TEXT.fullmatch(text)
    kind = KINDS.get(found[1]) if found else None
    if found is None or kind is None or (issubclass(kind, Counted) and "-" in text):
        raise ChoiceError(f"{text!a} for {name!a}")
    return kind(tuple(map(int, found[2].split("-"))))


def plan_of(name: str, choice: Choice | None) -> Plan | None:
    """The library's own plan that is chosen. Raises ChoiceError if it is of another kind."""
    if choice is None or isinstance(choice, Plan):
        return choice
    raise ChoiceError(f"{choice.text!a} for {name!a}")
