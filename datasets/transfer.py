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
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from ..common.files import open_regular

_PIECE = 1 << 16
_MOST_REDIRECTS = 5
_LEAST_BYTES_A_SECOND = 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_PARTIAL, _NOT_SATISFIABLE = 206, 416


class TransferError(Exception):
    """Why a mirror did not give the file. ``unreachable``: it will not give any other either."""

    def __init__(self, reason: str, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.unreachable = unreachable


def transfer(
    url: str, part: Path, most: int, timeout: float, advanced: Callable[[int], None]
) -> None:
    """Bring the file ``part`` to the whole of ``url``, asking only for what it does not hold yet.

    The server may ignore that wish: then the file begins anew. ``advanced`` hears how many bytes
    it has; what it raises ends the transfer, and what has come stays. Only https is spoken, also
    after a redirect. Raises TransferError where the server does not answer within ``timeout``
    seconds, sends less than 1 KiB a second for as long, ends early or has more than ``most`` bytes;
    OSError where the file cannot be written.
    """
    start = part.stat().st_size if part.exists() else 0
    try:
        response = _open(url, start, timeout)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if start and isinstance(error, urllib.error.HTTPError) and error.code == _NOT_SATISFIABLE:
            error.close()
            # It has nothing beyond what we hold, so what we hold is not its file.
            part.unlink()
            return transfer(url, part, most, timeout, advanced)
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


def _open(url: str, start: int, timeout: float) -> http.client.HTTPResponse:
    opener = _opener()
    headers = {"User-Agent": "dnnstack", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    for _ in range(_MOST_REDIRECTS + 1):
        if urlsplit(url).scheme != "https":
            raise TransferError(f"redirects to {url}, which is not https")
        try:
            response: http.client.HTTPResponse = opener.open(
                urllib.request.Request(url, headers=headers), timeout=timeout
            )
            return response
        except urllib.error.HTTPError as error:
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
        return TransferError(f"answers {error.code} {error.reason}".rstrip())
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
