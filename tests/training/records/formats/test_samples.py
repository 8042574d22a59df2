"""The list of a run's samples: what is written is read, and nothing else is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.datasets.identity import identify
from dnnstack.training.records.formats import samples as module
from dnnstack.training.records.formats.samples import SAMPLES, Samples, read_samples, write_samples

from ....support.stored import cases

LABELS = np.array([0, 1, 1], np.int32)
IDENTITY = identify(("cat", "dög"), LABELS, ("cat/1", "dög/1", "dög/2"), ("a" * 32, "b" * 32, "c"))


def listed(*validation: int) -> Samples:
    return Samples.of(IDENTITY, np.array(validation, np.int32), ("d" * 32,))


def put(folder: Path, **changed: Any) -> None:
    """The list with other fields."""
    table = {**vars(listed(1)), **changed}
    (folder / SAMPLES).write_bytes(gzip.compress(json.dumps(table).encode()))


def test_a_list_is_read_as_it_was_written(tmp_path):
    assert read_samples(tmp_path) is None
    write_samples(tmp_path, listed(1))
    found = read_samples(tmp_path)
    assert found == listed(1)
    assert found is not None
    assert (found.parts, found.earlier) == ("tvt", ("d" * 32,))
    assert (found.places("t").tolist(), found.places("v").tolist()) == ([0, 2], [1])
    np.testing.assert_array_equal(found.identity.labels, LABELS)
    for name in ("classes", "names", "contents", "digest"):
        assert getattr(found.identity, name) == getattr(IDENTITY, name)


def test_the_same_list_has_the_same_bytes_and_a_line_for_each_name(tmp_path):
    found = []
    for _ in range(2):
        write_samples(tmp_path, listed(1))
        found.append((tmp_path / SAMPLES).read_bytes())
    assert found[0] == found[1]
    lines = gzip.decompress(found[0]).decode().splitlines()
    assert '"cat/1",' in lines


def test_samples_without_names_are_known_by_number(tmp_path):
    identity = identify(("0", "1"), LABELS, key="strokes")
    write_samples(tmp_path, Samples.of(identity, np.array([0, 2], np.int32)))
    found = read_samples(tmp_path)
    assert found is not None
    assert (found.parts, found.labels, found.names) == ("vtv", (), ())
    assert len(found.identity.labels) == 3


def test_a_name_that_is_no_text_is_written_as_escapes(tmp_path):
    identity = identify(("cat",), LABELS[:1], ("cat/\udcff.png",), ("a" * 32,))
    write_samples(tmp_path, Samples.of(identity, LABELS[:0]))
    found = read_samples(tmp_path)
    assert found is not None
    assert found.names == ("cat/\\udcff.png",)


@pytest.mark.parametrize(
    ("changed", "why"), cases(__file__, "a_list_that_contradicts_itself_is_refused")
)
def test_a_list_that_contradicts_itself_is_refused(tmp_path, changed, why):
    put(tmp_path, **changed)
    with pytest.raises(CheckpointError, match=rf"samples\.json\.gz: the list .* used: .*{why}"):
        read_samples(tmp_path)


def test_a_file_that_is_cut_or_changed_is_refused(tmp_path):
    write_samples(tmp_path, listed(1))
    sound = (tmp_path / SAMPLES).read_bytes()
    for bad in (sound[:-9], b"", b"{}", bytes([*sound[:-6], sound[-6] ^ 1, *sound[-5:]])):
        (tmp_path / SAMPLES).write_bytes(bad)
        with pytest.raises(CheckpointError, match="put back a copy, or remove it"):
            read_samples(tmp_path)


def test_a_file_that_unpacks_to_far_more_than_a_list_is_refused(tmp_path):
    (tmp_path / SAMPLES).write_bytes(gzip.compress(bytes(20 << 20), mtime=0))
    with pytest.raises(CheckpointError, match="larger than any such list"):
        read_samples(tmp_path)


def test_a_long_list_is_read(tmp_path):
    identity = identify(("0",), np.zeros(2_000_000, np.int32), key="many")
    write_samples(tmp_path, Samples.of(identity, np.arange(9, dtype=np.int32)))
    found = read_samples(tmp_path)
    assert found is not None
    assert found.places("v").tolist() == [*range(9)]


def test_the_limit_of_the_file_is_obeyed(tmp_path, monkeypatch):
    write_samples(tmp_path, listed(1))
    size = (tmp_path / SAMPLES).stat().st_size
    monkeypatch.setattr(module, "_LONGEST", size)
    assert read_samples(tmp_path) == listed(1)
    monkeypatch.setattr(module, "_LONGEST", size - 1)
    with pytest.raises(CheckpointError, match="is larger than"):
        read_samples(tmp_path)


def test_the_mark_is_of_the_samples_and_their_parts():
    assert len(listed(1).mark) == 64
    assert listed(1).mark == Samples.of(IDENTITY, np.array([1], np.int32)).mark
    assert listed(1).mark != listed(2).mark
    other = identify(("cat", "dög"), LABELS, ("cat/1", "dög/1", "dög/3"), IDENTITY.contents)
    assert listed(1).mark != Samples.of(other, np.array([1], np.int32)).mark
