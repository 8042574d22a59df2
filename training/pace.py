"""The speed of a training, and how many steps to run at a time."""

from __future__ import annotations

from time import perf_counter

CHUNK_SECONDS = 0.25


def next_chunk(steps: int, seconds: float) -> int:
    """The number of steps in a quarter of a second, by the last measurement; at least 1."""
    return max(1, int(CHUNK_SECONDS * steps / max(seconds, 1e-9)))


class Pace:
    """Times of a training in this process; validation and saving are counted separately."""

    def __init__(self, batch_size: int) -> None:
        self.chunk = 1
        self.validation_seconds = self.saving_seconds = 0.0
        self._batch_size = batch_size
        self._done = self._done_in_window = 0
        self._begun = self._window_begun = perf_counter()
        self._last_speed = 0.0

    def start(self) -> None:
        """Training begins now."""
        self._begun = self._window_begun = perf_counter()

    def ran(self, steps: int, seconds: float) -> None:
        """Record that ``steps`` took ``seconds``."""
        self._done += steps
        self._done_in_window += steps
        self.chunk = next_chunk(steps, seconds)

    def validated(self, seconds: float) -> None:
        """Subtract the seconds of a validation from those of training."""
        self.validation_seconds += seconds

    def saved(self, seconds: float) -> None:
        """The same of seconds for which the steps stood still for a save."""
        self.saving_seconds += seconds

    def next_window(self) -> None:
        """A new window of the log begins."""
        self._last_speed = self.images_per_second
        self._done_in_window, self._window_begun = 0, self._clock()

    @property
    def images_per_second(self) -> float:
        """Speed in the window, or in the last one while this one has no step."""
        done = self._done_in_window
        return self._speed(done, self._clock() - self._window_begun) if done else self._last_speed

    @property
    def overall_images_per_second(self) -> float:
        return self._speed(self._done, self.training_seconds)

    @property
    def training_seconds(self) -> float:
        """Time since the start, except for validation and saving: steps and log."""
        return self._clock() - self._begun

    def seconds_left(self, steps: int) -> float:
        """Time for ``steps`` more at the speed so far, with all else; 0 before the first step."""
        gone = perf_counter() - self._begun
        return steps * gone / self._done if self._done else 0.0

    def _speed(self, steps: int, seconds: float) -> float:
        return steps * self._batch_size / seconds if seconds > 0 else 0.0

    def _clock(self) -> float:
        """A clock that stands still during validation and saving."""
        return perf_counter() - self.validation_seconds - self.saving_seconds
