"""Which networks the members of an ensemble are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..common.errors import CheckpointError, DatasetError, UsageError, only_warned
from ..datasets import ImageSet
from ..datasets.loader import Index
from ..training.inference.evaluate import Part
from ..training.inference.trained import Trained, find_trained, is_file
from ..training.own_samples import choose
from ..training.plan import snapshot_steps
from ..training.records.formats.store import checkpoint_steps, named_checkpoint, tensors_path
from ..training.splits import divide
from .ensemble import check_members
from .group import group_at, runs_of
from .outcome import outcome


def find_members(
    references: Sequence[str], runs_dir: Path, notice: Callable[[str], None]
) -> list[Trained]:
    """The networks that the references name: runs, checkpoint files, and groups of runs.

    A reference is a name in ``runs_dir`` or a path, or several of these with commas between. Of a
    group its finished runs are taken, of a run its snapshots if it has any. Raises CheckpointError
    for one that is not there, or does not fit the others; UsageError for fewer than two networks,
    and for one that is named twice.
    """
    members: list[Trained] = []
    for reference in _separated(references, runs_dir):
        if (group := group_at(reference, runs_dir)) is not None:
            members += _of_group(group, notice)
        else:
            members += _of_run(reference, runs_dir, notice)
    paths = [member.path.resolve() for member in members]
    for place, path in enumerate(paths):
        if path in paths[:place]:
            raise UsageError(f"--ensemble: {members[place].path} is named twice")
    if len(members) < 2:
        found = f"only {members[0].path} is" if members else "none is"
        raise UsageError(f"--ensemble: expected at least two networks, but {found} named")
    check_members(members)
    return members


def find_network(reference: str, runs_dir: Path, notice: Callable[[str], None]) -> Trained:
    """The network of a run or of a checkpoint file. Raises CheckpointError."""
    file = Path(reference)
    if is_file(file):
        return find_trained(None, file, runs_dir, notice)
    return find_trained(reference, None, runs_dir, notice)


def _separated(references: Sequence[str], runs_dir: Path) -> list[str]:
    """The references, where commas separate what does not exist as a whole."""
    found: list[str] = []
    for reference in references:
        whole = "," not in reference or any(
            path.exists() for path in (runs_dir / reference, Path(reference))
        )
        found += [reference] if whole else [word for word in reference.split(",") if word]
    return found


def _of_group(group: Path, notice: Callable[[str], None]) -> list[Trained]:
    runs = runs_of(group)
    finished = [run for run in runs if outcome(run).finished]
    if not finished:
        raise CheckpointError(f"{group}: none of its {len(runs)} runs has finished")
    if len(finished) < len(runs):
        notice(f"{group}: {len(runs) - len(finished)} runs that have not finished are left out")
    notice(f"using {len(finished)} runs of {group}")
    members = (_of_run(str(run), group, only_warned(notice)) for run in finished)
    return [member for found in members for member in found]


def _of_run(reference: str, runs_dir: Path, notice: Callable[[str], None]) -> list[Trained]:
    """The snapshots of a run, the first one first; its best network, or that of a file."""
    notices: list[str] = []
    found = find_network(reference, runs_dir, notices.append)
    if not Path(reference).is_file() and (taken := _snapshots(found)):
        notice(f"using {len(taken)} snapshots of {found.path.parent.parent}")
        return taken
    for text in notices:
        notice(text)
    return [found]


def _snapshots(one: Trained) -> list[Trained]:
    """Those of the run that this network is of, as far as they are there."""
    folder, per_epoch = one.path.parent, one.checkpoint.provenance.steps_per_epoch
    there = set(checkpoint_steps(folder))
    steps = [step for step in snapshot_steps(one.config, per_epoch) if step in there]
    return [Trained.of(named_checkpoint(tensors_path(folder, step))) for step in steps]


def check_parts(members: Sequence[Trained], part: Part, images: ImageSet) -> None:
    """Raise DatasetError if the members divided the training set in different ways.

    What one member validates on, another one would have been trained on.
    """
    if part == "test":
        return
    first = members[0]
    own = _validated(first, images)
    for other in members[1:]:
        same = other.config.data.dataset == first.config.data.dataset
        if not same or not np.array_equal(own, _validated(other, images)):
            raise DatasetError(
                f"{first.path} and {other.path} have different validation samples, so one of them "
                "would be judged on samples that it has learned; use the test set, or networks "
                "with the same data.dataset, data.validation and data.split_seed (default: seed), "
                "and without folds"
            )


def _validated(member: Trained, images: ImageSet) -> Index:
    """The samples that a network was validated on, ascending; of another data set, would be."""
    config, origin = member.config, (member.path, member.checkpoint.provenance)
    if images.name.partition("/")[0] != config.data.dataset.type:
        return divide(config, images.labels, images.held)[1]
    taken = choose(config, images, origin, None, False, True, lambda text: None)
    return np.sort(taken.rows[taken.validation])
