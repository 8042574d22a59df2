"""A section that is no single CUDA graph, since the host computes a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...common.records import dataclass
from .binding.launches import Step
from .failures import explained


@dataclass(frozen=True)
class HostWork:
    """What the host computes between two graphs."""

    steps: Sequence[Step]

    def launch(self, stream: Any) -> None:
        # The copies to the host wait for what was launched on the stream.
        for step in self.steps:
            explained(step, step.launch)


@dataclass(frozen=True)
class Alternating:
    """A section that is no single graph: graphs, and what the host computes between them."""

    parts: Sequence[Any]

    def launch(self, stream: Any) -> None:
        for part in self.parts:
            part.launch(stream)
