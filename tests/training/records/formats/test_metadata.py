"""Checkpoints whose digest is right and whose content is not: what a stranger may hand over."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError, DnnstackError
from dnnstack.common.typed_json import from_json
from dnnstack.training.inference.trained import Trained
from dnnstack.training.records.formats import checkpoint as module
from dnnstack.training.records.formats import record
from dnnstack.training.records.formats.checkpoint import encode, read_checkpoint, read_manifest
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.formats.state import State
from dnnstack.training.records.formats.store import named_checkpoint
from safetensors.numpy import save

ARRAYS = {"a": np.ones(3, np.float32)}
CONFIG = "name: x\ndata: {dataset: strokes}\nlayers: [flatten, {dense: {units: 10}}]\n"
DEEP = "[" * 100_000
# As JSON, so that numbers that no float holds can be among them.
WRONG = (
    *("null", "true", "-1", "0.5", "1e400", "NaN", "9" * 400, '""', '"text"', "[]", "[[]]", "{}"),
    *("[null]", '["a", 1]', '{"a": null}', DEEP, json.dumps("x" * 2_000_000), '"\\u0000\\n"'),
)


def sealed(text: str, arrays: Mapping[str, Any] = ARRAYS) -> bytes:
    """A file with this text as its metadata, and the right digest."""
    data = save(dict(arrays), {"dnnstack": text})
    at = module._digest_place(data)
    assert at is not None
    return data[:at] + module._own_digest(memoryview(data), at).encode() + data[at + 64 :]


def table_of(state: State, provenance: Provenance) -> dict[str, Any]:
    data = b"".join(encode(ARRAYS, state, provenance))
    (length,) = struct.unpack("<Q", data[:8])
    found = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["dnnstack"])
    found["sha256"] = "0" * 64
    assert isinstance(found, dict)
    return found


def texts(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Every value of a table replaced by every wrong one: what was done, and the JSON text."""
    found = []
    for key, value in table.items():
        if key == "sha256":
            continue
        for wrong in WRONG:
            changed = json.dumps({**table, key: "@"}, separators=(",", ":"))
            found.append((f"{key} {wrong[:12]}", changed.replace('"@"', wrong)))
        if isinstance(value, dict):
            for title, text in texts(value):
                inner = json.dumps({**table, key: "@"}, separators=(",", ":"))
                found.append((f"{key}.{title}", inner.replace('"@"', text)))
    return found


def test_any_metadata_are_read_or_refused_in_a_line(tmp_path, state, provenance):
    known = {"config": CONFIG, "dataset": "strokes", "overrides": ["train.epochs=2"]}
    table = table_of(state, provenance) | known
    path = tmp_path / "x.safetensors"
    refused = 0
    for title, text in texts(table):
        path.write_bytes(sealed(text))
        try:
            Trained.of(read_checkpoint(path))
        except DnnstackError as error:
            refused += 1
            said = str(error)
            assert len(said) < 1000, title
            assert said.isprintable() or "\n" in said, title
    assert refused > 300


@pytest.mark.parametrize("text", ["{}", "[]", DEEP, '{"sha256":"', "null"])
def test_a_text_that_is_no_table(tmp_path, text):
    path = tmp_path / "x.safetensors"
    padded = text + ' "sha256":"' + "0" * 64 + '"'
    path.write_bytes(sealed(padded))
    with pytest.raises(CheckpointError, match="not a checkpoint of dnnstack") as caught:
        read_checkpoint(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(tmp_path, state, provenance, value):
    path = tmp_path / "x.safetensors"
    arrays = {"a": np.array([1.0, value], np.float32)}
    path.write_bytes(b"".join(encode(arrays, state, provenance)))
    with pytest.raises(CheckpointError, match="'a' contains NaN or infinity"):
        read_checkpoint(path)


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int8, np.uint32, np.bool_])
def test_arrays_of_another_type_are_refused(tmp_path, state, provenance, kind):
    """A backend would take their bytes for those of float32."""
    path = tmp_path / "x.safetensors"
    text = json.dumps(table_of(state, provenance), separators=(",", ":"))
    path.write_bytes(sealed(text, {"a": np.ones(4, np.float32), "b": np.ones(4, kind)}))
    with pytest.raises(CheckpointError, match="'b' is not float32"):
        read_checkpoint(path)
    path.write_bytes(sealed(text))
    assert read_checkpoint(path).arrays.keys() == {"a"}


def test_what_is_no_file_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    for path in (pipe, tmp_path / "zero.safetensors"):
        with pytest.raises(CheckpointError, match="is not a regular file"):
            named_checkpoint(path)


def test_a_link_is_followed_only_for_who_names_it(tmp_path, state, provenance):
    (tmp_path / "own.safetensors").write_bytes(b"".join(encode(ARRAYS, state, provenance)))
    link = tmp_path / "link.safetensors"
    link.symlink_to(tmp_path / "own.safetensors")
    with pytest.raises(CheckpointError, match="is a symbolic link"):
        read_checkpoint(link)
    assert named_checkpoint(link).state == state


@pytest.mark.parametrize("size", [1 << 50, 1 << 63])
def test_a_header_longer_than_the_file(tmp_path, size):
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", size) + b"{}")
    with pytest.raises(CheckpointError, match="it ends within its header"):
        read_checkpoint(path)


def test_of_a_file_with_an_impossible_header_little_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "main_memory", lambda: 10_000)
    path = tmp_path / "x.safetensors"
    for size, length in ((10_001, 10_002), (1 << 27, (1 << 26) + 1)):
        path.write_bytes(struct.pack("<Q", length))
        os.truncate(path, size)
        with pytest.raises(CheckpointError, match="it does not begin like one"):
            read_checkpoint(path)


def test_a_file_larger_than_the_memory_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "main_memory", lambda: 10_000)
    path = tmp_path / "x.safetensors"
    path.write_bytes(bytes(10_001))
    with pytest.raises(CheckpointError, match="10,001 bytes, more than this machine's memory"):
        read_checkpoint(path)


@pytest.mark.parametrize("wrong", [*WRONG, '{"bytes":1,"sha256":"x"}', " " * 70_000])
def test_any_manifest_is_read_or_refused_in_a_line(tmp_path, wrong):
    path = tmp_path / "step-1.json"
    path.write_text(wrong)
    with pytest.raises(CheckpointError) as caught:
        read_manifest(path)
    assert len(str(caught.value)) < 300


def test_a_manifest_larger_than_any_is_not_read(tmp_path):
    path = tmp_path / "step-1.json"
    text = json.dumps({"bytes": 1, "sha256": "0" * 64})
    path.write_text(text + " " * 60_000)
    assert read_manifest(path)[0].bytes == 1
    path.write_text(text + " " * 70_000)
    with pytest.raises(CheckpointError, match="is larger than 65,536 bytes"):
        read_manifest(path)


def test_nothing_is_converted():
    for text in ("1.0", '"1"', "true", "null", "-1", str(2**53 + 1)):
        with pytest.raises(ValueError, match="Input should be"):
            from_json(f'{{"bytes":{text},"sha256":"{"0" * 64}"}}', module.FileMark)
