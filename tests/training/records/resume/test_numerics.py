"""What is said where a run goes on with other versions of the program or of its packages."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import PIL
from dnnstack.backends.base import Backend
from dnnstack.common.errors import Warned
from dnnstack.configs import RunConfig
from dnnstack.training.records import numerics
from dnnstack.training.records.formats.checkpoint import Checkpoint, encode, read_checkpoint
from dnnstack.training.records.numerics import NUMERICS, changes_since, versions_of
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

from ....support.resuming import NOWHERE, Ear, go

Make = Callable[..., RunConfig]


def said(checkpoint: Checkpoint, backend: Backend) -> list[str]:
    return [*changes_since(checkpoint, versions_of(backend))]


def made(tiny: Make, reference: Backend) -> Checkpoint:
    half = go(tiny(), reference, stop_at=3)
    assert half.checkpoint is not None
    return read_checkpoint(half.checkpoint)


def test_a_checkpoint_and_the_log_name_versions(tiny, reference):
    found = made(tiny, reference)
    versions = found.provenance.versions
    assert versions == {
        "dnnstack": version("dnnstack"),
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "Pillow": PIL.__version__,
        **reference.versions(),
    }
    assert list(versions) == list(versions_of(reference))
    assert found.provenance.numerics == NUMERICS
    assert said(found, reference) == []


def test_other_versions_are_told(tiny, reference):
    found = made(tiny, reference)
    before = {**found.provenance.versions, "Python": "3.9.1", "Pillow": "1.0", "threads": "99"}
    del before["dnnstack"]
    other = replace(found, provenance=replace(found.provenance, versions=before))
    assert said(other, reference) == [
        f"the run goes on with other versions: Python 3.9.1 -> {platform.python_version()}, "
        f"Pillow 1.0 -> {PIL.__version__}"
    ]


def test_numbers_of_an_older_version_are_a_warning(tiny, reference):
    found = made(tiny, reference)
    (text,) = said(replace(found, provenance=replace(found.provenance, numerics=0)), reference)
    assert isinstance(text, Warned)
    assert all(each in text for each in numerics._CHANGES.values())
    assert text.startswith(f"{found.path}: comes from a version of dnnstack that rounds otherwise")
    assert "\n" not in text


def test_numbers_of_a_newer_version_are_told_too(tiny, reference):
    found = made(tiny, reference)
    newer = replace(found, provenance=replace(found.provenance, numerics=NUMERICS + 1))
    (text,) = said(newer, reference)
    assert "(it is newer than this one)" in text


def test_a_resume_says_it_once(tiny, reference):
    config = tiny()
    half = go(config, reference, stop_at=3)
    assert half.checkpoint is not None
    found = read_checkpoint(half.checkpoint)
    older = replace(
        found.provenance, numerics=0, versions={**found.provenance.versions, "NumPy": "1.0"}
    )
    half.checkpoint.write_bytes(b"".join(encode(found.arrays, found.state, older)))
    half.checkpoint.with_suffix(".json").unlink()
    path = half.checkpoint
    for expected in (2, 0):
        ear = Ear(stop_at=5 if expected else 9)
        source = open_resume(path, ear.notice)
        done = train(
            config, reference, NOWHERE, resume=source, listener=ear, stop_requested=ear.stop
        )
        told = [text for text in ear.notices if "versions" in text or "rounds" in text]
        assert len(told) == expected
        assert done.checkpoint is not None
        path = done.checkpoint
