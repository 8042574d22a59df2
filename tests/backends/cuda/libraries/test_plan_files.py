"""Plans of cuDNN in the cache folder: taken by other processes as they were, or made again."""

from __future__ import annotations

import gc

import pytest
from dnnstack.backends.cuda.libraries import cudnn_library, plan_files
from dnnstack.backends.cuda.libraries.cudnn_library import Cudnn
from dnnstack.common.errors import CudnnError

from ....support.convolutions import BASE, forward


@pytest.fixture
def another(frontend, fake_cuda):
    """Starts another process: a library that has made nothing yet."""
    frontend.serializes = True

    def start():
        return Cudnn(fake_cuda.Stream())

    return start


def shown(graph):
    return graph.plan, graph.plan_name, graph.workspace_bytes, graph.shown


@pytest.mark.parametrize("wanted", [None, 7])
def test_another_process_takes_the_plan_as_it_was(another, frontend, trials, wanted):
    """Without heuristics, without a plan built and without a trial; it runs with its pointers."""
    trials.wrong = {0, 1}
    first = forward(another())
    first.choose(wanted)
    made, tried = len(frontend.numbers), [*frontend.tried]
    second = forward(another())
    second.choose(wanted)
    assert shown(second) == shown(first)
    assert (len(frontend.numbers), frontend.tried) == (made + 1, tried)
    assert frontend.asked == made
    second.bind({"x": 10, "w": 11, "y": 12}, 100)
    frontend.launched.clear()
    second.run()
    second.launch(second.plan, 200)()
    assert [(sorted(ends.values()), *rest) for ends, *rest in frontend.launched] == [
        ([10, 11, 12], 100, 0),
        ([10, 11, 12], 200, 0),
    ]
    # A search still has all the others.
    assert second.plans() == frontend.plans
    assert second.build(3)
    second.launch(3, 300)()
    assert frontend.launched[-1][1:] == (300, 3)


def test_a_restored_plan_that_does_not_run_is_made_anew_by_the_next_process(
    another, frontend, trials, monkeypatch
):
    forward(another()).choose()
    second = forward(another())
    second.choose()
    second.bind({"x": 10, "w": 11, "y": 12}, 100)

    def refuse(*_):
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(second._restored._graph, "_execute_plan_at_index", refuse)
    with pytest.raises(CudnnError, match="EXECUTION_FAILED"):
        second.run()
    asked = frontend.asked
    third = forward(another())
    third.choose()
    assert (third._restored, frontend.asked) == (None, asked + 1)


def test_what_was_asked_for_is_part_of_it(another, frontend, trials):
    forward(another()).choose(2)
    for wanted in (None, 3):
        before = len(frontend.tried)
        forward(another()).choose(wanted)
        assert len(frontend.tried) == before + 1


@pytest.mark.parametrize("name", ["name", "cuda_version", "capability"])
def test_another_device_makes_its_own(another, frontend, trials, monkeypatch, name):
    forward(another()).choose()
    monkeypatch.setattr(cudnn_library.device(), name, 13000 if name != "cuda_version" else 13009)
    forward(another()).choose()
    assert frontend.tried == [0, 0]


def plan_file(cache):
    (path,) = (cache / "plans").iterdir()
    return path


@pytest.mark.parametrize("kept_bytes", [0, 31, 32, 60, -1])
def test_a_torn_plan_is_made_again(another, frontend, trials, cache, kept_bytes):
    forward(another()).choose()
    path = plan_file(cache)
    whole = path.read_bytes()
    path.write_bytes(whole[:kept_bytes])
    for _ in range(2):
        forward(another()).choose()
    assert frontend.tried == [0, 0]
    assert len(path.read_bytes()) == len(whole)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\nx", b"[]\n", b"\xff\n", b'{"plan": 0, "name": "a", "workspace": -1, "ids": {}}\n'],
)
def test_a_file_of_other_content_is_made_again(another, frontend, trials, content):
    library = another()
    key = library.files._key(BASE, None)
    plan_files.kept.write(plan_files.FOLDER, key, content)
    forward(library).choose()
    assert frontend.tried == [0]


def test_a_plan_that_cudnn_does_not_take_is_made_again(another, frontend, trials):
    forward(another()).choose()
    frontend.refused = True
    library = another()
    for _ in range(2):
        forward(library).choose()
    assert frontend.tried == [0, 0]


def test_a_plan_that_cannot_be_serialized_is_not_kept(another, frontend, trials, cache):
    frontend.serializes = False
    forward(another()).choose()
    assert not (cache / "plans").exists()


def test_a_plan_that_was_not_built_last_is_not_kept(another, frontend, cache):
    """The frontend would serialize another one."""
    library = another()
    one, two = forward(library), forward(library)
    one.build(1)
    two.build(2)
    one.choose(1)
    assert not (cache / "plans").exists()
    one.choose(2)
    assert b'"engine 2"' in plan_file(cache).read_bytes()


def test_a_plan_is_verified_once_for_all_processes(another, frontend, trials):
    """That of a table which ships is tried by the first, and the others know."""
    first = forward(another())
    first.choose(4)
    assert trials.tried == []
    assert first.keeps_promises()
    second = forward(another())
    second.choose(4)
    made = len(frontend.numbers)
    assert second.keeps_promises()
    assert (trials.tried, len(frontend.numbers)) == ([4], made)


def test_a_wrong_plan_is_wrong_for_all_processes(another, frontend, trials):
    trials.wrong = {4}
    for _ in range(2):
        graph = forward(another())
        graph.choose(4)
        assert not graph.keeps_promises()


def test_no_restored_plan_outlives_its_handle(another, frontend, trials):
    forward(another()).choose()
    gc.collect()
    frontend.freed.clear()
    library = another()
    second = forward(library)
    second.choose()
    assert len(frontend.made) == 1
    del library, second
    gc.collect()
    assert not frontend.made
    assert [left for _, left in frontend.freed] == [0]
