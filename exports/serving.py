"""A trained network behind HTTP, which answers what ``predict --json`` prints."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import math
import re
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError, told
from ..common.machine import available_threads
from ..datasets import Picture, Preparation, read_picture
from ..training.inference.predict import Asked, preparation
from ..training.records.runs import run_of_checkpoint
from .html_file import model_of, page
from .plain import Plain

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from .listening import Door

MOST_SAMPLES, MOST_REQUESTS, SECONDS = 100, 64, 30
"""In a request; at a time; from the header of a request to its answer."""
# Threads that decode: each may take 1 GB for a picture of the largest size.
_DECODERS = 8
_BOUNDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, "+Inf")
_HEADERS = {
    401: {"WWW-Authenticate": 'Basic realm="dnnstack: the token is the password"'},
    503: {"Retry-After": "1"},
}
_JSON = "application/json"


class Refused(Exception):
    """A status, and why."""


class Counts(defaultdict[str, float]):
    """Numbers by the names that Prometheus reads."""

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram: how many are at most each bound, their number and sum."""
        for bound in _BOUNDS:
            self[f'{name}_bucket{{le="{bound}"}}'] += value <= float(bound)
        self[f"{name}_count"] += 1
        self[f"{name}_sum"] += value

    def text(self) -> str:
        """A line for each, those of one name together."""
        every = sorted(self.items(), key=lambda item: item[0].partition("{")[0])
        return "".join(f"{name} {value:.9g}\n" for name, value in every)


class Batches:
    """Computes pictures of many threads in one, those that wait at a time as one batch.

    Batches have one of three sizes, 1, the root of ``most`` and ``most``: as many stay compiled.
    ``counted`` is told how many pictures each had.
    """

    def __init__(self, compute: Callable[[Any], Any], most: int, counted: Callable[[int], None]):
        self.sizes = (1, math.isqrt(most), most)
        self.waiting: deque[tuple[NDArray[Any], Future[Any]]] = deque()
        self._compute, self._counted = compute, counted
        self._thread = ThreadPoolExecutor(1, "compute")

    def __call__(self, pictures: Sequence[NDArray[Any]]) -> list[Any]:
        """What is computed of each (C, H, W), at its turn; raises what computing does."""
        answers: list[Future[Any]] = [Future() for _ in pictures]
        self.waiting.extend(zip(pictures, answers, strict=True))
        self._thread.submit(self._run)
        return [answer.result() for answer in answers]

    def _run(self) -> None:
        one, some, most = self.sizes
        # No other thread takes any away.
        while count := len(self.waiting):
            # The middle size may be half empty.
            size = most if count >= most else some if 2 * count > some else one
            batch = [self.waiting.popleft() for _ in range(min(size, count))]
            self._counted(len(batch))
            pictures = np.stack([picture for picture, _ in batch])
            try:
                found = self._compute(np.resize(pictures, (size, *pictures.shape[1:])))
                for (_, answer), row in zip(batch, found, strict=False):
                    answer.set_result(row)
            except Exception as error:
                for _, answer in batch:
                    answer.set_exception(error)


