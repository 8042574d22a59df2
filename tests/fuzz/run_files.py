"""Files of runs: checkpoints with a right digest, manifests, tuning, logs, metrics, locks."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from dnnstack.backends.cuda.libraries import kept as cache_files
from dnnstack.backends.cuda.libraries.conv_plans import ConvSpec
from dnnstack.backends.cuda.libraries.operand import Operand
from dnnstack.backends.cuda.libraries.plan_files import FOLDER as PLANS
from dnnstack.backends.cuda.libraries.plan_files import PlanFiles
from dnnstack.backends.tuning import Tuning
from dnnstack.backends.tuning_cache import _path, cached, kept, store
from dnnstack.common.errors import LockedError
from dnnstack.common.locks import is_locked, lock
from dnnstack.configs import effective_yaml, parse_config
from dnnstack.datasets.identity import compare, identify
from dnnstack.graph.geometry import Window
from dnnstack.reports import plots
from dnnstack.reports.runs_report import as_text, report_runs
from dnnstack.training.inference.trained import Trained
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.formats.checkpoint import (
    _digest_place,
    _own_digest,
    encode,
    manifest_text,
    read_checkpoint,
)
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.formats.run_log import CSV, HEADERS, LOG, cut_log
from dnnstack.training.records.formats.samples import SAMPLES, read_samples, write_samples
from dnnstack.training.records.formats.state import Best, State
from dnnstack.training.records.formats.store import best_checkpoint, checkpoint_steps
from hypothesis import strategies as st
from safetensors.numpy import save

from .configs import drawn_config, packaged_texts
from .drawing import changed, encoded, lines, wrong_json
from .harness import LONGEST, MEGABYTE, Target

_CONFIG = """
name: x
data: {dataset: strokes}
layers: [flatten, {dense: {units: 10}}]
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


@cache
def _arrays() -> dict[str, np.ndarray]:
    return {
        "dense_1.weight": np.ones((10, 784), np.float32),
        "dense_1.bias": np.zeros(10, np.float32),
    }


def provenance() -> Provenance:
    """That of a dense layer on digits."""
    return Provenance(
        steps_per_epoch=10,
        config=effective_yaml(parse_config(_CONFIG, "x.yaml")),
        dataset="strokes",
        input_shape=(1, 28, 28),
        classes=tuple("0123456789"),
        preprocessing=Preprocessing((1 / 255,), (-0.1,)),
        tuning=Tuning("numpy", {"threads": "1"}, "graph", {"conv2d_1": "nhwc"}),
        versions={"numpy": "2"},
        overrides=("train.epochs=2",),
        samples="5" * 64,
    )


@cache
def _written() -> bytes:
    state = State(
        step=3, window_start=2, sums=(0.5, 2.0, 64.0), best=Best(3, 0.5, 0.1, by="f1", value=0.5)
    )
    return b"".join(encode(_arrays(), state, provenance()))


