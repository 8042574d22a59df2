"""One file over https, going on where an earlier attempt has ended, with the standard library."""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

from ..common.files import open_regular

_PIECE = 1 << 16
_MOST_REDIRECTS = 5
_LEAST_BYTES_A_SECOND = 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_PARTIAL, _NOT_SATISFIABLE, _BUSY = 206, 416, (429, 503)
# Seconds: the longest that a server may ask for, and what is waited if it does not say.
_LONGEST_PAUSE, _PAUSE, _LOOK_SECONDS = 60, 1.0, 0.2
_ATTEMPTS = 3
T = TypeVar("T")


class TransferError(Exception):
    """Why a mirror did not give the file. ``unreachable``: it will not give any other either.

    ``pause``: it is busy, and may be asked again after so many seconds.
    """

    def __init__(
        self, reason: str, *, unreachable: bool = False, pause: float | None = None
    ) -> None:
        super().__init__(reason)
        self.unreachable, self.pause = unreachable, pause


def patiently(ask: Callable[[], T], waiting: Callable[[], None] | None) -> T:
    """What ``ask`` returns; of a server that is busy, it is asked up to three times.

    ``waiting`` is called several times a second meanwhile; None: it is asked once. Raises
    TransferError.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return ask()
        except TransferError as error:
            if error.pause is None or waiting is None:
                raise
            end = time.monotonic() + error.pause
            while (left := end - time.monotonic()) > 0:
                waiting()
                time.sleep(min(left, _LOOK_SECONDS))
    return ask()


def headers_of(url: str, key: str, timeout: float, secret: Mapping[str, str]) -> Message:
    """The headers of the first answer that has ``key``, of redirects too; else of the last.

    secret: see ``transfer``, whose errors these are. The file itself is not sent.
    """
    try:
        with _open(url, {}, timeout, secret, key) as answer:
            found: Message = answer.headers
            return found
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _explained(error, timeout) from None


def transfer(
    url: str,
    part: Path,
    most: int,
    timeout: float,
    advanced: Callable[[int], None],
    secret: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Bring the file ``part`` to the whole of ``url``, asking only for what it does not hold yet.

    The server may ignore that wish: then the file begins anew. ``advanced`` hears how many bytes
    it has; what it raises ends the transfer, and what has come stays. Only https is spoken, also
    after a redirect; ``secret`` are headers for the host of ``url`` alone. Raises TransferError
    where the server does not answer within ``timeout``
    seconds, sends less than 1 KiB a second for as long, ends early or has more than ``most`` bytes;
    OSError where the file cannot be written.
    """
    start = part.stat().st_size if part.exists() else 0
    try:
        response = _open(url, {"Range": f"bytes={start}-"} if start else {}, timeout, secret)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if start and isinstance(error, urllib.error.HTTPError) and error.code == _NOT_SATISFIABLE:
            error.close()
            # It has nothing beyond what we hold, so what we hold is not its file.
            part.unlink()
            return transfer(url, part, most, timeout, advanced, secret)
        raise _explained(error, timeout) from None
    with response:
        if response.status == _PARTIAL:
            found = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
            if not start or found is None or int(found[1]) != start:
                raise TransferError("sends another part of the file than it was asked for")
        else:
            start = 0
        length = response.headers.get("Content-Length", "")
        whole = start + int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None
        if whole is not None and whole > most:
            raise TransferError(f"offers {whole} bytes, more than the file can have")
        _receive(response, part, start, whole, most, timeout, advanced)


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    start: int,
    whole: int | None,
    most: int,
    timeout: float,
    advanced: Callable[[int], None],
) -> None:
    held, marked, since = start, start, time.monotonic()
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if start else os.O_TRUNC)
    with os.fdopen(open_regular(part, flags), "ab" if start else "wb") as file:
        advanced(held)
        while whole is None or held < whole:
            try:
                piece = response.read1(_PIECE)
            except (OSError, http.client.HTTPException) as error:
                raise _explained(error, timeout, held) from None
            if not piece:
                break
            if held + len(piece) > most:
                file.truncate(0)
                raise TransferError(f"sends more than the {most} bytes that the file can have")
            file.write(piece)
            held += len(piece)
            advanced(held)
            now = time.monotonic()
            if now - since > timeout:
                if held - marked < timeout * _LEAST_BYTES_A_SECOND:
                    raise TransferError("is too slow", unreachable=True)
                marked, since = held, now
    if whole is not None and held < whole:
        raise TransferError(f"ended the connection after {held} of {whole} bytes")


def _open(
    url: str, wanted: Mapping[str, str], timeout: float, secret: Mapping[str, str], key: str = ""
) -> Any:
    """The answer; with ``key``, to HEAD, and of a redirect that has this header."""
    opener, first = _opener(), urlsplit(url)[:2]
    plain = {"User-Agent": "dnnstack", "Accept-Encoding": "identity", **wanted}
    for _ in range(_MOST_REDIRECTS + 1):
        if urlsplit(url).scheme != "https":
            raise TransferError(f"redirects to {url}, which is not https")
        headers = {**plain, **secret} if urlsplit(url)[:2] == first else plain
        request = urllib.request.Request(url, headers=headers, method="HEAD" if key else "GET")
        try:
            return opener.open(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            if key and key in error.headers:
                return error
            target = error.headers.get("Location")
            if error.code not in _REDIRECTS or target is None:
                raise
            # Followed by hand: the library's own way reads the answer's body, however long it is.
            error.close()
            url = urljoin(url, target)
    raise TransferError(f"redirects more than {_MOST_REDIRECTS} times")


def _opener() -> urllib.request.OpenerDirector:
    """https and the proxies of the environment, and no other way out."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _explained(error: Exception, timeout: float, held: int | None = None) -> TransferError:
    """A library's exception in words; ``held``: bytes that had come when it was raised."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        asked = error.headers.get("Retry-After", "")
        pause = min(int(asked), _LONGEST_PAUSE) if re.fullmatch("[0-9]{1,9}", asked) else _PAUSE
        reason = f"answers {error.code} {error.reason}".rstrip()
        return TransferError(reason, pause=pause if error.code in _BUSY else None)
    after = "" if held is None else f" after {held} bytes"
    if isinstance(cause, TimeoutError):
        return TransferError(f"no answer within {timeout:g} s{after}", unreachable=True)
    if isinstance(cause, socket.gaierror):
        return TransferError("its name cannot be resolved", unreachable=True)
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = f"its certificate is not accepted: {cause.verify_message}"
        return TransferError(reason, unreachable=True)
    if held is not None:
        return TransferError(f"the connection broke{after}")
    words = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return TransferError(f"cannot be reached: {words}", unreachable=True)
