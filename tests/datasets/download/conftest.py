from __future__ import annotations

from ...support.mirrors import folder, part

__all__ = ["folder", "part"]