def _header(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


@cache
def _table() -> dict[str, Any]:
    header, _ = _header(_written())
    found = json.loads(header["__metadata__"]["dnnstack"])
    assert isinstance(found, dict)
    del found["sha256"]
    return found


def _sealed(text: str, arrays: Mapping[str, Any]) -> bytes:
    """A file whose metadata are this text, with a place for the digest."""
    begin = text[:-1] if text.endswith("}") and len(text) > 2 else "{"
    with_digest = f'{begin},"sha256":"{"0" * 64}"}}'
    return save(dict(arrays), {"dnnstack": with_digest})


def _resealed(data: bytes) -> bytes:
    """The same file with the digest that belongs to it."""
    at = _digest_place(data)
    if at is None:
        return data
    return data[:at] + _own_digest(memoryview(data), at).encode() + data[at + 64 :]


@st.composite
def _checkpoints(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(changed(_checkpoint_seeds))
    if kind == 1:
        # The header of safetensors itself: shapes, types, offsets.
        header, rest = _header(_written())
        text = draw(encoded(wrong_json(header)))
        return struct.pack("<Q", len(text)) + text + rest
    arrays: dict[str, Any] = dict(_arrays())
    if kind == 2:
        arrays = {}
        types = st.sampled_from((np.float32, np.float64, np.int8, np.bool_))
        shapes = st.sampled_from(((10, 784), (10,), (), (0,), (784, 10), (1, 2, 3)))
        names = st.sampled_from(("dense_1.weight", "dense_1.bias", "a/b", "ema/dense_1.bias", ""))
        for _ in range(draw(st.integers(0, 3))):
            value = draw(st.sampled_from((0, 1, np.nan, np.inf)))
            with np.errstate(invalid="ignore"):
                filled = np.full(draw(shapes), value).astype(draw(types))
            arrays[draw(names)] = filled
    if kind == 4:
        config = draw(st.sampled_from(packaged_texts()) | drawn_config())
        shape = draw(st.sampled_from(((1, 28, 28), (3, 32, 32), (1, 1, 1), (3, 1, 2**20))))
        whole = {**_table(), "config": config, "input_shape": shape}
        return _sealed(json.dumps(whole, separators=(",", ":")), arrays)
    text = draw(wrong_json(_table()).filter(lambda text: text.isascii() or "\ud800" not in text))
    return _sealed(text, arrays)


@cache
def _checkpoint_seeds() -> list[bytes]:
    small = {"dense_1.bias": np.zeros(10, np.float32)}
    return [_written(), _sealed(json.dumps(_table(), separators=(",", ":")), small)]


def _read_checkpoint(data: bytes, folder: Path) -> None:
    path = folder / "x.safetensors"
    path.write_bytes(_resealed(data))
    trained = Trained.of(read_checkpoint(path))
    shapes = {tensor.name: tensor.shape for tensor in trained.network.learned()}
    trained.checkpoint.parameters(shapes)


@cache
def _manifest() -> bytes:
    return manifest_text(3, Path("step-3.safetensors"), [_written()])


def _read_manifest(data: bytes, folder: Path) -> None:
    (folder / "step-3.safetensors").write_bytes(_written())
    (folder / "step-3.json").write_bytes(data)
    assert checkpoint_steps(folder) == [3]
    assert best_checkpoint(folder).state.step == 3


_PRESENT = kept(Tuning("numpy", {"threads": "1"}, "graph", {"conv2d_1": "nhwc"}), disturbed=1)


@cache
def _tuning() -> bytes:
    return json.dumps(_PRESENT.to_json()).encode()


def _read_tuning(data: bytes, folder: Path) -> None:
    store(_PRESENT)
    _path(_PRESENT, False).write_bytes(data)
    found = cached(_PRESENT)
    assert found is None or not found.misfit(_PRESENT)
    assert all(isinstance(each, str) for each in (found or _PRESENT).choices.values())


_FACTS = {"plan": 3, "name": "eng4_k2=1", "workspace": 512, "ids": {"x": 1}, "verified": True}
_PLAN = json.dumps(_FACTS).encode() + b"\n" + bytes(range(64))


def _read_plan(data: bytes, folder: Path) -> None:
    files, operand = PlanFiles(("a device",)), Operand((1, 1, 1, 1), (1, 1, 1, 1), "float32")
    spec = ConvSpec("forward", (("x", operand),), Window((1, 1)))
    key = files._key(spec, None)
    for write in (_write_sealed, _write_bare):
        write(key, data)
        # What is read is given to cuDNN, which is not there.
        assert files.restored(1, spec, None) is None


def _write_sealed(key: bytes, data: bytes) -> None:
    cache_files.write(PLANS, key, data)
    assert cache_files.read(PLANS, key) == data


def _write_bare(key: bytes, data: bytes) -> None:
    cache_files._path(PLANS, key).write_bytes(data)
    assert cache_files.read(PLANS, key) is None


_EVENTS: tuple[dict[str, Any], ...] = (
    {"event": "start", "step": 0, "time": 1.0, "backend": "numpy", "total_steps": 20},
    {"event": "train", "step": 4, "epoch": 0.5, "loss": 0.1, "accuracy": 0.5, "seconds": 1.5},
    {"event": "validation", "step": 10, "accuracy": 0.75, "f1": 0.5, "best": True, "seconds": 0.5},
    {"event": "checkpoint", "step": 10, "file": "step-10.safetensors"},
    {"event": "rollback", "step": 4, "rollback": 1, "bad_step": 9, "layer": None},
    {"event": "end", "step": 20, "state": "finished", "training_seconds": 3.0, "error": "x"},
)
_SOUND_LOG = [json.dumps(event) for event in _EVENTS]


def _read_log(data: bytes, folder: Path) -> None:
    run = folder / "runs" / "x"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("name: x\n")
    (run / LOG).write_bytes(data)
    for _ in range(2):
        told: list[str] = []
        reports = report_runs(folder / "runs", told.append)
        # One of which no line can be read is left out, and that is said.
        assert [each.run for each in reports] == ([] if told else ["x"])
        assert all("no line that can be read" in text for text in told)
        assert max(map(len, as_text(reports).splitlines())) <= 80
        json.dumps([each.to_json() for each in reports], allow_nan=False)
        cut_log(run, 10, 8)
    before = (run / LOG).read_bytes()
    cut_log(run, 10, 8)
    assert (run / LOG).read_bytes() == before


_ROWS = ["4,0.5,train,0.1,0.75,0.01", "10,1.0,validation,0.2,0.5,0.01", "8,1,train,inf,1,0"]
_CELLS = ("4", "0.5", "train", "validation", "nan", "-1", "9" * 4400, "1e400", "", "x" * 5000)


@st.composite
def _row(draw: st.DrawFn) -> str:
    cells = (*_CELLS, '"', '"a\n', "\0", "=1", "1_0", "\ud7ff", "\r")
    return ",".join(draw(st.lists(st.sampled_from(cells), max_size=8)))


def _read_metrics(data: bytes, folder: Path) -> None:
    path = folder / CSV
    path.write_bytes(data)
    told: list[str] = []
    draw, plots.drawn = plots.drawn, lambda figure, form: b""
    try:
        plots.draw_curves(folder, told.append)
        cut_log(folder, 10, 8)
        before = path.read_bytes()
        cut_log(folder, 10, 8)
        assert path.read_bytes() == before
        plots.draw_curves(folder, told.append)
    finally:
        plots.drawn = draw
    assert all(len(text) <= LONGEST for text in told), [text[:200] for text in told]


def _read_lock(data: bytes, folder: Path) -> None:
    path = folder / "lock"
    path.write_bytes(data)
    held = None
    with suppress(OSError, LockedError):
        held = lock(path)
    assert is_locked(path) == (held is not None)
    if held is None:
        assert path.read_bytes() == data
    else:
        held.release()


_SAMPLES: dict[str, Any] = {
    "digest": "0" * 64,
    "classes": ["cat", "dog"],
    "parts": "tv",
    "labels": [0, 1],
    "names": ["cat/1.png", "dog/1.png"],
    "contents": ["a" * 32, "b" * 32],
    "earlier": ["c" * 32],
}


@cache
def _packed() -> bytes:
    return gzip.compress(json.dumps(_SAMPLES).encode(), mtime=0)


def _read_samples(data: bytes, folder: Path) -> None:
    (folder / SAMPLES).write_bytes(data)
    found = read_samples(folder)
    assert found is not None
    now = identify(("dog", "cat"), np.array([1, 0], np.int32), _SAMPLES["names"], ("", "d"))
    assert len(compare(found.identity, now).kept) == len(found.parts)
    write_samples(folder, found)
    assert read_samples(folder) == found


RUN_FILES = (
    Target("checkpoint", _read_checkpoint, _checkpoints(), _checkpoint_seeds),
    Target(
        "manifest",
        _read_manifest,
        encoded(wrong_json(json.loads(_manifest()))) | changed(lambda: [_manifest()]),
        lambda: [_manifest()],
    ),
    Target(
        "samples",
        _read_samples,
        encoded(wrong_json(_SAMPLES)).map(gzip.compress) | changed(lambda: [_packed()]),
        lambda: [_packed()],
    ),
    Target(
        "tuning",
        _read_tuning,
        encoded(wrong_json(_PRESENT.to_json())) | changed(lambda: [_tuning()]),
        lambda: [_tuning()],
    ),
    Target(
        "plan",
        _read_plan,
        encoded(wrong_json(_FACTS)).map(lambda text: text + b"\n\1") | changed(lambda: [_PLAN]),
        lambda: [_PLAN],
    ),
    Target(
        "log",
        _read_log,
        lines(_SOUND_LOG, st.sampled_from(_EVENTS).flatmap(wrong_json)),
        lambda: ["\n".join(_SOUND_LOG).encode()],
        memory=64 * MEGABYTE,
    ),
    Target(
        "metrics",
        _read_metrics,
        lines([HEADERS["accuracy"].strip(), *_ROWS], _row()) | changed(lambda: [_sound_metrics()]),
        lambda: [_sound_metrics()],
        memory=64 * MEGABYTE,
    ),
    Target(
        "lock",
        _read_lock,
        changed(lambda: [b"pid 1 on host\n", b"pid 1 on host", b"text"]),
        lambda: [b"pid 1 on host\n"],
    ),
)


def _sound_metrics() -> bytes:
    return (HEADERS["accuracy"] + "\n".join(_ROWS) + "\n").encode()
