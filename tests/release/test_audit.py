"""The look-up of known vulnerabilities, on databases made here and a service on loopback."""

from __future__ import annotations

import importlib.util
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ..support.stored import cases

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("audit", ROOT / "release" / "audit.py")
assert _SPEC is not None
assert _SPEC.loader is not None
audit: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(audit)

NOWHERE = "http://127.0.0.1:9/"
LISTED = {
    "id": "PYSEC-1",
    "modified": "2026-01-02T00:00:00Z",
    "affected": [{"package": {"name": "Some_Name", "ecosystem": "PyPI"}, "versions": ["1.5"]}],
}


def _ranged(*events: dict[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    ranges = [{"type": kind, "events": list(events)}]
    package = {"name": "some-name", "ecosystem": "PyPI"}
    return {"id": "PYSEC-2", "affected": [{"package": package, "ranges": ranges}]}


FIXED = _ranged({"introduced": "1.2"}, {"fixed": "1.10"})


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "lock.txt"
    hashed = "    --hash=sha256:00\n"
    path.write_text(f"other==2.0 ; python_version < '3.11' \\\n{hashed}some-name==1.5 \\\n{hashed}")
    return path


@pytest.fixture(autouse=True)
def _no_database(monkeypatch):
    monkeypatch.delenv("DNNSTACK_ADVISORIES", raising=False)


@pytest.mark.parametrize(("advisory", "affected"), cases(__file__, "versions_are_compared"))
def test_versions_are_compared(advisory, affected):
    assert audit.affects(advisory, ("some-name", "1.5")) is affected
    assert not audit.affects(advisory, ("other", "1.5"))


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_vulnerable_version_fails(tmp_path, lock, capsys, kind):
    database = tmp_path / "database"
    if kind == "folder":
        (database / "vulns").mkdir(parents=True)
        (database / "vulns" / "PYSEC-1.json").write_text(json.dumps(LISTED))
        (database / "vulns" / "PYSEC-2.yaml").write_text(
            "id: PYSEC-2\naffected:\n- package: {name: other, ecosystem: PyPI}\n"
            "  ranges:\n  - type: ECOSYSTEM\n    events: [{introduced: '0'}, {fixed: 2.1}]\n"
        )
    else:
        with zipfile.ZipFile(database, "w") as archive:
            archive.writestr("PYSEC-1.json", json.dumps(LISTED))
            archive.writestr("GHSA-1.json", json.dumps(FIXED))
    assert audit.main([str(lock), "--database", str(database)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "some-name 1.5: PYSEC-1" in lines
    assert len(lines) == 3
    assert lines[-1].endswith("(2 advisories, the newest of 2026-01-02): 2 vulnerabilities")


def test_nothing_found_passes(tmp_path, lock, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps({**LISTED, "affected": []}))
    monkeypatch.setenv("DNNSTACK_ADVISORIES", str(tmp_path))
    assert audit.main([str(lock)], NOWHERE) == 0


@pytest.mark.parametrize("content", [None, "", "[]", "{}", "{"])
def test_a_database_that_was_named_and_cannot_be_used_is_an_error(tmp_path, lock, content):
    database = tmp_path / "database"
    if content is not None:
        database.mkdir()
        if content:
            (database / "a.json").write_text(content)
    assert audit.main([str(lock), "--database", str(database)]) == 2


def test_an_empty_lock_file_is_an_error(tmp_path):
    (tmp_path / "lock.txt").write_text("# nothing\n")
    assert audit.main([str(tmp_path / "lock.txt")], NOWHERE) == 2


@pytest.fixture
def service():
    """Answers with ``answer``, and keeps the last question."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            self.server.question = json.loads(self.rfile.read(size))  # type: ignore[attr-defined]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.server.answer)  # type: ignore[attr-defined]

        def log_message(self, *arguments: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_without_a_database_the_service_is_asked(lock, service):
    url = f"http://127.0.0.1:{service.server_port}/"
    service.answer = b'{"results": [{}, {}]}'
    assert audit.main([str(lock)], url) == 0
    assert [query["version"] for query in service.question["queries"]] == ["2.0", "1.5"]
    service.answer = b'{"results": [{}, {"vulns": [{"id": "PYSEC-1"}]}]}'
    assert audit.main([str(lock)], url) == 1


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"results": [{}]}', b"<html>"])
def test_what_was_not_audited_is_said(lock, service, answer, capsys):
    service.answer = answer
    assert audit.main([str(lock)], f"http://127.0.0.1:{service.server_port}/") == 0
    assert audit.main([str(lock)], NOWHERE) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("NOT AUDITED") for line in lines)
