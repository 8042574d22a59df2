"""Requests to the application of ``dnnstack serve``, without a socket."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from dnnstack.exports.serving import App

LOCAL = frozenset(("localhost",))
PICTURE = "image/png"


def app(model: Any, token: str | None = None, **how: Any) -> App:
    """The application over a network, on the loopback; ``said`` has its lines."""
    said: list[str] = []
    door: Any = SimpleNamespace(hosts=LOCAL, token=token)
    found = App(model, door, how.get("batch"), how.get("max_mb", 16), said.append)
    found.said = said  # type: ignore[attr-defined]
    return found


def asked(app: App, what: str, body: Any = b"", **headers: str) -> tuple[int, dict[str, str], Any]:
    """Status, headers and content of the answer to ``POST /predict?top=1`` and the like.

    ``_`` in the name of a header is ``-``. body: bytes, or parts of which None never comes; a dict
    is sent as JSON.
    """
    return asyncio.run(answered(app, what, body, **headers))


async def answered(
    app: App, what: str, body: Any = b"", **headers: str
) -> tuple[int, dict[str, str], Any]:
    method, _, target = what.partition(" ")
    path, _, query = target.partition("?")
    kind = {"content_type": "application/json" if isinstance(body, dict) else PICTURE}
    body = json.dumps(body).encode() if isinstance(body, dict) else body
    parts = list(body) if isinstance(body, list) else [body]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        if part is None:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = {"host": "localhost:80", **kind, **headers}
    coded = [(k.replace("_", "-").encode(), v.encode("latin-1")) for k, v in given.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
    await app({**scope, "headers": coded, "client": ("127.0.0.1", 1)}, receive, send)
    start, end = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    text = end["body"].decode()
    is_json = found["content-type"] == "application/json"
    return start["status"], found, json.loads(text) if is_json else text
