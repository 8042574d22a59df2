"""What the version of commit 8798903 has written is read, evaluated and gone on with.

The runs, broken off in the middle, and what that version made of them are in ``support/older``.
Later versions round less, and another processor rounds otherwise, so its figures are met to within
roundings. To the bit are met the figures of ``digests.json``, where libraries and processor are
those that it names. After a change of the numbers that is meant:

    python -m tests.training.records.test_older_version
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.backends.select import open_backend
from dnnstack.configs import effective_yaml, load_config, parse_config
from dnnstack.training import pace
from dnnstack.training.inference.evaluate import Evaluation, Part, evaluate
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.trained import Trained
from dnnstack.training.records.formats.checkpoint import Checkpoint, encode, read_checkpoint
from dnnstack.training.records.formats.run_log import CSV, LOG
from dnnstack.training.records.formats.store import newest_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

OLDER = Path(__file__).parents[2] / "support" / "older"
DIGESTS = OLDER / "digests.json"
RUNS = sorted(path.parent.name for path in OLDER.glob("*/expected.json"))
CHECKPOINTS = sorted(str(path.relative_to(OLDER)) for path in OLDER.rglob("*.safetensors"))
PARTS: tuple[Part, ...] = ("train", "validation", "test")
NOWHERE = Path("/unused")
TIMED = ("seconds", "images_per_second", "time", "training_seconds")
# The older version gave the checkpoint of a stop a line before the validation that was still due.
# A run that was not stopped has no such line, and a resume now takes it back.
STOPPED = {"parts": {"event": "checkpoint", "step": 16, "file": "step-16.safetensors"}}
# What twenty small steps make of roundings.
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}


class Continued:
    """What this version makes of a run of the older one, and what that made of it."""

    def __init__(self, name: str, folder: Path) -> None:
        before = OLDER / name
        self.expected: dict[str, Any] = json.loads((before / "expected.json").read_text())
        self.wanted = read_checkpoint(before / "end.safetensors")
        self.backend: Backend = open_backend(self.expected["device"], 1, print)
        name_then = "numpy" if self.expected["device"] == "numpy" else "onednn"
        assert self.backend.name == name_then
        self.run = folder / name
        shutil.copytree(before, self.run)
        self.evaluations = dict(self._evaluate())
        self.told: list[str] = []
        source = open_resume(self.run, self.told.append)
        config = load_config(self.run / "config.yaml", ()).config
        self.summary = train(config, self.backend, NOWHERE, resume=source)
        assert self.summary.checkpoint is not None
        self.end: Checkpoint = read_checkpoint(self.summary.checkpoint)
        self.records = {"csv": (self.run / CSV).read_text(), "log": self._log()}

    def _evaluate(self) -> Iterator[tuple[Part, Evaluation]]:
        trained = Trained.of(newest_checkpoint(self.run / "checkpoints"))
        for part in PARTS:
            if part != "validation" or trained.config.data.validation:
                images, index = load_part(trained, part, NOWHERE)
                yield part, evaluate(trained, self.backend, images, index, part)

    def _log(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.run / LOG).read_text().splitlines()]
        kept = [{key: value for key, value in line.items() if key not in TIMED} for line in lines]
        return [line for line in kept if line["event"] not in ("start", "resume", "end")]

    def digest(self) -> str:
        """A mark of all bits of the evaluations, the end and the records."""
        digest = hashlib.sha256(repr(self.records).encode())
        for found in self.evaluations.values():
            digest.update(repr((found.loss, found.confusion.tolist())).encode())
        for name, array in sorted(self.end.arrays.items()):
            digest.update(name.encode() + array.tobytes())
        digest.update(json.dumps(state_table(self.end), sort_keys=True).encode())
        return digest.hexdigest()


def state_table(checkpoint: Checkpoint) -> dict[str, Any]:
    """All but what depends on the libraries, and what the older version did not write."""
    table: dict[str, Any] = json.loads(
        json.dumps({**checkpoint.state.to_json(), **checkpoint.provenance.to_json()})
    )
    del table["tuning"], table["versions"]
    table.pop("numerics", None)
    table.pop("samples", None)
    return table


@pytest.fixture(params=RUNS, scope="module")
def continued(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pace, "CHUNK_SECONDS", 0.0)
        return Continued(request.param, tmp_path_factory.mktemp("older"))


def test_the_runs_are_there():
    """An empty list would pass every test."""
    kinds = {"adam", "groups", "momentum", "muon", "parts", "rollback", "statistics", "table"}
    assert {*kinds, "cpu", "cpu-adam"} == set(RUNS)
    assert len(CHECKPOINTS) == 2 * len(RUNS) + len({"step-5", "step-8", "step-10"})


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_format_is_the_same(name):
    """What is read from a file and written again is that file."""
    path = OLDER / name
    found = read_checkpoint(path)
    assert b"".join(encode(found.arrays, found.state, found.provenance)) == path.read_bytes()


def test_a_checkpoint_evaluates_to_the_same_numbers(continued):
    wanted = continued.expected["evaluate"]
    assert list(continued.evaluations) == list(wanted)
    for part, found in continued.evaluations.items():
        np.testing.assert_allclose(found.loss, wanted[part]["loss"], **TOLERANCE)
        counts = np.array(wanted[part]["confusion"])
        np.testing.assert_array_equal(found.confusion.sum(1), counts.sum(1))
        # A picture between two classes may go to the other.
        assert np.abs(found.confusion - counts).sum() <= 2


def test_a_resume_ends_where_the_older_version_did(continued):
    expected, done = continued.expected, continued.summary
    assert continued.told == []
    assert (done.state, done.step) == (expected["state"], expected["step"])
    wanted = continued.wanted.arrays
    assert set(continued.end.arrays) == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_allclose(continued.end.arrays[name], array, **TOLERANCE, err_msg=name)
    assert_close(state_table(continued.end), state_table(continued.wanted), "state")
    log = [line for line in expected["records"]["log"] if line != STOPPED.get(continued.run.name)]
    assert_close(continued.records["log"], log, LOG)
    tables = (continued.records["csv"], expected["records"]["csv"])
    assert_close(*(list(map(cells, text.splitlines())) for text in tables), CSV)


def cells(row: str) -> list[Any]:
    return [json.loads(cell) if cell[0].isdigit() else cell for cell in row.split(",")]


def assert_close(found: Any, wanted: Any, where: str) -> None:
    """Equal, but for floats."""
    assert type(found) is type(wanted), where
    if isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for key in wanted:
            assert_close(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for index, each in enumerate(wanted):
            assert_close(found[index], each, f"{where}.{index}")
    elif isinstance(wanted, float):
        np.testing.assert_allclose(found, wanted, **TOLERANCE, err_msg=where)
    else:
        assert found == wanted, where


def test_a_resume_ends_in_the_same_bits(continued):
    recorded = json.loads(DIGESTS.read_text())[continued.run.name]
    equal = continued.digest() == recorded["digest"]
    same_machine = dict(continued.backend.versions()) == recorded["versions"]
    assert equal or not same_machine


@pytest.mark.parametrize("name", sorted(each.name for each in (OLDER / "configs").iterdir()))
def test_packaged_configs_read_as_before(name):
    """But for its first line, which names the file: what ``dnnstack config`` prints. An interval
    of checkpoints that a file does not give was one epoch, and is settled by the training now."""
    text = effective_yaml(load_config(name, ()).config)
    before = (OLDER / "configs" / name).read_text()
    assert text in (before, before.replace("checkpoint: {every_epochs: 1, ", "checkpoint: {"))


def test_configs_of_runs_read_as_before():
    for name in RUNS:
        text = (OLDER / name / "config.yaml").read_text()
        assert effective_yaml(parse_config(text, name)) == text


if __name__ == "__main__":
    pace.CHUNK_SECONDS = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        each = {name: Continued(name, Path(temporary)) for name in RUNS}
    table = {
        name: {"versions": dict(one.backend.versions()), "digest": one.digest()}
        for name, one in each.items()
    }
    DIGESTS.write_text(json.dumps(table, indent=1) + "\n")
