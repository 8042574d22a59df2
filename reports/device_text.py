"""The line that names a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..backends.base import Backend


def device_line(backend: Backend) -> str:
    """The backend, with the versions and settings on which its bits depend."""
    versions = ", ".join(f"{name} {version}" for name, version in backend.versions().items())
    return f"device      {backend.name}: {versions}"
