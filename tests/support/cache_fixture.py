"""A cache of each test's own, for the conftest.py of folders that want it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of each test's own, so that no tuning is found that another test stored."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DNNSTACK_CACHE", str(folder))
    return folder
