"""The page computes as its twin in NumPy, prepares pictures as ``predict``, and tells answers."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.select import open_backend
from dnnstack.datasets.digit_pictures import prepare_digit
from dnnstack.datasets.pictures import in_channels, scaled
from dnnstack.exports.door import Samples, export
from dnnstack.exports.html_file import Html, model_of, page, read_page, run
from dnnstack.exports.plain import Plain
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.predict import predict
from dnnstack.training.inference.trained import Trained
from PIL import Image, ImageDraw, ImageFilter

from ..support.page_code import BROWSER, NODE, Tab, answered_by_node, browser, by_node
from ..support.untrained import untrained

needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
END = "flatten, {dense: {units: 4}}, softmax"
DIGITS = (
    "[{conv2d: {filters: 4, kernel_size: 5}}, relu, {max_pool2d: {pool_size: 2}}, "
    "flatten, {dense: {units: 10}}, softmax]"
)


def _digits(layers: str = DIGITS) -> Trained:
    net = untrained(layers)
    origin = replace(net.checkpoint.provenance, classes=tuple("0123456789"))
    return Trained.of(replace(net.checkpoint, provenance=origin))


def _written(net: Trained, path: Path, **options: Any) -> Path:
    """A page whose answers were found to be those of ``predict``."""
    forward = Forward(net, open_backend("numpy", 1))
    export(net, forward, Html(**options), path, lambda: Samples.drawn(net))
    return path


@needs_node
@pytest.mark.parametrize("weights", ["fp16", "fp32"])
def test_weights_are_read_as_they_were_rounded(tmp_path, weights):
    net = _digits()
    filters = net.checkpoint.arrays["conv2d_1.weight"]
    filters[0], filters[1, 0, 0, :2], filters[3, 0, 0, 0] = 0.0, (3e-7, -3e-7), 60.0
    path = tmp_path / "a.html"
    export(net, Forward(net, open_backend("numpy", 1)), Html(weights=weights), path, None)
    read = read_page(path.read_text("utf-8"))[1]
    for name, array in net.checkpoint.arrays.items():
        rounded = array if weights == "fp32" or array.ndim == 1 else array.astype(np.float16)
        np.testing.assert_array_equal(read[name], rounded)
    raw = Samples.drawn(net).stored[:4]
    wanted = run(*read_page(path.read_text("utf-8")), raw)
    np.testing.assert_allclose(answered_by_node([(path, raw)])[0], wanted, rtol=1e-5, atol=1e-5)


def test_half_precision_ends_at_its_largest_number(tmp_path):
    net = _digits()
    net.checkpoint.arrays["dense_1.weight"][0, :2] = 1e6, -1e6
    export(net, Forward(net, open_backend("numpy", 1)), Html(), tmp_path / "a.html", None)
    read = read_page((tmp_path / "a.html").read_text())[1]["dense_1.weight"]
    assert read[0, :2].tolist() == [65504, -65504]


# ---------------------------------------------------------------- pictures, by Node.js


def _by_code(path: Path, given: list[Any], ask: str) -> list[Any]:
    return by_node([{"page": str(path), "given": each, "ask": ask} for each in given])


@pytest.fixture(scope="module")
def digits_page(tmp_path_factory):
    return _written(_digits(), tmp_path_factory.mktemp("digits") / "digits.html")


@needs_node
def test_pictures_are_scaled_as_pillow_scales_them(digits_page):
    rng = np.random.default_rng(0)
    given, wanted = [], []
    for size, (height, width), channels, whole in [
        ((640, 431), (32, 32), 3, False),
        ((43, 64), (28, 28), 1, False),
        ((20, 17), (32, 40), 3, False),
        ((33, 32), (32, 32), 1, True),
        ((32, 32), (32, 32), 3, True),
        ((64, 64), (32, 32), 1, False),
        ((50, 101), (60, 7), 1, True),
        ((90, 101), (60, 60), 1, True),
    ]:
        pixels = rng.integers(0, 256, (size[1], size[0], 3), np.uint8)
        image = in_channels(Image.fromarray(pixels), channels, [])
        if whole and size[1] - height > 2 * max(size[0] - width, 0):
            # Pillow before 13 has another order.
            image = image.resize((image.width, height), Image.Resampling.BICUBIC)
        wanted.append(scaled(image, height, width, whole, []))
        rgba = np.dstack([pixels, np.full(size[::-1], 255)])
        given.append([*size, rgba.ravel().tolist(), width, height, channels, whole])
    ask = """const [width, height, data, w, h, channels, whole] = given;
    const found = planes({ width, height, data }, channels);
    return found.map((each) => fitted(each, w, h, whole).data);"""
    for found, planes in zip(_by_code(digits_page, given, ask), wanted, strict=True):
        np.testing.assert_array_equal(np.reshape(found, planes.shape), planes)


def _page_of(size: tuple[int, int], width: float, paper: int, ink: int) -> Image.Image:
    """A five with a bar that the border cuts off, a speck, and a dot that is none."""
    picture = Image.new("L", size, paper)
    points = [(0.7, 0.1), (0.3, 0.1), (0.3, 0.4), (0.6, 0.4), (0.65, 0.55), (0.3, 0.7)]
    side = min(size)
    draw = ImageDraw.Draw(picture)
    draw.line([(side * x, side * y) for x, y in points], ink, int(side * width), "curve")
    draw.rectangle((0, side * 0.9, side * 0.3, side), ink)
    draw.rectangle((side * 0.85, side * 0.5, side * 0.855, side * 0.505), ink)
    draw.rectangle((side * 0.8, side * 0.7, side * 0.88, side * 0.78), ink)
    return picture


DIGIT = """const [w, h, data] = given;
try { return digit({ w, h, data: Uint8ClampedArray.from(data) }).data; }
catch (error) { return error.message; }"""


@needs_node
def test_a_digit_is_prepared_as_predict_prepares_it(digits_page):
    faint = _page_of((200, 200), 0.06, 255, 0)
    ImageDraw.Draw(faint).rectangle((150, 30, 190, 60), 175)
    pictures = [
        _page_of((280, 280), 0.07, 255, 0),
        _page_of((300, 200), 0.015, 0, 255),
        _page_of((61, 90), 0.12, 230, 40),
        _page_of((38, 38), 0.1, 40, 250),
        _page_of((840, 300), 0.03, 255, 90),
        _page_of((280, 280), 0.02, 255, 0).filter(ImageFilter.GaussianBlur(2)),
        faint,
        Image.fromarray(np.pad(np.full((8, 3), 9, np.uint8), ((10, 10), (10, 15)))),
    ]
    arrays = [np.asarray(each) for each in pictures]
    given = [[*each.shape[::-1], each.ravel().tolist()] for each in arrays]
    found = _by_code(digits_page, given, DIGIT)
    # It has MNIST's form already.
    assert found.pop() == arrays.pop().ravel().tolist()
    for page_found, grey in zip(found, arrays, strict=True):
        wanted = prepare_digit(grey, "it", []).astype(int)
        assert np.abs(np.reshape(page_found, (28, 28)) - wanted).max() <= 2


@needs_node
def test_what_is_for_predict_is_refused(digits_page):
    shaded = np.linspace(60, 250, 100 * 100).reshape(100, 100).astype(int)
    given = [[100, 100, each.ravel().tolist()] for each in (shaded, np.full((100, 100), 90))]
    uneven, blank = _by_code(digits_page, given, DIGIT)
    assert "not of one brightness" in uneven
    assert "dnnstack serve" in uneven
    assert "No digit is found" in blank


# ---------------------------------------------------------------- the page, in a browser

SHOWN = "[...document.querySelectorAll('#bars li')].map((e) => e.lastChild.textContent)"
ANSWERED = "!document.querySelector('#bars').classList.contains('blank')"


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def _predicted(net: Trained, picture: Path) -> list[float]:
    (found,) = predict(Forward(net, open_backend("numpy", 1)), [picture], 99)
    return list(found.probabilities)  # type: ignore[union-attr]


def _shown(tab: Tab) -> list[float]:
    tab.until(ANSWERED)
    assert tab.value("$('note').textContent") == ""
    return [float(text.rstrip("%")) / 100 for text in tab.value(SHOWN)]


FIVE = [(0.7, 0.15), (0.35, 0.15), (0.33, 0.45), (0.5, 0.42), (0.65, 0.5), (0.55, 0.8), (0.3, 0.78)]


@needs_browser
def test_a_drawn_digit_is_answered_as_predict_answers_its_picture(tab, digits_page, tmp_path):
    tab.requests.clear()
    tab.open(digits_page)
    assert tab.value(ANSWERED) is False
    hidden = tab.value("['photo', 'paper', 'form'].map((id) => $(id).hidden)")
    assert hidden == [True, False, True]
    tab.draw("pad", FIVE[:4], FIVE[3:])
    tab.value("repeat()")
    data = tab.value("pad.toDataURL()")
    picture = tmp_path / "five.png"
    picture.write_bytes(base64.b64decode(data.split(",")[1]))
    np.testing.assert_allclose(_shown(tab), _predicted(_digits(), picture), atol=2e-2)
    shown = tab.value("[...$('maps').querySelectorAll('figcaption')].map((e) => e.textContent)")
    wide = "4 × 24 × 24"
    layers = f"conv2d_1: {wide}", f"relu_1: {wide}", "max_pool2d_1: 4 × 12 × 12", "dense_1: 10"
    assert shown == [*layers]
    assert tab.value("$('best').textContent") == tab.value(
        "$('bars').querySelector('.best span').textContent"
    )
    tab.value("$('clear').click()")
    assert tab.value(ANSWERED) is False
    assert tab.requests == [digits_page.as_uri()]


@needs_browser
def test_pictures_are_answered_as_predict_answers_them(tab, tmp_path):
    net = untrained(f"[{{conv2d: {{filters: 3, kernel_size: 3}}}}, relu, {END}]", (3, 12, 16), 4)
    tab.open(_written(net, tmp_path / "colours.html"))
    rng = np.random.default_rng(3)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 4), np.uint8), "RGBA")
    large = coarse.resize((300, 200), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "a.png": (large, {}),
        "b.jpg": (large.convert("RGB"), {"exif": exif, "quality": 95}),
        "c.webp": (large.convert("RGB"), {"lossless": True}),
        "d.gif": (large.convert("L").convert("P"), {}),
        "e.png": (coarse.convert("L"), {}),
    }
    assert tab.value("[$('photo').hidden, $('paper').hidden]") == [False, True]
    for name, (image, how) in kinds.items():
        image.save(tmp_path / name, **how)
        tab.value("clear()")
        tab.choose(tmp_path / name)
        np.testing.assert_allclose(_shown(tab), _predicted(net, tmp_path / name), atol=5e-3)
    Path(tmp_path, "none.png").write_text("no picture")
    tab.choose(tmp_path / "none.png")
    tab.until("$('note').textContent")
    assert tab.value("$('note').textContent") == "none.png: is no picture that this browser reads."
    assert tab.value(ANSWERED) is False


WRITE = "$('numbers').value = '%s'; $('numbers').dispatchEvent(new Event('input'))"


@needs_browser
def test_a_sequence_is_given_as_numbers(tab, tmp_path):
    net = untrained(
        f"[{{conv1d: {{filters: 2, kernel_size: 3}}}}, {END}]", (1, 1, 9), 4, floats=True
    )
    tab.open(_written(net, tmp_path / "series.html", weights="fp32"))
    tab.value(WRITE % "1 2, x")
    assert tab.value("$('note').textContent") == "9 numbers are needed; here are 2."
    values = np.linspace(-1, 2, 9).astype(np.float32)
    tab.value(WRITE % ", ".join(map(str, values.tolist())))
    (wanted,) = Forward(net, open_backend("numpy", 1))(
        net.checkpoint.provenance.preprocessing(values.reshape(1, 1, 1, 9))
    )
    np.testing.assert_allclose(_shown(tab), wanted, atol=1e-3)


@contextmanager
def _serving(text: str, answer: Any) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """The address of a server of this page and answer, and what it was asked."""
    asked: list[tuple[str, str, bytes]] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, "text/html", text.encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Content-Type"], body))
            self.reply(400 if "error" in answer else 200, "text/json", json.dumps(answer).encode())

        def reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()


def _ranked(values: list[float], **more: str) -> dict[str, Any]:
    top = [{"label": str(k), "probability": value} for k, value in enumerate(values)]
    return {"top": top[::-1], **more}


def _numbers(kind: Any, loss: str) -> Trained:
    return untrained("[{dense: {units: 2}}]", (3, 1, 1), 2, kind=kind, loss=loss, floats=True)


@needs_browser
@pytest.mark.parametrize(
    ("kind", "answer", "shown", "note"),
    [
        (
            "class",
            _ranked([0.0, *[0.5] * 9]),
            ["0.0%", *["50.0%"] * 9],
            "",
        ),
        ("class", _ranked([0.1] * 10, doubt="is none"), ["10.0%"] * 10, "Not sure: is none."),
        ("class", {"error": "is damaged"}, None, "is damaged"),
        ("numbers", [{"numbers": {"c1": 2.5, "c0": -1}}], ["-1", "2.5"], ""),
        (
            "yes_no",
            [{"answers": [{"label": f"c{k}", "probability": 0.25 + k / 2} for k in (1, 0)]}],
            ["no 25.0%", "yes 75.0%"],
            "",
        ),
    ],
)
def test_a_served_page_asks_the_server(tab, tmp_path, kind, answer, shown, note):
    losses = {"numbers": "mse", "yes_no": "binary_cross_entropy"}
    net = _numbers(kind, losses[kind]) if kind in losses else _digits()
    Image.linear_gradient("L").save(picture := tmp_path / "shaded.png")
    with _serving(page(model_of(Plain.of(net)), server="predict"), answer) as (address, asked):
        tab.go(address)
        if kind == "class":
            assert tab.value("[$('photo').hidden, $('paper').hidden]") == [False, True]
            tab.choose(picture)
        else:
            tab.value(WRITE % "1 2,3")
        tab.until(f"{ANSWERED} || $('note').textContent")
        assert tab.value("$('note').textContent") == note
        assert not shown or tab.value(SHOWN) == shown
        assert tab.value(ANSWERED) is bool(shown)
    path, given, body = asked[-1]
    wanted = {"class": ("/predict?top=10", "image/png", picture.read_bytes())}
    body = body if kind == "class" else json.loads(body)
    numbers = ("/predict?top=2", "application/json", {"values": [1, 2, 3]})
    assert (path, given, body) == wanted.get(kind, numbers)


@pytest.mark.skipif(
    os.environ.get("DNNSTACK_EXPECT_BROWSER") != "1",
    reason="DNNSTACK_EXPECT_BROWSER=1 is not set: tests of pages may be skipped",
)
def test_node_and_a_browser_are_there():
    assert NODE
    assert BROWSER
