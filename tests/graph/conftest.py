from __future__ import annotations

from ..support.cache_fixture import cache

__all__ = ["cache"]
