"""An https server on loopback whose every answer a test decides."""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CERTIFICATE = Path(__file__).with_name("loopback.pem")


class Request(BaseHTTPRequestHandler):
    """What an answer gets: ``path``, ``headers``, and the ways to answer below."""

    protocol_version = "HTTP/1.0"
    server: Any

    def do_GET(self) -> None:
        self.server.owner.asked.append((self.path, self.headers.get("Range")))
        self.server.owner.answer(self)

    do_HEAD = do_GET

    def give(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A whole answer; ``Content_Length`` and others may be set to something else."""
        self.begin(status, **{"Content_Length": str(len(body)), **headers})
        self.wfile.write(body)

    def begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def begins_at(self) -> int:
        """The first byte that is asked for."""
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))
        assert found is not None
        return int(found[1])

    def give_range(self, content: bytes, end: int | None = None) -> None:
        """What is asked for; cut off before byte ``end``."""
        start = self.begins_at()
        length = {"Content_Length": str(len(content) - start)}
        if start:
            where = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.give(206, content[start:end], Content_Range=where, **length)
        else:
            self.give(200, content[:end], **length)

    def pour_once(self, piece: bytes, pause: float) -> None:
        """Send after a pause; the handler ends when the other side has gone."""
        self.server.owner.closing.wait(pause)
        self.wfile.write(piece)

    def pour(self, piece: bytes, pause: float = 0.0) -> None:
        """Send without an end, until the other side goes."""
        while not self.server.owner.closing.wait(pause):
            try:
                self.wfile.write(piece)
            except OSError:
                return

    def log_message(self, *arguments: object) -> None:
        """Stay silent."""


Answer = Callable[[Request], None]


@dataclass
class Server:
    """A running server; ``asked`` lists (path, Range) of every request."""

    answer: Answer
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/"


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        # Here and not on the listening socket, so that no handshake holds up the others.
        with self.context.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go in the middle are what some tests are about."""


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    """A server with an answer, stopped at the end."""
    server = _Quiet(("127.0.0.1", 0), Request)
    server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.context.load_cert_chain(CERTIFICATE)
    owner = Server(answer, port=server.server_address[1])
    server.owner = owner  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield owner
    finally:
        owner.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def nothing_for(seconds: float) -> Answer:
    """An answer that comes too late."""

    def wait(request: Request) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not request.server.owner.closing.wait(0.01):
            pass

    return wait
