"""The application of ``dnnstack serve``: what it answers, refuses and counts."""

from __future__ import annotations

import asyncio
import base64
import gc
import socket
import threading
import weakref
from pathlib import Path
from typing import Any

import dnnstack
import numpy as np
import pytest
from dnnstack.common.errors import DatasetError, DnnlError
from dnnstack.common.machine import available_threads
from dnnstack.exports import serving
from dnnstack.exports.listening import Door
from dnnstack.exports.serving import Counts
from PIL import Image

from ..api.conftest import run, samples  # noqa: F401
from ..support.asked import answered, app, asked
from ..support.stored import cases
from ..support.training_fixtures import _own_cache  # noqa: F401
from ..support.unrendered import _unrendered  # noqa: F401
from ..training.test_csv_nets import table, trained  # noqa: F401


@pytest.fixture(scope="module")
def model(run):  # noqa: F811
    with dnnstack.load(run, device="numpy", threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def served(model):
    return app(model)


@pytest.fixture(scope="module")
def files(samples, tmp_path_factory):  # noqa: F811
    """Three pictures of the test set, and one dark on a light page."""
    folder = tmp_path_factory.mktemp("pictures")
    for n in range(3):
        Image.fromarray(samples[0][n, 0]).save(folder / f"{n}.png")
    page = Image.new("L", (200, 150), 240)
    page.paste(Image.fromarray(255 - samples[0][3, 0]).resize((80, 80)), (90, 40))
    page.save(folder / "page.jpg")
    return sorted(folder.iterdir())


def base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def told(model: Any, paths: Any, path: str | None = None, **how: Any) -> list[dict[str, Any]]:
    """What ``predict --json`` says, under the name that the server gives to each."""
    every = enumerate(model.predict_each(paths, **how), 1)
    return [{**each.to_json(), "path": path or f"image {n}"} for n, each in every]


@pytest.mark.parametrize(("query", "how"), cases(__file__, "queries"))
def test_a_picture_is_answered_as_predict_does(model, served, files, query, how):
    for path in files:
        given = {"content_type": "image/anything; q=1"}
        status, headers, found = asked(served, f"POST /predict{query}", path.read_bytes(), **given)
        assert (status, [found]) == (200, told(model, [path], "image", **how))
        assert headers["x-content-type-options"] == "nosniff"
    every = {"images": [base64_of(path) for path in files]}
    found = asked(served, f"POST /predict{query}", every)[2]
    alone = told(model, files, **how)
    for one, other in zip(found, alone, strict=True):
        # In a larger batch last bits may be others.
        assert one.pop("probability") == pytest.approx(other.pop("probability"), rel=1e-5)
        assert [each["label"] for each in one.pop("top")] == [
            each["label"] for each in other.pop("top")
        ]
    assert found == alone
    one = {"image": base64_of(files[0])}
    found = asked(served, f"POST /predict{query}", one)[2]
    assert [found] == told(model, files[:1], "image", **how)


def test_numbers_are_answered(model, served, samples):  # noqa: F811
    given = samples[0][:2]
    body = {"values": given[:, 0].tolist()}
    status, _, found = asked(served, "POST /predict?top=1", body)
    assert (status, [each["path"] for each in found]) == (200, ["value 1", "value 2"])
    best = model.predict_proba(given).max(1)
    assert [each["top"][0]["probability"] for each in found] == best.tolist()
    assert [each["label"] for each in found] == model.predict(given).tolist()


@pytest.mark.parametrize("kind", ["class", "yes_no"])
def test_rows_of_a_table_are_answered(table, kind, capsys):  # noqa: F811
    model = trained(kind)
    rows = [{"colour": r[2], "when": r[1], "a": r[0]} for r in table[:3]]
    net = app(model)
    status, _, found = asked(net, "POST /predict", {"rows": rows})
    expected = model.predict_rows(rows)
    assert (status, found) == (200, [expected.to_json(n) for n in range(3)])
    assert [each["row"] for each in found] == [1, 2, 3]
    assert expected.to_text(1, 1).startswith("the rows: row 2: ")
    for body, said in (
        (b"", "the network takes rows or values, not image"),
        ({"rows": [{"a": 1}]}, "column"),
        ({"rows": [{**rows[0], "a": 1e300}]}, "row 1, column 'a': 1e+300 is beyond"),
        ({"values": [["1", 0, 0, 1]]}, "expected JSON as"),
        ({"rows": rows}, "raw and invert are for pictures"),
    ):
        what = "POST /predict" + "?raw=1" * said.startswith("raw")
        status, _, found = asked(net, what, body)
        assert status == 400
        assert said in found["error"]
    # A sigmoid of what is infinite is not.
    for number, status in ((5.0, 200), (1e300, 400 if kind == "class" else 200)):
        body = {"values": [[number, 1.7e9, 0, 1]]}
        assert asked(net, "POST /predict", body)[0] == status


@pytest.mark.parametrize(("what", "headers", "body", "status", "said"), cases(__file__, "refused"))
def test_what_is_refused(served, what, headers, body, status, said):
    found = asked(served, what, body.encode("latin-1"), **headers)
    assert found[0] == status
    assert list(found[2]) == ["error"]
    assert said in found[2]["error"]
    assert "\n" not in found[2]["error"]


def test_sizes_are_limited(served, model, files):
    picture, most = base64_of(files[0]), serving.MOST_SAMPLES
    for count, status in ((most, 200), (most + 1, 413)):
        body = {"images": [picture] * count}
        assert asked(served, "POST /predict", body)[0] == status
        body = {"values": [[0] * 784] * count}
        assert asked(served, "POST /predict", body)[0] == status
    small, mega = app(model, max_mb=1), b"x" * 10**6
    for body, status in (([mega], 400), ([mega, b"x"], 413)):
        assert asked(small, "POST /predict", body)[0] == status
    # What says its length is refused at once.
    for length, status in (("1000000", 503), ("1000001", 413)):
        headers = {"content_length": length}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(serving, "SECONDS", 0.05)
            assert asked(small, "POST /predict", None, **headers)[0] == status


def test_a_token_is_asked_for(model, files):
    own = app(model, token="0123456789abcdef")
    for given, status in cases(__file__, "tokens"):
        headers = {} if given is None else {"authorization": given}
        for what in ("GET /", "GET /health", "GET /metrics", "POST /predict"):
            body = files[0].read_bytes() if "POST" in what else b""
            found = asked(own, what, body, **headers)
            assert found[0] == status, (given, what)
            assert ("www-authenticate" in found[1]) == (status == 401)


@pytest.mark.parametrize(("host", "status"), cases(__file__, "hosts"))
def test_other_names_of_the_host_are_refused(served, host, status):
    assert asked(served, "GET /health", host=host)[0] == status
    served._door.hosts, hosts = None, served._door.hosts
    assert asked(served, "GET /health", host=host)[0] == 200
    served._door.hosts = hosts


def test_doors(monkeypatch):
    def found(host: str, port: int, **how: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    # Looking a name up is not for tests.
    monkeypatch.setattr(socket, "getaddrinfo", found)
    for host, open_to_all in (("127.0.0.1", False), ("127.0.0.2", False), ("0.0.0.0", True)):
        for token in (None, "0123456789abcdef"):
            door = Door(host, 0, token)
            port = door.socket.getsockname()[1]
            assert door.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            door.socket.close()
            assert (door.hosts is None) == open_to_all
            assert bool(door.drawn) == (open_to_all and token is None)
            assert door.token == (token or door.drawn or None)
            assert door.url == f"http://{host}:{port}"
            assert len(door.drawn) in (0, 32)
            assert open_to_all or {host, "localhost", "[::1]"} <= door.hosts


def test_health_and_page(served, run, model):  # noqa: F811
    status, _, found = asked(served, "GET /health")
    assert (status, found["status"], found["takes"], found["kind"]) == (200, "ok", "image", "class")
    assert (found["run"], found["checkpoint"]) == (run.name, model.checkpoint.name)
    assert (found["shape"], found["classes"]) == ([1, 28, 28], model.classes_.tolist())
    assert found["version"] == dnnstack.__version__
    assert served._decoding._value == min(8, available_threads())
    status, headers, page = asked(served, "GET /")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<canvas" in page
    # It needs nothing from elsewhere.
    assert "//" not in page
    assert asked(served, "HEAD /health")[0] == 200


def test_what_is_counted(model, files):
    own = app(model, batch=4)
    picture = files[0].read_bytes()
    asked(own, "POST /predict", picture)
    body = {"images": [base64_of(path) for path in files[:3]]}
    asked(own, "POST /predict", body)
    asked(own, "POST /predict", b"no picture")
    asked(own, "GET /none")
    while own._room.acquire(blocking=False):
        pass
    asked(own, "POST /predict", picture)
    text = asked(own, "GET /metrics")[2]
    found = dict(line.rsplit(" ", 1) for line in text.splitlines())
    names = [name.partition("{")[0] for name in found]
    assert names == sorted(names)
    for name, value in cases(__file__, "counted"):
        assert float(found[f"dnnstack_{name}"]) == value, name
    said = own.said
    assert len(said) == 6
    assert [line.split()[:4] for line in said[:1]] == [["127.0.0.1", "POST", "/predict", "200"]]


def test_a_histogram_counts_what_is_at_most_its_bound():
    counts = Counts(float)
    for value in (0.001, 0.0011, 400):
        counts.observe("s", value)
    lines = counts.text().splitlines()
    assert lines[:2] == ['s_bucket{le="0.001"} 1', 's_bucket{le="0.003"} 2']
    assert lines[11:] == ['s_bucket{le="300"} 2', 's_bucket{le="+Inf"} 3', "s_count 3",
                          "s_sum 400.0021"]  # fmt: skip


def test_a_late_request_is_told_so_and_counts_until_its_work_ends(model, files, monkeypatch):
    monkeypatch.setattr(serving, "MOST_REQUESTS", 1)
    monkeypatch.setattr(serving, "SECONDS", 0.05)
    own, go_on = app(model), threading.Event()
    assert "no answer" in asked(own, "POST /predict", [b"x", None])[2]["error"]
    monkeypatch.setattr(own._batches, "_compute", lambda each: go_on.wait(60) and np.ones((1, 10)))
    picture = files[0].read_bytes()
    for wanted in ("no answer within 0.05 seconds; try again", "too many requests at a time"):
        status, headers, found = asked(own, "POST /predict", picture)
        assert (status, headers["retry-after"]) == (503, "1")
        assert wanted in found["error"]
    go_on.set()
    assert own._room.acquire(timeout=60)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (DnnlError("oneDNN", "f", "failed"), 500, "oneDNN: f() failed"),
        (MemoryError(), 503, "out of memory"),
        (KeyError("a\nb"), 500, "a fault of dnnstack: KeyError: 'a\\nb'"),
    ],
)
def test_a_fault_is_one_line(served, files, monkeypatch, error, status, said):
    def fail(pictures: Any) -> Any:
        raise error

    monkeypatch.setattr(served._batches, "_compute", fail)
    found = asked(served, "POST /predict", files[0].read_bytes())
    assert found[0] == status
    assert found[2]["error"].startswith(said)