class App:
    """The ASGI application over a Classifier; ``notice`` is told each request in a line.

    batch: pictures that are computed at a time, by default the config's; max_mb: of a request.
    """

    def __init__(
        self, model: Any, door: Door, batch: int | None, max_mb: int, notice: Callable[[str], None]
    ) -> None:
        # What is not installed is said before the address.
        import starlette.responses  # noqa: F401
        import uvicorn  # noqa: F401

        self._model, self._trained, self._notice = model, model.trained, notice
        self._door, self._most_bytes = door, max_mb * 10**6
        self._page = page(model_of(Plain.of(self._trained)), server="predict")
        self.counts = Counts(float, {"dnnstack_pictures_total": 0, "dnnstack_rejected_total": 0})
        pictures = self._trained.takes_pictures and self._trained.input_shape[0] in (1, 3)
        columns = self._trained.checkpoint.provenance.columns
        self._takes = "rows" if columns else "image" if pictures else "values"
        most = batch or self._trained.config.data.evaluation_batch_size
        counted = partial(self.counts.observe, "dnnstack_batch_size")
        self._batches = Batches(self._judged, most, counted)
        for size in self._batches.sizes if pictures else ():
            # Compiled once, so that no request waits for it.
            model.predict_proba(np.zeros((size, *self._trained.input_shape), np.uint8))
        self._room = threading.Semaphore(MOST_REQUESTS)
        self._threads = ThreadPoolExecutor(MOST_REQUESTS, "request")
        self._decoding = threading.Semaphore(min(_DECODERS, available_threads()))

    def _judged(self, pictures: Any) -> list[tuple[Any, float | None]]:
        """The answer to each picture, and how familiar it is, if that is measured."""
        shown, known = self._model.judged(pictures)
        return [*zip(shown, [None] * len(shown) if known is None else known, strict=True)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import Request

        request, begun = Request(scope, receive), perf_counter()
        try:
            response = await asyncio.wait_for(self._response(request), SECONDS)
        except asyncio.TimeoutError:
            response = _answer({"error": f"no answer within {SECONDS} seconds; try again"}, 503)
        await response(scope, receive, send)
        seconds, status = perf_counter() - begun, response.status_code
        self.counts[f'dnnstack_requests_total{{status="{status}"}}'] += 1
        if scope["path"] == "/predict":
            self.counts.observe("dnnstack_request_seconds", seconds)
        who, path = request.client and request.client.host, scope["path"][:80]
        self._notice(f"{who} {request.method} {path} {status} {1000 * seconds:.1f} ms")

    async def _response(self, request: Request) -> Response:
        try:
            self._check(request)
            what = f"{request.method.replace('HEAD', 'GET')} {request.scope['path']}"
            if what == "POST /predict":
                return await self._predict(request)
            if what == "GET /":
                return _answer(self._page, media="text/html")
            if what == "GET /health":
                return _answer(self._health())
            if what == "GET /metrics":
                self.counts["dnnstack_queue_depth"] = len(self._batches.waiting)
                return _answer(self.counts.text(), media="text/plain; version=0.0.4")
            raise Refused(404, "expected GET /, GET /health, GET /metrics or POST /predict")
        except Exception as error:
            return _refusal(error)

    def _check(self, request: Request) -> None:
        """Refuse what a stranger's page makes a browser send, and who has no token."""
        host = re.sub(r":\d*$", "", request.headers.get("host", "").lower())
        if self._door.hosts is not None and host not in self._door.hosts:
            raise Refused(403, "the Host header does not name an address of this machine alone")
        if self._door.token is None:
            return
        given = request.headers.get("authorization", "")
        # What browsers ask a person for, also before the page: a name, which is ignored, and this.
        if (scheme := re.match("basic +", given, re.IGNORECASE)) is not None:
            try:
                pair = base64.b64decode(given[scheme.end() :], validate=True).decode()
            except ValueError:
                pair = ""
            given = f"Bearer {pair.partition(':')[2]}"
        if not hmac.compare_digest(given.encode(), f"Bearer {self._door.token}".encode()):
            raise Refused(401, "expected the header Authorization: Bearer TOKEN")

    def _health(self) -> dict[str, Any]:
        trained, run = self._trained, run_of_checkpoint(self._trained.path)
        own = {"status": "ok", "version": version("dnnstack"), "run": run and run.name}
        what = {"takes": self._takes, "shape": trained.input_shape, "kind": trained.data.kind}
        return {**own, "checkpoint": trained.path.name, **what, "classes": trained.classes}

    async def _predict(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].lower()
        # None that a page can send to another site without being let.
        if not (kind.startswith("image/") or kind in (_JSON, "application/octet-stream")):
            raise Refused(415, f"expected Content-Type: image/png or the like, or {_JSON}")
        query = _query(request)
        if not self._room.acquire(blocking=False):
            self.counts["dnnstack_rejected_total"] += 1
            raise Refused(503, "too many requests at a time; try again")
        try:
            body = await self._body(request)
            work = self._threads.submit(self._answered, kind == _JSON, body, query)
        except BaseException:
            self._room.release()
            raise
        # At the end also of what nobody waits for any more.
        work.add_done_callback(lambda done: self._room.release())
        response, count = await asyncio.wrap_future(work)
        self.counts["dnnstack_pictures_total"] += count
        return response

    async def _body(self, request: Request) -> bytes:
        body, large = bytearray(), Refused(413, f"more than {self._most_bytes:,} bytes")
        if int(request.headers.get("content-length", "0")) > self._most_bytes:
            raise large
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._most_bytes:
                raise large
        return bytes(body)

    def _answered(self, *given: Any) -> tuple[Response, int]:
        """With the number of samples. An error ends here: a future would keep all that it holds."""
        try:
            found = self._answers(*given)
            return _answer(found), len(found) if isinstance(found, list) else 1
        except Exception as error:
            return _refusal(error), 0

    @np.errstate(all="ignore")
    def _answers(self, as_json: bool, body: bytes, query: Mapping[str, Any]) -> Any:
        """What ``predict --json`` says of an image, and of several samples a list of that."""
        parsed: tuple[str, Any] = _parsed(body) if as_json else ("image", [body])
        (key, given), top = parsed, query.get("top", 3)
        shape, how = self._trained.input_shape, Preparation(False)
        count = given.size / math.prod(shape) if key == "values" else len(given)
        if not 0 < count <= MOST_SAMPLES:
            raise Refused(413 if count else 400, f"expected 1 to {MOST_SAMPLES} samples")
        names = ["image"] if key == "image" else [f"{key[:-1]} {n + 1}" for n in range(int(count))]
        try:
            if key in ("image", "images") and self._takes == "image":
                how = preparation(self._trained, query.get("invert"), query.get("raw", False))
                with self._decoding:
                    read = partial(read_picture, shape=shape, preparation=how)
                    seen = [read(name, data=each) for name, each in zip(names, given, strict=True)]
                found = self._batches([each.image for each in seen])
            elif query.keys() - {"top"}:
                raise Refused(400, "raw and invert are for pictures")
            elif key == "rows" == self._takes:
                rows = self._model.predict_rows(given)
                found = [(row, None) for row in rows.found]
            elif key == "values":
                found = [(row, None) for row in self._model.predict_proba(given)]
                seen = [Picture(given, ())] * len(found)
            else:
                raise Refused(400, f"the network takes {self._takes} or values, not {key}")
        except DatasetError as error:
            raise Refused(400, str(error)) from None
        if not np.isfinite([row for row, _ in found]).all():
            raise Refused(400, "the answer is not finite: numbers are too large, or none")
        if key == "rows":
            return [rows.to_json(at) for at in range(len(rows))]
        asked, every = Asked(self._trained, how, top), zip(names, seen, found, strict=True)
        answers = [asked.answer(Path(name), one, *row).to_json() for name, one, row in every]
        return answers[0] if key == "image" else answers


def _query(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name == "top" and re.fullmatch("0*[1-9][0-9]{0,8}", text):
            found[name] = int(text)
        elif name in ("raw", "invert") and text in ("0", "1"):
            found[name] = text == "1"
        else:
            raise Refused(400, "expected top=3 or another number, raw=1 or invert=1 after the ?")
    return found


def _parsed(body: bytes) -> tuple[str, Any]:
    """The one key of a JSON object, with a list of files or rows, or an array of numbers."""
    try:
        ((key, given),) = json.loads(body).items()
        if key in ("image", "images"):
            texts = [given] if key == "image" else given
            return key, [base64.b64decode(text, validate=True) for text in texts]
        if key == "rows":
            return key, [{**row} for row in given]
        # Never of texts, which would be the paths of files.
        if key == "values" and (array := np.asarray(given)).dtype.kind in "uif":
            return key, array
    except (AttributeError, TypeError, ValueError, RecursionError):
        pass
    wanted = '{"image": BASE64}, {"images": [BASE64]}, {"rows": [{COLUMN: VALUE}]}'
    raise Refused(400, f'expected JSON as {wanted} or {{"values": [NUMBERS]}}')


def _refusal(error: Exception) -> Response:
    from starlette.requests import ClientDisconnect

    if isinstance(error, Refused):
        return _answer({"error": error.args[1]}, error.args[0])
    if isinstance(error, ClientDisconnect):
        return _answer({"error": "the connection was closed within the request"}, 400)
    text = told(error) or f"a fault of dnnstack: {type(error).__name__}: {error}"
    return _answer({"error": text}, 503 if isinstance(error, MemoryError) else 500)


def _answer(content: Any, status: int = 200, media: str = _JSON) -> Response:
    from starlette.responses import Response

    more = {"X-Content-Type-Options": "nosniff", **_HEADERS.get(status, {})}
    return Response(json.dumps(content) if media == _JSON else content, status, more, media)
