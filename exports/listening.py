"""The socket of a server, its connections, and its end."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import secrets
import socket
from typing import Any

from ..common.errors import DnnstackError, UsageError
from ..training.signals import StopSignals

_ENDING = "dnnstack: ends once what is under way is answered; Ctrl-C again ends now\n"
# In which the header of a request has to come, also of the next one of a connection.
HEADER_SECONDS = 10.0


class Door:
    """An open socket, the ``hosts`` by which it may be called, and the ``token`` that it wants.

    Elsewhere than on the loopback one is ``drawn`` if none is given. Raises UsageError for a token
    that is too short, DnnstackError for an address that cannot be used.
    """

    def __init__(self, host: str, port: int, token: str | None) -> None:
        if token is not None and not re.fullmatch("[!-~]{16,}", token):
            raise UsageError("--token: expected at least 16 letters, digits and signs of ASCII")
        try:
            family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.socket = socket.create_server(place[:2], family=family)
            # asyncio sets it where a socket's protocol is known; a body waits 40 ms without it.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", "is not an address")
            text = f"{host}, port {port}: {why}; choose others with --host and --port"
            raise DnnstackError(text) from None
        address, port = self.socket.getsockname()[:2]
        name = f"[{address}]" if ":" in address else address
        own = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        self.hosts = frozenset(("localhost", "127.0.0.1", "[::1]", name)) if own else None
        self.drawn = "" if own or token else secrets.token_urlsafe(24)
        self.token = token or self.drawn or None
        self.url = f"http://{name}:{port}"


def listen(app: Any, door: Door, seconds: int) -> int:
    """Serve until a signal comes, then answer what is under way; the exit status."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Patient(H11Protocol):
        """Closes a connection on which the header of a request does not come."""

        def connection_made(self, transport: Any) -> None:
            self._timer = self.loop.call_later(HEADER_SECONDS, self._late)
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            self._timer.cancel()
            self._timer = self.loop.call_later(HEADER_SECONDS, self._late)
            super().on_response_complete()

        def _late(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    class Server(uvicorn.Server):
        def capture_signals(self) -> Any:
            return contextlib.nullcontext()

        async def on_tick(self, counter: int) -> bool:
            return await super().on_tick(counter) or stop.requested()

    plain: Any = {"log_config": None, "ws": "none", "loop": "asyncio", "lifespan": "off"}
    without: Any = dict.fromkeys(("access_log", "server_header", "proxy_headers"), False)
    with StopSignals(_ENDING) as stop:
        config = uvicorn.Config(
            app, http=Patient, timeout_graceful_shutdown=seconds, **plain, **without
        )
        Server(config).run([door.socket])
    return stop.exit_status
