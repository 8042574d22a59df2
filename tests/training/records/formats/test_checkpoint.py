"""A checkpoint file: what goes in comes out, and no damage goes unnoticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats.checkpoint import encode, manifest_text, read_checkpoint

SHAPES = {"dense_1.weight": (3, 2), "dense_1.bias": (3,), "momentum/dense_1.weight": (3, 2)}


@pytest.fixture
def saved(tmp_path, arrays, state, provenance):
    path = tmp_path / "step-3.safetensors"
    pieces = encode(arrays, state, provenance)
    path.write_bytes(b"".join(pieces))
    path.with_suffix(".json").write_bytes(manifest_text(3, path, pieces))
    return path


def test_round_trip(saved, arrays, state, provenance):
    found = read_checkpoint(saved)
    assert (found.state, found.provenance) == (state, provenance)
    assert set(found.arrays) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    assert read_checkpoint(saved.with_suffix(".json")).path == saved


def test_without_a_best_value(tmp_path, arrays, state, provenance):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"".join(encode(arrays, replace(state, best=None), provenance)))
    assert read_checkpoint(path).state.best is None


def test_same_content_same_bytes(arrays, state, provenance):
    once = b"".join(encode(arrays, state, provenance))
    assert once == b"".join(encode(dict(reversed(arrays.items())), state, provenance))


def test_other_libraries_can_read_the_arrays(saved, arrays):
    from safetensors.numpy import load_file

    for name, array in load_file(saved).items():
        np.testing.assert_array_equal(array, arrays[name])


def test_a_file_alone_is_enough(saved, state):
    moved = saved.parent / "elsewhere.safetensors"
    moved.write_bytes(saved.read_bytes())
    assert read_checkpoint(moved).state == state


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("manifest", [True, False])
def test_a_flipped_bit_anywhere_is_found(saved, manifest):
    sound = saved.read_bytes()
    if not manifest:
        saved.with_suffix(".json").unlink()
    for at in range(len(sound)):
        saved.write_bytes(sound)
        _flip(saved, at)
        with pytest.raises(CheckpointError, match=r"step-3\.safetensors"):
            read_checkpoint(saved)
    saved.write_bytes(sound)
    read_checkpoint(saved)


@pytest.mark.parametrize("manifest", [True, False])
def test_a_file_cut_short_or_grown_is_found(saved, manifest):
    sound = saved.read_bytes()
    if not manifest:
        saved.with_suffix(".json").unlink()
    for data in (*(sound[:n] for n in range(len(sound))), sound + b"\0"):
        saved.write_bytes(data)
        with pytest.raises(CheckpointError):
            read_checkpoint(saved)


def test_a_manifest_of_another_file_is_obeyed(saved, arrays, state, provenance):
    other = encode(arrays, replace(state, step=4), provenance)
    saved.with_suffix(".json").write_bytes(manifest_text(3, saved, other))
    with pytest.raises(CheckpointError, match="SHA-256 does not match its manifest"):
        read_checkpoint(saved)


@pytest.mark.parametrize("text", ["", "[]", '{"bytes": 3}', '{"bytes": null, "sha256": 1}', "\xff"])
def test_a_broken_manifest_is_damage(saved, text):
    saved.with_suffix(".json").write_text(text, "latin-1")
    with pytest.raises(CheckpointError, match=r"step-3\.json: is damaged"):
        read_checkpoint(saved)


def test_a_file_of_other_libraries_is_refused(tmp_path):
    from safetensors.numpy import save

    path = tmp_path / "x.safetensors"
    path.write_bytes(save({"a": np.zeros(3, np.float32)}, {"format": "pt"}))
    with pytest.raises(CheckpointError, match="not a checkpoint of dnnstack"):
        read_checkpoint(path)


def test_a_newer_format_is_refused(tmp_path, arrays, state, provenance, monkeypatch):
    path = tmp_path / "x.safetensors"
    monkeypatch.setattr("dnnstack.training.records.formats.checkpoint.FORMAT", 2)
    path.write_bytes(b"".join(encode(arrays, state, provenance)))
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="has format 2, but this version of dnnstack reads 1"):
        read_checkpoint(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(CheckpointError, match=r"x\.safetensors: no such file; a run.s"):
        read_checkpoint(tmp_path / "x.safetensors")


def test_only_float32_is_stored(state, provenance):
    with pytest.raises(ValueError, match="float64"):
        encode({"a": np.zeros(3)}, state, provenance)


def test_arrays_that_fit(saved):
    found = read_checkpoint(saved)
    assert list(found.everything(SHAPES)) == list(SHAPES)
    weights = {name: shape for name, shape in SHAPES.items() if "/" not in name}
    assert list(found.parameters(weights)) == ["dense_1.weight", "dense_1.bias"]


def test_all_differences_to_a_network_are_listed(saved):
    found = read_checkpoint(saved)
    with pytest.raises(CheckpointError) as caught:
        found.parameters({"dense_1.weight": (3, 4), "dense_2.bias": (7,)})
    text = str(caught.value)
    assert "lacks 'dense_2.bias' (7,)" in text
    assert "has 'dense_1.bias' (3,), which the network does not have" in text
    assert "has 'dense_1.weight' (3, 2), the network needs (3, 4)" in text
    assert "momentum" not in text


def test_a_transposed_shape_does_not_fit(saved):
    with pytest.raises(CheckpointError, match=r"needs \(2, 3\)"):
        read_checkpoint(saved).everything({**SHAPES, "dense_1.weight": (2, 3)})


def test_missing_optimizer_state_is_found(saved):
    found = read_checkpoint(saved)
    with pytest.raises(CheckpointError, match=r"lacks 'momentum/dense_1\.bias'"):
        found.everything({**SHAPES, "momentum/dense_1.bias": (3,)})


def test_the_state_of_another_optimizer_is_one_sentence(saved):
    found = read_checkpoint(saved)
    weights = {name: shape for name, shape in SHAPES.items() if "/" not in name}
    adam = {f"{family}/dense_1.weight": (3, 2) for family in ("adam_v", "adam_m")}
    for shapes, needed in ((weights, "nothing"), ({**weights, **adam}, "'adam_m' and 'adam_v'")):
        with pytest.raises(CheckpointError) as caught:
            found.everything(shapes)
        assert str(caught.value) == (
            f"{saved}: its optimizer kept 'momentum' of each parameter, but that of the config "
            f"needs {needed}; put 'optimizer' back as it was, or start a new run with these "
            f"weights: --init-from {saved}"
        )


def test_the_manifest_says_what_it_vouches_for(saved):
    table = json.loads(saved.with_suffix(".json").read_text())
    assert table["step"] == 3
    assert table["file"] == saved.name
    assert table["bytes"] == saved.stat().st_size
    assert len(table["sha256"]) == 64


def test_of_many_differences_the_first_are_listed_in_order(tmp_path, arrays, state, provenance):
    path = tmp_path / "x.safetensors"
    more = {f"momentum/extra_{n}": np.ones(1, np.float32) for n in range(40)}
    path.write_bytes(b"".join(encode({**arrays, **more}, state, provenance)))
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path).everything(SHAPES)
    lines = str(caught.value).splitlines()
    assert lines[1:-2] == sorted(lines[1:-2])
    assert len(lines) == 13
    assert lines[-2] == "  and 30 more"
