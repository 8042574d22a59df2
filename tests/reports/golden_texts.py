"""Every report as text and JSON, of something small and fixed."""

from __future__ import annotations

from collections.abc import Callable

TEXTS: dict[str, Callable[[], str]] = {}
