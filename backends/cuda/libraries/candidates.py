"""What the tuner times: ways to compute one thing, of which the fastest is kept by its number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from .runtime import trial_seconds


class Candidates(ABC):
    """Ways to run one convolution, counted from 0; plans of cuDNN, or shapes of a kernel of ours.

    ``plan`` is the one taken, -1 before ``choose``; ``stream`` is where they run.
    """

    plan = -1
    stream: Any

    @abstractmethod
    def plans(self) -> int:
        """How many there are, the most promising first."""

    @abstractmethod
    def build(self, index: int) -> bool:
        """Make one ready; False if that is not possible."""

    def preparations(self) -> Iterable[Callable[[], object]]:
        """What may be done for ``build`` beforehand, on threads of its own."""
        return ()

    def choice(self, index: int) -> str:
        """How the choices name one."""
        return str(index)

    @abstractmethod
    def name(self, index: int) -> str:
        """What is the same for candidates that compute the same."""

    @abstractmethod
    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        """A function that runs one; workspace: a device pointer to as many bytes as it needs."""

    def seconds(self, index: int, workspace: int, repeats: int) -> float:
        """Device seconds of one launch, the fastest of ``repeats``; infinite if it fails."""
        return trial_seconds(self.launch(index, workspace), self.stream, repeats)

    @abstractmethod
    def verified(self, index: int, workspace: int) -> bool:
        """Whether it keeps what the precision and ``deterministic`` promise."""

    @abstractmethod
    def choose(self, index: int | None = None) -> None:
        """Take one; None: the first. Raises CudnnError or ValueError if there is none."""
