"""A resume takes the tuning of its checkpoint, on which the last bits depend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from dnnstack.backends.onednn import backend as backend_module
from dnnstack.backends.tuning import Tuning
from dnnstack.backends.tuning_cache import cached, kept, store
from dnnstack.common.files import cache_dir
from dnnstack.common.typed_json import from_json
from dnnstack.configs import RunConfig
from dnnstack.training.records.formats.store import newest_checkpoint, write_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

from ....support.cache_fixture import cache as cache
from ....support.resuming import NOWHERE, RULES, Ear, assert_equal, go, resume
from ....support.trainings import end_of
from ....support.trainings import go as train_once


def _layout(config: RunConfig, run: Path, layout: str) -> None:
    """Rewrite the newest checkpoint of a run as if its convolution had another layout."""
    found = newest_checkpoint(run / "checkpoints")
    table = found.provenance.tuning
    choices = dict.fromkeys(table.choices, layout)
    other = replace(table, choices=choices)
    provenance = replace(found.provenance, tuning=other)
    write_checkpoint(run / "checkpoints", found.arrays, found.state, provenance, keep=3)


def _in_cache(table: Tuning) -> Tuning:
    """A table as the cache has it: for all trainings that differ in numbers alone."""
    (file,) = (cache_dir() / "tuning").glob("*.json")
    return replace(table, graph=from_json(file.read_bytes(), Tuning).graph)


def test_a_resume_takes_the_tuning_of_the_checkpoint(tiny, onednn, cache, monkeypatch):
    config = tiny(*RULES["momentum"])
    ends = {}
    for layout in ("nchw", "nhwc"):
        start = go(config, onednn, stop_at=0)
        _layout(config, start.run, layout)
        half = resume(config, onednn, start.run, stop_at=13)
        # Another process has measured again meanwhile and found the other layout.
        table = end_of(half).provenance.tuning
        other = {"nchw": "nhwc", "nhwc": "nchw"}[layout]
        store(kept(replace(_in_cache(table), choices=dict.fromkeys(table.choices, other))))
        ends[layout] = end_of(resume(config, onednn, half.run))
        assert set(ends[layout].provenance.tuning.choices.values()) == {layout}
        straight = go(config, onednn, stop_at=0)
        _layout(config, straight.run, layout)
        assert_equal(ends[layout], end_of(resume(config, onednn, straight.run)))
    one, two = ends["nchw"].arrays, ends["nhwc"].arrays
    assert any(one[name].tobytes() != two[name].tobytes() for name in one)


def test_a_resume_keeps_choices_that_were_found_beside_other_programs(
    tiny, onednn, cache, monkeypatch
):
    """A new start on the quiet machine searches again; the resume, which has bits to keep, not."""
    config = tiny(*RULES["momentum"])
    defaults = train_once(config, onednn).provenance.tuning
    one, two = (dict.fromkeys(defaults.choices, layout) for layout in ("nchw", "nhwc"))
    store(kept(replace(_in_cache(defaults), choices=one), disturbed=1))
    monkeypatch.setattr(backend_module, "search", lambda *_: one)
    monkeypatch.setattr(backend_module, "crowded", lambda threads: True)
    whole = go(config, onednn)
    half = go(config, onednn, stop_at=13)
    monkeypatch.setattr(backend_module, "search", lambda *_: two)
    monkeypatch.setattr(backend_module, "crowded", lambda threads: False)
    assert (
        train_once(
            config, backend_module.OneDnnBackend(onednn.waiting_threads)
        ).provenance.tuning.choices
        == two
    )
    done = end_of(resume(config, onednn, half.run))
    assert done.provenance.tuning.choices == one
    assert_equal(end_of(whole), done)
    found = cached(_in_cache(defaults))
    assert found is not None
    assert (found.choices, found.disturbed) == (two, 0)


def test_a_swapped_tuning_changes_the_last_bits(tiny, onednn):
    config = tiny(*RULES["momentum"])
    start = go(config, onednn, stop_at=0)
    _layout(config, start.run, "nchw")
    whole = end_of(resume(config, onednn, start.run))
    start = go(config, onednn, stop_at=0)
    _layout(config, start.run, "nchw")
    half = resume(config, onednn, start.run, stop_at=13)
    _layout(config, half.run, "nhwc")
    swapped = end_of(resume(config, onednn, half.run))
    differ = [n for n, a in whole.arrays.items() if a.tobytes() != swapped.arrays[n].tobytes()]
    assert differ
    for name in differ:
        np.testing.assert_allclose(whole.arrays[name], swapped.arrays[name], rtol=0.01, atol=1e-4)


def test_another_backend_goes_on_and_says_that_bits_may_differ(tiny, reference, onednn):
    config = tiny(*RULES["momentum"])
    half = go(config, onednn, stop_at=13)
    ear = Ear()
    source = open_resume(half.run, ear.notice)
    done = train(config, reference, NOWHERE, resume=source, listener=ear)
    assert len(ear.notices) == 1
    assert "onednn" in ear.notices[0]
    whole = end_of(go(config, reference)).arrays
    for name, array in end_of(done).arrays.items():
        np.testing.assert_allclose(array, whole[name], rtol=0.01, atol=1e-4)
