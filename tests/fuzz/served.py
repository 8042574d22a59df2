"""Requests to ``dnnstack serve``: for a network of pictures, and one of the rows of a table."""

from __future__ import annotations

import base64
import io
import json
import tempfile
from functools import cache, partial
from pathlib import Path

import dnnstack
from dnnstack.common.errors import DnnstackError
from dnnstack.exports.serving import App
from hypothesis import strategies as st
from PIL import Image

from ..support.asked import PICTURE, app, asked
from .drawing import changed, encoded, wrong_json
from .harness import MEGABYTE, Target

_NET = """layers: [flatten, dense: {{units: {units}}}]
loss: cross_entropy
optimizer: {{type: sgd, lr: 0.1}}
schedule: fixed
train: {{max_steps: 2}}
"""
_DATA = "data: {{dataset: {{{dataset}}}, batch_size: 4, validation: 4}}\n"
_SETS = {
    "picture": ("strokes: {train_count: 20, test_count: 20}", 10),
    "rows": ("csv: {train: t.csv, test: t.csv, targets: k}", 3),
}
_ROW = {"a": 1.5, "b": "r"}


@cache
def _served(kind: str) -> App:
    dataset, units = _SETS[kind]
    rows = ["a,b,k", *(f"{n},{'rb'[n % 2]},{'xyz'[n % 3]}" for n in range(24))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.csv").write_text("\n".join(rows))
        config = _NET.format(units=units) + _DATA.format(dataset=dataset)
        (folder / "net.yaml").write_text(config.replace("t.csv", str(folder / "t.csv")))
        done = dnnstack.train(folder / "net.yaml", device="numpy", runs_dir=folder / "runs")
        found = app(dnnstack.load(done.run, device="numpy"))
    # What is loaded and started with the first requests is no cost of an input.
    for seed in _seeds(kind) * 20:
        target, body, media = _request(seed)
        asked(found, target, body, content_type=media)
    return found


@cache
def _seeds(kind: str) -> list[bytes]:
    if kind == "rows":
        every = [{"rows": [_ROW, {**_ROW, "b": "b"}]}, {"values": [[1, 0, 1]]}]
        return [b"top=1\n" + json.dumps(each).encode() for each in every]
    file = io.BytesIO()
    Image.new("L", (40, 28), 200).save(file, "PNG")
    text = base64.b64encode(file.getvalue()).decode()
    every = [{"image": text}, {"images": [text] * 2}, {"values": [[[0] * 28] * 28]}]
    return [b"raw=1\n" + file.getvalue(), *(b"\n" + json.dumps(each).encode() for each in every)]


def _sound(kind: str) -> list[bytes]:
    _served(kind)
    return _seeds(kind)


def _request(data: bytes) -> tuple[str, bytes, str]:
    query, _, body = data.partition(b"\n")
    media = "application/json" if body[:1] in (b"{", b"[") else PICTURE
    return f"POST /predict?{query.decode('latin-1')}", body, media


@st.composite
def _inputs(draw: st.DrawFn, kind: str) -> bytes:
    seeds = _sound(kind)
    if draw(st.booleans()):
        return draw(changed(lambda: seeds))
    table = json.loads(
        draw(st.sampled_from(seeds[1 if kind == "picture" else 0 :])).split(b"\n")[1]
    )
    return b"\n" + draw(encoded(wrong_json(table)))


def _read(kind: str, data: bytes) -> None:
    target, body, media = _request(data)
    status, _, found = asked(_served(kind), target, body, content_type=media)
    assert status in (200, 400, 413), found
    if status != 200:
        assert "\n" not in found["error"]
        raise DnnstackError(found["error"])


def _target(kind: str) -> Target:
    # A thread takes much of the address space.
    how = {"inputs": _inputs(kind), "seeds": partial(_sound, kind), "memory": 2048 * MEGABYTE}
    return Target(f"request-{kind}", lambda data, folder: _read(kind, data), **how)


SERVED = (_target("picture"), _target("rows"))
