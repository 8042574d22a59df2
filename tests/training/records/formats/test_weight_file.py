"""Safetensors files that anybody may have written: read as float32, or refused in one line."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats import record, weight_file
from dnnstack.training.records.formats.weight_file import read_weight_file
from safetensors.numpy import save_file

from ...weights.files import entry, raw

VALUES = np.array([[1.5, -2.0, 0.1], [3e4, 0.0, 1e-5]])


def test_what_the_library_writes_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    arrays = {"a.b": VALUES.astype(np.float32), "c": np.array(7, np.float32), "n": np.arange(3)}
    save_file(arrays, path, {"format": "pt"})
    found = read_weight_file(path)
    assert found.metadata == {"format": "pt"}
    assert found.sha256 == weight_file.sha256_bytes(path.read_bytes())
    for name in ("a.b", "c"):
        np.testing.assert_array_equal(found.arrays[name].values(), arrays[name])
    assert found.arrays["n"].dtype == "I64"
    assert not found.arrays["n"].is_readable


@pytest.mark.parametrize("kind", ["F16", "BF16", "F64"])
def test_other_widths_become_float32(tmp_path, kind):
    if kind == "BF16":
        stored = (VALUES.astype(np.float32).view(np.uint32) >> 16).astype("<u2")
        wanted = (stored.astype(np.uint32) << 16).view(np.float32)
        # Eight bits are right.
        np.testing.assert_allclose(wanted, VALUES, rtol=2**-7)
    else:
        stored = VALUES.astype({"F16": "<f2", "F64": "<f8"}[kind])
        wanted = stored.astype(np.float32)
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw({"w": entry(kind, [2, 3], 0, stored.nbytes)}, stored.tobytes()))
    found = read_weight_file(path).arrays["w"].values()
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)


def test_a_float64_beyond_float32_is_infinite_without_a_warning(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw({"w": entry("F64", [1], 0, 8)}, np.array([1e300]).tobytes()))
    assert np.isinf(read_weight_file(path).arrays["w"].values()).all()


EIGHT = entry("F32", [2], 0, 8)
WRONG = {
    "empty": b"",
    "short": b"\0\0\0",
    "a header longer than the file": (9).to_bytes(8, "little") + b"{}",
    "a header without end": (2**63).to_bytes(8, "little") + b"{}",
    "no JSON": raw(b"hello there"),
    "no mapping": raw(b"[1, 2]"),
    "no bytes": raw({"w": EIGHT}),
    "bytes too many": raw({"w": EIGHT}, bytes(9)),
    "a gap": raw({"w": entry("F32", [2], 4, 12)}, bytes(12)),
    "two in one place": raw({"v": EIGHT, "w": EIGHT}, bytes(8)),
    "shape and place": raw({"w": entry("F32", [3], 0, 8)}, bytes(8)),
    "an end before the begin": raw({"w": entry("F32", [2], 8, 0)}, bytes(8)),
    "a huge shape": raw({"w": entry("F32", [2**40, 2**40], 0, 8)}, bytes(8)),
    "a negative side": raw({"w": entry("F32", [-2], 0, 8)}, bytes(8)),
    "an unknown type": raw({"w": entry("F31", [2], 0, 8)}, bytes(8)),
    "three offsets": raw({"w": EIGHT | {"data_offsets": [0, 8, 8]}}, bytes(8)),
    "metadata of numbers": raw({"__metadata__": {"a": 1}, "w": EIGHT}, bytes(8)),
    "a text for a number": raw({"w": EIGHT | {"shape": ["2"]}}, bytes(8)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused(tmp_path, what):
    path = tmp_path / "x.safetensors"
    path.write_bytes(WRONG[what])
    with pytest.raises(CheckpointError) as caught:
        read_weight_file(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: is damaged, or is not a safetensors file: ")
    reasons = {
        "empty": "it does not begin like one",
        "a header longer than the file": "it ends within its header",
    }
    assert f"is not a safetensors file: {reasons.get(what, '')}" in said
    assert said.endswith("compare its SHA-256 with the one that its source gives")
    assert len(said.splitlines()) == 1


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("it ran",)


@pytest.mark.parametrize("name", ["m.pth", "m.safetensors", "m"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_bare_pickles_are_refused_by_content(tmp_path, monkeypatch, name, protocol):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Harmful(), protocol))
    with pytest.raises(CheckpointError, match=r"is a pickle of PyTorch.*dnnstack help finetuning"):
        read_weight_file(path)
    assert os.listdir(tmp_path) == [name]


def test_a_link_is_followed_and_a_pipe_is_not_waited_for(tmp_path):
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "real.safetensors")
    link, pipe = tmp_path / "link.safetensors", tmp_path / "pipe.safetensors"
    link.symlink_to("real.safetensors")
    assert list(read_weight_file(link).arrays) == ["w"]
    os.mkfifo(pipe)
    for path in (pipe, tmp_path / "missing.safetensors"):
        with pytest.raises(CheckpointError, match="cannot be read: "):
            read_weight_file(path)


def test_a_file_larger_than_memory_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    save_file({"w": np.zeros(100, np.float32)}, path)
    monkeypatch.setattr(record, "main_memory", lambda: 300)
    with pytest.raises(CheckpointError, match="more than this machine's memory"):
        read_weight_file(path)
