from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn import executable as executables
from dnnstack.backends.onednn import tuner
from dnnstack.backends.onednn.convolution import candidate_layouts
from dnnstack.backends.tuning import Tuning
from dnnstack.common.typed_json import from_json


def cached_files(cache):
    return sorted((cache / "tuning").glob("*.json"))


def stored_in(file):
    return from_json(file.read_text(), Tuning)


def test_search_is_kept_and_found_again(make, cache, monkeypatch):
    _, _, first = make(options=Options())
    (file,) = cached_files(cache)
    assert stored_in(file) == replace(first.tuning, graph=stored_in(file).graph)

    def never(*_):
        raise AssertionError("searched again")

    monkeypatch.setattr("dnnstack.backends.onednn.backend.search", never)
    _, _, second = make(options=Options())
    assert second.tuning == first.tuning


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"backend": "onednn"}', "\x00"])
def test_damaged_cache_is_searched_anew(make, cache, damage):
    _, _, first = make(options=Options())
    (file,) = cached_files(cache)
    file.write_text(damage)
    _, _, second = make(options=Options())
    assert second.tuning.graph == first.tuning.graph
    assert stored_in(file).choices == second.tuning.choices


@pytest.mark.parametrize("layout", ["bogus", "ba", ""])
def test_a_table_of_what_there_is_not_is_searched_anew(make, cache, layout):
    _, _, first = make(options=Options())
    (file,) = cached_files(cache)
    wrong = replace(first.tuning, choices={**first.tuning.choices, "conv2d_2": layout})
    file.write_text(json.dumps(replace(wrong, graph=stored_in(file).graph).to_json()))
    for given in (None, wrong):
        _, _, second = make(options=Options(tuning=given))
        assert set(second.tuning.choices.values()) <= set(candidate_layouts())
        (notice,) = second.notices
        assert notice.endswith(
            f"a choice of the tuning is not available now: {layout!r} for 'conv2d_2'"
        )
        assert stored_in(file).choices == second.tuning.choices


def test_unwritable_cache_is_no_error(make, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DNNSTACK_CACHE", str(tmp_path / "file" / "cache"))
    _, _, executable = make(options=Options())
    assert executable.tuning.choices


@pytest.mark.parametrize("trials", [0, 1, 2, 4])
def test_search_keeps_within_its_budget(trials, make, monkeypatch):
    """No trial begins after it, whichever part of the search it belongs to."""
    _, graphs, _ = make()
    train = graphs["train"]
    defaults = tuner.default_choices([train])
    monkeypatch.setattr(tuner, "BUDGET_SECONDS", trials - 0.5)
    now, asked = [0.0], []
    monkeypatch.setattr(tuner, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def seconds(graph, choices, repeats):
        asked.append(choices)
        now[0] += 1.0
        return 5.0 - len(asked) * 0.01

    found = tuner.search(train, defaults, seconds)
    assert len(asked) == trials
    starts = 1 + len(candidate_layouts())
    assert found == (asked[min(trials, starts) - 1] if asked else defaults)


def test_a_long_step_is_timed_but_once(make, monkeypatch):
    _, graphs, executable = make()
    monkeypatch.setattr(executables, "LONG_SECONDS", 0.0)
    ran = []
    monkeypatch.setattr(executables, "_run", lambda calls: ran.append(1))
    assert executable.step_seconds("train", 5) >= 0
    assert len(ran) == 1
    monkeypatch.setattr(executables, "LONG_SECONDS", 1e9)
    executable.step_seconds("train", 5)
    assert len(ran) == 1 + 6
