"""The machine loses power behind any call: no checkpoint that was reported as saved is lost.

A compression can be brought to its end. The calls of a command are recorded with their data;
``replay.py`` makes the folders that a loss can leave. A sample; ``DNNSTACK_FAULTS=all`` is every
state, each with a resume to the end.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dnnstack.training.records.formats.store import best_checkpoint, newest_checkpoint
from dnnstack.training.records.runs import find_run

from .calls import KILLS, WRITING, reported
from .compressing import arrays, check_compression
from .conftest import Ended
from .content import checkpoint_content
from .grouping import COMMANDS, check_kept, finish_group, told
from .replay import Disk, Model, State
from .scenes import RUN, SCENES, Scene, Stage, check_resumed, cut_records
from .test_failing_calls import EVERYTHING

PARTS = 8 if EVERYTHING else 1
# Of the states of a scene, how many are looked at, and how many of these are resumed from.
LOOKED_AT, RESUMED = 150, 6
pytestmark = pytest.mark.timeout(0 if EVERYTHING else 600)
Note = Callable[[str, object], None]


@pytest.fixture(scope="module")
def stage(play, shim, quick_folder):
    if shim is None:
        pytest.skip("there is no C compiler for the shim, and Python alone does not see every call")
    return Stage(play, quick_folder, "numpy")


def _check_group(stage: Stage, scene: Scene, disk: Disk, state: State, resume: bool) -> None:
    root = stage.empty()
    state.write(root)
    whole = stage.end(scene)
    check_kept(root / "work", whole / "work", told(disk.calls[: state.at + 1]))
    if resume:
        finish_group(stage, scene, root, whole)


def _check(stage: Stage, scene: Scene, disk: Disk, state: State, resume: bool) -> None:
    root = stage.empty()
    state.write(root)
    want, begun = stage.undisturbed(scene), stage.started(scene)
    told = reported(disk.calls[: state.at + 1])
    run = root / RUN
    if told >= 0 or begun:
        found = newest_checkpoint(run / "checkpoints")
        least = told if scene.name == "earlier" else max([told, *begun])
        assert found.state.step >= least, f"step {least} was saved, {found.state.step} is left"
        if told >= 0:
            assert checkpoint_content(found.path) == want.steps[found.state.step]
        if told >= 0 or scene.name != "earlier":
            # Else those of the other timeline are just being deleted.
            best = best_checkpoint(run / "checkpoints")
            known = [steps.get(best.state.step) for steps in (want.steps, begun)]
            assert checkpoint_content(best.path) in known
            assert found.state.best is None or best.state.step == found.state.best.step
        if disk.has("work/runs/latest"):
            assert find_run(None, run.parent).samefile(run)
        if told >= 0 or scene.name != "earlier":
            assert cut_records(run, found.state) == cut_records(stage.whole(scene), found.state)
    if resume:
        check_resumed(stage, scene, root, told >= 0)


def _check_compression(stage: Stage, scene: Scene, disk: Disk, state: State, resume: bool) -> None:
    """A file is whole if it is there, which it is if it was reported; the end can be reached."""
    root = stage.empty()
    state.write(root)
    (want,) = arrays(stage.end(scene) / "work")
    found = arrays(root / "work")
    said = b"".join(call.data for call in disk.calls[: state.at + 1] if call.op == "say")
    assert found or b"written   " not in said, "the file was reported, and is not there"
    assert all(each[name].tobytes() == want[name].tobytes() for each in found for name in want)
    if resume:
        lost = Ended(-9, "", "", [])
        check_compression(stage, scene, root, lost, stage.end(scene), lambda what: None)


def _look_at(
    stage: Stage, scene: Scene, disk: Disk, model: Model, part: int, note: Note, share: int = 0
) -> None:
    """Check states: those of one part, or of a sample; ``share``: of so many calls of this."""
    if EVERYTHING:
        states = list(disk.states(model, seed=1))
        chosen, resumed = states if share else states[part::PARTS], 20 if share else 1
    else:
        chosen = list(disk.states(model, seed=1, most=LOOKED_AT // max(share, 1)))
        resumed = max(1, len(chosen) * max(share, 1) // RESUMED)
    alone = _check if scene.trains else _check_compression
    faults, check = [], _check_group if scene.is_group else alone
    for number, state in enumerate(chosen):
        try:
            check(stage, scene, disk, state, number % resumed == 0)
        except Exception as error:
            call = disk.calls[state.at]
            where = f"{call.op} {call.path} {call.other}"
            faults.append(f"behind call {state.at} ({where}): {type(error).__name__}: {error}")
    note(f"power losses, {model}", len(chosen))
    note(f"power losses, {model}: resumed", len(chosen[::resumed]))
    assert not faults, "\n".join([f"{len(faults)} of {len(chosen)}", *faults[:12]])


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("model", ["strict", "journalling"])
@pytest.mark.parametrize("name", ["cold", "train", "resume", "earlier", "compress", *COMMANDS])
def test_no_saved_checkpoint_is_lost(stage, record_property, name, model, part):
    scene = SCENES[name]
    root = stage.fresh(scene)
    disk = Disk(root)
    ended = stage.run(scene, root, data=True)
    assert ended.status == 0, ended.err
    disk.run(root, ended.calls)
    _look_at(stage, scene, disk, model, part, record_property)


def _killing_calls(stage: Stage, scene: Scene) -> list[int]:
    """The calls that make, rename or link something, by their numbers among those that write."""
    counted = [call for call in stage.undisturbed(scene).ended.calls if call.number]
    writing = [call for call in counted if call.kind in WRITING]
    ops = ("mkdir", "rename", "symlink")
    return [number for number, call in enumerate(writing, 1) if call.op in ops]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("model", ["strict", "journalling"])
def test_nor_one_of_a_run_that_was_killed_before(stage, record_property, model, part):
    """Killed behind a call that nothing makes durable any more, continued, and then the loss."""
    scene = SCENES["train"]
    numbers = _killing_calls(stage, scene)
    chosen = numbers[part::PARTS] if EVERYTHING else numbers[:: max(1, len(numbers) // 5)]
    for number in chosen:
        root = stage.fresh(scene)
        disk = Disk(root)
        killed = stage.run(scene, root, data=True, fault=KILLS[1].job(number))
        assert killed.status == -9
        disk.run(root, killed.calls)
        begun = (root / RUN / "config.yaml").exists()
        ended = stage.run(scene, root, data=True, again=begun)
        assert ended.status == 0, ended.err
        disk.run(root, ended.calls)
        if (root / RUN.parent / "net-2").exists():
            continue
        _look_at(stage, scene, disk, model, 0, record_property, share=len(chosen))
