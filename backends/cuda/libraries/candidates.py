"""What the tuner times: ways to compute one thing, of which the fastest is kept by its number."""

from __future__ import annotations

from typing import Protocol


class Candidates(Protocol):
    """Ways to run one convolution, counted from 0; plans of cuDNN, or shapes of a kernel of ours.

    ``plan`` is the one taken, -1 before ``choose``.
    """

    plan: int

    def plans(self) -> int:
        """How many there are, the most promising first."""
        ...

    def build(self, index: int) -> bool:
        """Make one ready; False if that is not possible."""
        ...

    def name(self, index: int) -> str:
        """What is the same for candidates that compute the same."""
        ...

    def seconds(self, index: int, workspace: int, repeats: int) -> float:
        """Device seconds of one launch, the fastest of ``repeats``; infinite if it fails."""
        ...

    def verified(self, index: int, workspace: int) -> bool:
        """Whether it keeps what the precision and ``deterministic`` promise."""
        ...

    def choose(self, index: int | None = None) -> None:
        """Take one; None: the first. Raises CudnnError or ValueError if there is none."""
        ...
