from __future__ import annotations

from ...support.picture_folders import root

__all__ = ["root"]
