from __future__ import annotations

import json
from dataclasses import replace

import pytest
from dnnstack.backends.tuning import Tuning, _without_numbers, code_digest, fingerprint
from dnnstack.common.typed_json import from_json
from dnnstack.graph.augmentations import Rotate, Shift
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import GatherBatch, Pool2d
from dnnstack.layers.losses.focal import Focal

TUNING = Tuning("onednn", {"oneDNN": "3.2", "threads": "2"}, "abc", {"conv2d_1": "nhwc"})


def test_json_and_back():
    assert from_json(json.dumps(TUNING.to_json()), Tuning) == TUNING


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"backend": "x", "graph": "", "environment": {}, "choices": {"a": 1}},
        {"backend": 1, "graph": "", "environment": {}, "choices": {}},
        {"backend": "x", "graph": "", "environment": 3, "choices": {}},
        {"backend": "x", "graph": "", "environment": [1], "choices": {}},
    ],
)
def test_tables_that_are_not_ours(table):
    with pytest.raises(ValueError, match=r"Input|required"):
        from_json(json.dumps(table), Tuning)


@pytest.mark.parametrize(
    ("present", "reason"),
    [
        (TUNING, ""),
        (replace(TUNING, choices={}), ""),
        (replace(TUNING, backend="numpy"), "made for the onednn backend, this is numpy"),
        (replace(TUNING, graph="abd"), "another network, batch size or option"),
        (
            replace(TUNING, environment={"oneDNN": "3.3", "threads": "2"}),
            "oneDNN was 3.2, now it is 3.3",
        ),
        (replace(TUNING, environment={"isa": "avx2"}), "isa was unknown, now it is avx2"),
    ],
)
def test_misfit(present, reason):
    found = TUNING.misfit(present)
    assert reason in found
    assert bool(found) == bool(reason)


def section(
    count: int = 9, kernel: int = 2, origin: str = "a", name: str = "train", shift: float = 0.0
) -> Graph:
    graph = Graph(name, 2)
    with graph.at(origin, "forward"):
        x, y = graph.tensor("x", (2, 1, 4, 4)), graph.tensor("y", (2, 1, 5 - kernel, 5 - kernel))
        graph.add(
            GatherBatch(
                images=graph.tensor("images", (count, 1, 4, 4), "uint8", "data"),
                labels=graph.tensor("labels", (count,), "int32", "data"),
                order=graph.tensor("order", (2 * count,), "int32", "data"),
                step=graph.tensor("step", (1,), "int64", "state"),
                x=x,
                target=graph.tensor("target", (2,), "int32"),
                scale=(1.0,),
                shift=(shift,),
            )
        )
        graph.add(Pool2d(x=x, y=y, window=Window((kernel, kernel)), kind="max"))
    return graph


def test_fingerprint():
    """Geometry and sections count; how many pictures there are and who asked do not."""
    plain = fingerprint({"train": section()})
    assert plain == fingerprint({"train": section(count=100, origin="b")})
    assert plain != fingerprint({"train": section(kernel=3)})
    assert plain != fingerprint({"train": section()}, "fp64")
    assert plain != fingerprint({"other": section()})
    assert plain != fingerprint({"train": section(), "evaluate": section(name="evaluate")})


def test_fingerprint_without_numbers():
    """What is computed counts, and not with which numbers."""

    def marks(shift: float) -> tuple[str, str]:
        graph = {"train": section(shift=shift)}
        return fingerprint(graph), fingerprint(graph, numbers=False)

    none, one, other = (marks(shift) for shift in (0.0, 0.25, 0.5))
    assert len({none[0], one[0], other[0]}) == 3
    assert one[1] == other[1] != none[1]
    assert fingerprint({"train": section(kernel=3)}, numbers=False) != none[1]


def test_equal_numbers_of_an_operation_count():
    """One rate of decay for all parameters may be another call than several."""
    assert _without_numbers((0.5, 0.5, 0.0)) == _without_numbers((0.1, 0.1, 0.0))
    assert _without_numbers((0.5, 0.5, 0.0)) != _without_numbers((0.1, 0.2, 0.0))
    assert _without_numbers((Rotate(12.0),)) == _without_numbers((Rotate(3.0),))
    assert _without_numbers((Rotate(12.0),)) != _without_numbers((Rotate(12.0), Shift(2.0)))
    assert _without_numbers(Focal(2.0)) == _without_numbers(Focal(3.0))
    assert _without_numbers(Focal(2.0)) != _without_numbers(Focal(1.0))


def test_the_mark_of_a_package_is_of_its_code(tmp_path, monkeypatch):
    """In all folders that are named, and of nothing else."""
    home = tmp_path / "marked_package"
    (home / "sources").mkdir(parents=True)
    for name in ("__init__.py", "sources/__init__.py", "sources/a.cu", "sources/b.cuh", "c.txt"):
        (home / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    marks = [code_digest("marked_package", "sources")]
    for name in ("__init__.py", "sources/a.cu", "sources/b.cuh"):
        (home / name).write_text(f"# {name}")
        marks.append(code_digest("marked_package", "sources"))
    assert len(set(marks)) == 4
    assert all(len(mark) == 12 for mark in marks)
    (home / "c.txt").write_text("words")
    assert code_digest("marked_package", "sources") == marks[-1]
    assert code_digest("marked_package") != marks[-1]