def test_requests_at_once_are_computed_together(model, files, monkeypatch):
    """Those that wait meanwhile; each gets its own answer."""
    own, begun, go_on = app(model, batch=16), threading.Event(), threading.Event()
    compute, sizes = own._batches._compute, []

    def slow(pictures: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        sizes.append(len(pictures))
        return compute(pictures)

    monkeypatch.setattr(own._batches, "_compute", slow)
    expected = told(model, files, "image", top=1)

    def task(n: int) -> Any:
        body = files[n % 4].read_bytes()
        return asyncio.ensure_future(answered(own, "POST /predict", body))

    async def ask() -> list[Any]:
        tasks = [task(0)]
        while not begun.is_set():
            await asyncio.sleep(0.01)
        tasks += map(task, range(1, 40))
        while len(own._batches.waiting) < 39:
            await asyncio.sleep(0.01)
        go_on.set()
        return await asyncio.gather(*tasks)

    for n, (status, _, found) in enumerate(asyncio.run(ask())):
        assert (status, found["label"]) == (200, expected[n % 4]["label"])
        assert found["probability"] == pytest.approx(expected[n % 4]["probability"], rel=1e-5)
    assert sizes == [1, 16, 16, 4, 4]


def test_a_large_picture_is_refused(served, tmp_path):
    Image.new("1", (8001, 8000)).save(tmp_path / "bomb.png")
    body = (tmp_path / "bomb.png").read_bytes()
    status, _, found = asked(served, "POST /predict", body)
    assert status == 400
    assert "limit of 64 million" in found["error"]


def test_what_was_refused_is_freed_at_once(served, monkeypatch):
    seen = []

    def refuse(*given: Any, **how: Any) -> Any:
        large = np.zeros(9)
        seen.append(weakref.ref(large))
        raise DatasetError("no")

    monkeypatch.setattr(serving, "read_picture", refuse)
    gc.disable()
    try:
        assert asked(served, "POST /predict", b"x")[0] == 400
        assert seen[0]() is None
    finally:
        gc.enable()
