"""The callbacks that a program gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .arguments import kind
from .reports.callbacks import Callback, Logs


class _Function(Callback):
    """Calls a function for every line of the log and every validation."""

    def __init__(self, function: Callable[[Logs], object]) -> None:
        self._function = function

    def on_log(self, logs: Logs) -> None:
        self._function(logs)

    def on_validation_end(self, logs: Logs) -> None:
        self._function(logs)


def as_callbacks(given: Sequence[Callback | Callable[[Logs], object]]) -> list[Callback]:
    """Objects with the methods of Callback, and functions that get the logs of every line.

    Raises TypeError for anything else.
    """
    if not isinstance(given, (list, tuple)):
        example = ""
        if isinstance(given, Callback) or callable(given):
            one = getattr(given, "__name__", f"{type(given).__name__}()")
            example = f", as in callbacks=[{one}]"
        raise TypeError(f"callbacks: expected a list{example or f', got {kind(given)}'}")
    for each in given:
        if not isinstance(each, Callback) and not callable(each):
            raise TypeError(f"callbacks: {each!r} is neither a dnnstack.Callback nor a function")
    return [each if isinstance(each, Callback) else _Function(each) for each in given]
