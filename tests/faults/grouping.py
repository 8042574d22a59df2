"""Faults in groups, of searches, seeds and folds: what they are tried on, and what may come."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dnnstack.many.journal import TRIALS, Journal
from dnnstack.many.outcome import outcome
from dnnstack.many.sweeping import BEST
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.records.formats.store import FOLDER, tensors_path
from dnnstack.training.records.runs import GROUP

from .calls import Call
from .conftest import NET, Ended
from .content import arrays_content, checkpoint_content, folder_content, records
from .content import checkpoints as all_checkpoints

if TYPE_CHECKING:
    from .scenes import Scene, Stage

MANY, SWEEP = "many.yaml", "sweep.yaml"
# A run that others' errors end is saved at any step.
_NET = NET.replace("max_steps: 7", "max_steps: 4").replace(
    "every_steps: 2, keep: 2", "every_steps: 1, keep: 99"
)
_SEARCH = """\
search:
  sampler: random
  trials: 3
  keys: {optimizer.lr: {low: 0.01, high: 0.3, log: true}}
"""
_TRAIN = ("train", "--config", MANY, "--threads", "1", "--workers", "2")
_SEARCHES = ("sweep", "--config", SWEEP, "--threads", "1", "--workers")
_DEPENDENT = "search.sampler=tpe"
_PRUNED = "search.prune={after_trials: 1, after_validations: 0}"
COMMANDS = {
    "seeds": (*_TRAIN, "--seeds", "2"),
    "folds": (*_TRAIN, "--folds", "2"),
    "sweep": (*_SEARCHES, "2"),
    "sweep-alone": (*_SEARCHES, "1", "--set", _DEPENDENT, "--set", _PRUNED),
}
_TOLD = re.compile(rb"^((?:trial|seed|fold)-\d+): (?:accuracy|pruned|finished)", re.MULTILINE)


def prepare(work: Path) -> None:
    """The configs of the commands."""
    (work / MANY).write_text(_NET, encoding="utf-8")
    (work / SWEEP).write_text(_NET + _SEARCH, encoding="utf-8")


def newest(work: Path) -> Path | None:
    """The folder of the group with the highest number, if one was begun."""
    found = [path.parent for path in work.glob(f"runs/*/{GROUP}")]
    return max(found, key=lambda path: (len(path.name), path.name), default=None)


def _runs(group: Path) -> list[Path]:
    """All but ``latest``, which is a link to one of them."""
    return sorted(path.parent for path in group.glob("*-[0-9]*/config.yaml"))


def _checkpoints(run: Path) -> dict[int, str]:
    """Those with something learned: a run that ends before its first step may have one, too."""
    return {step: content for step, content in all_checkpoints(run).items() if step}


def _events(group: Path) -> list[dict[str, Any]]:
    """The lines of the journal without times, in the order of their trials."""
    if not (group / TRIALS).exists():
        return []
    found = []
    for text in (group / TRIALS).read_text("utf-8").splitlines():
        try:
            found.append({**json.loads(text), "seconds": 0})
        except ValueError:
            # What a kill has left of a line.
            continue
    return sorted(found, key=lambda line: (line["trial"], line["event"]))


def _pruned(group: Path) -> set[str]:
    return {trial.name for trial in Journal(group).read() if trial.state == "pruned"}


def _whole(group: Path) -> dict[str, Any]:
    """All that must be the same, whatever happened on the way."""
    best = group / BEST
    # A fault behind the validation that decides leaves a pruned one as it is there.
    runs = [run for run in _runs(group) if run.name not in _pruned(group)]
    return {
        "runs": {run.name: (_checkpoints(run), records(run)) for run in runs},
        "trials": _events(group),
        "best": best.read_text("utf-8") if best.exists() else "",
        "locks": sorted(path.name for path in group.glob("trial-*.lock")),
    }


def told(calls: Iterable[Call]) -> set[str]:
    """The runs of which the user was told that they have ended."""
    said = b"".join(call.data for call in calls if call.op == "say" and call.fd == 1)
    return {name.decode() for name in _TOLD.findall(said)}


def ended(group: Path) -> set[str]:
    """The runs that the folder says have ended."""
    trials = {trial.name for trial in Journal(group).read() if trial.state is not None}
    return trials | {run.name for run in _runs(group) if outcome(run).finished}


def check_kept(work: Path, whole: Path, names: set[str]) -> None:
    """What is there is as in an undisturbed group; the runs of these names have ended."""
    group, want = newest(work), newest(whole)
    assert want is not None
    assert group is not None or not names
    if group is None:
        return
    missing = names - ended(group)
    assert not missing, f"{sorted(missing)} had ended, and are lost"
    known = {trial.number: dict(trial.params) for trial in Journal(want).read()}
    for trial in Journal(group).read():
        assert dict(trial.params) == known[trial.number]
    for run in _runs(group):
        for step in _checkpoints(run):
            assert _alike(run, want / run.name, step), f"{run.name}, step {step} differs"


def _alike(run: Path, whole: Path, step: int) -> bool:
    """Whether both have the same checkpoint; before a validation that is still due, the arrays."""
    path, other = (tensors_path(each / FOLDER, step) for each in (run, whole))
    if read_checkpoint(path).state.validation_due:
        return arrays_content(path) == arrays_content(other)
    return checkpoint_content(path) == checkpoint_content(other)


def finish_group(stage: Stage, scene: Scene, root: Path, whole: Path) -> None:
    """It can be brought to its end, which is that of an undisturbed group."""
    group = newest(root / "work")
    closed = set() if group is None else ended(group)
    second = stage.run(scene, root, again=group is not None)
    assert second.status == 0, second.err
    check_finished(root, whole)
    group = newest(root / "work")
    assert group is not None
    left = [path for path in folder_content(group) if path.endswith(".tmp")]
    # Those in the folder of a group, and in runs that are not opened again, stay.
    closed |= _pruned(group)
    left = [path for path in left if path.partition("/")[0] not in {path, *closed}]
    assert left == [], left


def check_finished(root: Path, whole: Path) -> None:
    group, want = newest(root / "work"), newest(whole / "work")
    assert group is not None
    assert want is not None
    found, expected = _whole(group), _whole(want)
    for part, content in expected.items():
        assert found[part] == content, f"{part}: {found[part]}, not {content}"


def check_group(
    stage: Stage, scene: Scene, root: Path, done: Ended, whole: Path, note: Callable[[str], None]
) -> None:
    """After a fault: nothing that ended is lost, and it can be brought to the same end."""
    check_kept(root / "work", whole / "work", told(done.calls))
    if done.status != 0:
        note("resumed")
        finish_group(stage, scene, root, whole)
    else:
        check_finished(root, whole)
