"""What many trainings of one process have in common is read once, and told once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from dnnstack.configs import RunConfig
from dnnstack.many import trainings
from dnnstack.training.assemble import load_data

Tiny = Callable[..., RunConfig]


@pytest.mark.parametrize("doubts", [(), ("twice",)])
def test_only_the_first_training_is_told(tiny, tmp_path, monkeypatch, doubts):
    loaded = []

    def noted(*given: object) -> object:
        loaded.append(replace(load_data(*given), doubts=doubts))
        return loaded[-1]

    monkeypatch.setattr(trainings, "load_data", noted)
    kept, config = trainings.Shelf(), tiny()
    found = [kept(config, "train", tmp_path) for _ in range(3)]
    assert len(loaded) == 1
    assert [each.doubts for each in found] == [doubts, (), ()]
    assert found[1] is found[2]
    assert all(each.images is loaded[0].images for each in found)
    # Other labels are other data.
    (tmp_path / "labels.csv").write_text("index,label\n0,3\n1,3\n")
    labelled = tiny("data.labels=labels.csv")
    assert kept(labelled, "train", tmp_path).labels[:2].tolist() == [3, 3]
    assert found[0].labels[:2].tolist() != [3, 3]
    assert len(loaded) == 2
