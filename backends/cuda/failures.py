"""What is said where a call fails: its operation, what memory was for, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from ...common.errors import LibraryError
from .binding.launches import Step, Stream
from .libraries.driver import ALLOCATION, ran_out
from .libraries.runtime import device_errors

AFTER = "earlier checkpoints are valid; resume, with a smaller batch if memory ran out"


def launch_all(steps: Sequence[Step], finished: Sequence[Stream] = ()) -> None:
    """Launch steps in order; with ``finished``, the streams, each is waited for before the next."""
    for step in steps:
        explained(step, step.launch)
        if finished:
            explained(step, finished[step.stream].cuda.synchronize)


def explained(step: Step, work: Callable[[], None]) -> None:
    """Do what a step asks for; where it fails, say which operation it was of."""
    try:
        work()
    except (LibraryError, *device_errors()) as error:
        call = step.call
        op = {} if call is None else {"op": call.op.label()}
        if isinstance(error, LibraryError):
            shown, kind = {**op, **error.arguments}, type(error)
            raise kind(error.library, error.function, error.status, shown, AFTER) from None
        if call is None:
            raise failed("CUDA", "cudaStreamWaitEvent", error, {}) from None
        shown = {**op, **call.arguments}
        raise failed(call.library, call.function, error, shown) from None


def failed(
    library: str, function: str, error: Exception, shown: Mapping[str, object], advice: str = AFTER
) -> LibraryError:
    """The error of a call in which the device failed; of asking for memory, where that ran out."""
    if ran_out(error):
        library, function = "CUDA", ALLOCATION
    return LibraryError(library, function, str(error), shown, advice)


class Allocating(AbstractContextManager["Allocating"]):
    """A MemoryError in it becomes a LibraryError that says what the memory was for: ``shown``."""

    def __init__(self, **shown: object) -> None:
        self._shown = shown

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, MemoryError):
            # Who holds the new error must not hold the arrays that there was memory for.
            error.__traceback__ = None
            del traceback
            raise LibraryError("CUDA", ALLOCATION, str(error), self._shown, AFTER) from None
