from __future__ import annotations

from .....support.checkpoint_folders import folder, save

__all__ = ["folder", "save"]
