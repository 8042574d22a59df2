from __future__ import annotations

import pytest

from ..support.https_server import CERTIFICATE


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of each test's own, not created yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DNNSTACK_CACHE", str(folder))
    return folder


@pytest.fixture
def trusted(monkeypatch):
    """The test server's certificate is the only one that counts, and no proxy is asked."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "*")
