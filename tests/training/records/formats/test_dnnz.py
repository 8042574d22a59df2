"""A compressed network: read like a checkpoint, and refused in one line if it is anything else."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError, ConfigError
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.records.formats import dnnz as compressed
from dnnstack.training.records.formats.checkpoint import Checkpoint
from dnnstack.training.records.formats.dnnz import (
    compressed_bytes,
    is_compressed,
    read_compressed,
    save_compressed,
)
from dnnstack.training.records.formats.state import START
from dnnstack.training.records.resume import open_resume
from dnnstack.training.weights.source import open_source

from ....fuzz.run_files import provenance

Arrays = dict[str, np.ndarray]


def network(**more: np.ndarray) -> Checkpoint:
    weight = np.zeros((10, 784), np.float32)
    weight.flat[::19] = np.resize([0.5, -0.25, 1.5], weight.flat[::19].shape)
    arrays: Arrays = {"dense_1.weight": weight, "dense_1.bias": np.linspace(0, 1, 10, dtype="f4")}
    return Checkpoint(Path("step-3.safetensors"), START, provenance(), arrays | more)


def test_it_is_read_like_a_checkpoint(tmp_path):
    path, trained = tmp_path / "x.dnnz", network()
    saved = save_compressed(trained, path)
    assert is_compressed(path)
    assert saved.bytes == path.stat().st_size < 1500
    (tmp_path / "link").symlink_to(path)
    for name in (path, tmp_path / "link"):
        found = find_trained(None, name, tmp_path, print)
        assert found.classes == Trained.of(trained).classes
        assert found.config == Trained.of(trained).config
        for key, array in trained.arrays.items():
            assert found.checkpoint.arrays[key].tobytes() == array.tobytes()
    offered = open_source(str(path), tmp_path, print)
    assert offered.layout == "dnnstack"
    assert offered.sha256 == hashlib.sha256(path.read_bytes()[:-32]).hexdigest()
    with pytest.raises(CheckpointError, match="--init-from"):
        open_resume(path, print)


def test_averages_take_the_place_of_what_they_average(tmp_path):
    average = np.full((10, 784), 0.75, np.float32)
    saved = save_compressed(network(**{"ema/dense_1.weight": average}), tmp_path / "x.dnnz")
    assert set(saved.checkpoint.arrays) == {"dense_1.weight", "dense_1.bias"}
    assert (saved.checkpoint.arrays["dense_1.weight"] == 0.75).all()
    assert saved.costs["dense_1.weight"].bytes < 60


def test_its_bytes_are_where_the_page_says(tmp_path):
    """docs/compressed.md, read by hand."""
    data = compressed_bytes(network(), (5,))
    assert data[:8] == bytes([0x89, 0x44, 0x4E, 0x4E, 0x5A, 0x0D, 0x0A, 0x1A])
    version, unused, packed, length = struct.unpack_from("<HHII", data, 8)
    text = zlib.decompress(data[20 : 20 + packed])
    assert (version, unused, len(text)) == (1, 0, length)
    assert json.loads(text)["arrays"] == [["dense_1.bias", [10]], ["dense_1.weight", [10, 784]]]
    at = 20 + packed
    assert data[at] == 0
    plain = np.frombuffer(data, "<f4", 10, at + 1)
    assert plain.tolist() == np.linspace(0, 1, 10, dtype="f4").tolist()
    at += 41
    kind, width, values, listed, entries, gap_bytes, index_bytes = struct.unpack_from(
        "<BBHHIII", data, at
    )
    assert (kind, width, values, listed, entries) == (1, 5, 3, 19, 413)
    book = np.frombuffer(data, "<f4", 3, at + 18)
    assert sorted(book.tolist()) == [-0.25, 0.5, 1.5]
    assert at + 18 + 12 + 10 + 2 + gap_bytes + index_bytes + 32 == len(data)
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]


def sealed(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()


def described(**changes: Any) -> bytes:
    """A file with another description and the digest that belongs to it."""
    data = compressed_bytes(network())
    packed = struct.unpack_from("<HHII", data, 8)[2]
    text = json.dumps(json.loads(zlib.decompress(data[20 : 20 + packed])) | changes).encode()
    new = zlib.compress(text)
    head = struct.pack("<HHII", 1, 0, len(new), len(text))
    return sealed(data[:8] + head + new + data[20 + packed : -32])


def refused(data: bytes, folder: Path) -> str:
    path = folder / "x.dnnz"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        read_compressed(path)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 500
    return said.removeprefix(f"{path}: ")


def test_every_damage_is_found(tmp_path):
    data = compressed_bytes(network())
    for at in range(0, len(data), 11):
        assert refused(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], tmp_path)
        assert refused(data[:at], tmp_path)
    assert "SHA-256" in refused(data + b"\0", tmp_path)
    assert "version 3" in refused(sealed(data[:8] + b"\3" + data[9:-32]), tmp_path)
    assert "follow" in refused(sealed(data[:-32] + b"\0"), tmp_path)
    assert "unused" in refused(sealed(data[:10] + b"\1" + data[11:-32]), tmp_path)
    for temperature in (0.04, 21.0, "1"):
        assert "temperature" in refused(described(temperature=temperature), tmp_path)
    for temperature in (0.05, 20.0):
        (tmp_path / "good.dnnz").write_bytes(described(temperature=temperature))
        found = read_compressed(tmp_path / "good.dnnz").checkpoint
        assert found.temperature == temperature


def test_it_cannot_take_more_memory_than_its_length_allows(tmp_path):
    """Arrays of zeros take a few bytes, whatever their shape."""
    for shape in ([1 << 40], [1 << 52] * 16, [4096, 4096]):
        said = refused(described(arrays=[["a", shape]]), tmp_path)
        assert f"more than {compressed.MOST_TIMES} times" in said
    bomb = zlib.compress(b" " * (1 << 25))
    for length in (10, 1 << 24, 1 << 25):
        head = struct.pack("<HHII", 1, 0, len(bomb), length)
        assert "description" in refused(sealed(compressed.MAGIC + head + bomb), tmp_path)
    assert "one name" in refused(described(arrays=[["a", []], ["a", []]]), tmp_path)
    assert "input_shape" in refused(described(input_shape=[1, 2]), tmp_path)


def test_nor_more_than_the_machine_has(tmp_path, monkeypatch):
    path = tmp_path / "x.dnnz"
    save_compressed(network(), path)
    data = path.read_bytes()
    monkeypatch.setattr(compressed, "main_memory", lambda: 28 * 7840 + 4 * 10)
    assert read_compressed(path).bytes == len(data)
    monkeypatch.setattr(compressed, "main_memory", lambda: 28 * 7840 + 4 * 10 - 1)
    assert "more than this machine's memory" in refused(data, tmp_path)


def test_what_cannot_be_written_is_told_and_nothing_else_is_lost(tmp_path):
    with pytest.raises(CheckpointError, match="another folder"):
        save_compressed(network(), tmp_path / "none" / "x.dnnz")
    with pytest.raises(CheckpointError, match="no such file"):
        read_compressed(tmp_path / "none.dnnz")
    assert not is_compressed(tmp_path)


def test_a_config_is_no_longer_than_a_file_of_one(tmp_path):
    """Packed, it takes a few thousand bytes; to parse it would take minutes and gigabytes."""
    origin = replace(provenance(), config=f"x: [{'1,' * (1 << 21)}1]")
    path = tmp_path / "x.dnnz"
    path.write_bytes(compressed_bytes(replace(network(), provenance=origin)))
    assert path.stat().st_size < 20_000
    with pytest.raises(ConfigError, match=r"x.dnnz \(its config\):1:1: larger than 1 MiB"):
        find_trained(None, path, tmp_path, print)
