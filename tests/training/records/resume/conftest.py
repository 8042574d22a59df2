from __future__ import annotations

from ....support.resuming import _one_step_a_chunk, backend

__all__ = ["_one_step_a_chunk", "backend"]
