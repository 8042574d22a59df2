from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of each test's own, not created yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DNNSTACK_CACHE", str(folder))
    return folder
