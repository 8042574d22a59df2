from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# A machine that is busy with other things is no fault of the code.
settings.register_profile("patient", parent=settings(), deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of each test's own, so that no tuning is found that another test stored."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("DNNSTACK_CACHE", str(folder))
    return folder
