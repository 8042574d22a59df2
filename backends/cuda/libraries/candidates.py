"""What the tuner times: ways to compute one thing, of which the fastest is kept by its number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from .kernels import Kernel
from .timing import trial_seconds


class Candidates(ABC):
    """Ways to run one convolution, counted from 0; plans of cuDNN, or shapes of a kernel of ours.

    ``plan`` is the one taken, -1 before ``choose``; ``stream`` is where they run.
    """

    plan = -1
    stream: Any

    @property
    def sums(self) -> bool:
        """Whether they leave the sums that a batch norm behind them begins with."""
        return False

    @abstractmethod
    def plans(self) -> int:
        """How many there are."""

    def order(self) -> Sequence[int]:
        """All of them, the most promising first."""
        return range(self.plans())

    @abstractmethod
    def build(self, index: int) -> bool:
        """Make one ready; False if that is not possible."""

    def preparations(self) -> Iterable[Callable[[], Future[bytes] | None]]:
        """Each begins what may be done for ``build`` beforehand, beside other work; what it gives
        is done then."""
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


class Numbered(Protocol):
    """One way to cut the loops of a kernel."""

    @property
    def numbers(self) -> dict[str, int]:
        """What the kernel is compiled with for it."""


class Compiled(Candidates):
    """Ways to cut the loops of a kernel of ours, which is compiled for each.

    ``file``: the kernel's name and, without its end, its file's.
    """

    file: str

    @property
    @abstractmethod
    def _every(self) -> Sequence[Numbered]:
        """The candidates: found when a search asks for them, for the model takes a while and a
        count of memory does without."""

    @abstractmethod
    def _kernel(self, index: int) -> Kernel:
        """The kernel for one of them."""

    def plans(self) -> int:
        return len(self._every)

    def preparations(self) -> Iterable[Callable[[], Future[bytes] | None]]:
        return [partial(self._begin, index) for index in range(self.plans())]

    def _begin(self, index: int) -> Future[bytes] | None:
        return self._kernel(index).begin()

    def build(self, index: int) -> bool:
        """Compile it for this tiling; False if the compiler or the driver refuses it."""
        try:
            self._kernel(index).ready()
        except Exception:  # each of the two, and CuPy, raises a type of its own
            return False
        return True

    def seconds(self, index: int, workspace: int, repeats: int) -> float:
        return super().seconds(index, workspace, repeats) if self.build(index) else float("inf")

    def name(self, index: int) -> str:
        return f"{self.file} {self.choice(index)}"

    def choice(self, index: int) -> str:
        return "-".join(map(str, self._every[index].numbers.values()))

    def choose(self, index: int | None = None) -> None:
        """Take a tiling; None: the first."""
        self.plan = index or 0
