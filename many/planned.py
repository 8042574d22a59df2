"""Groups whose runs are known beforehand: several seeds, or the folds of a cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

from ..common.errors import CheckpointError, ConfigError, NonFiniteError
from ..common.records import dataclass
from ..configs import RunConfig, differences, effective_yaml, parse_config
from ..configs.search import assignment
from ..training.assemble import describe_data
from ..training.listener import Summary
from ..training.records.group import (
    Group,
    Kind,
    Member,
    deciding,
    is_group,
    read_group,
    write_group,
)
from ..training.records.resume import Resume, open_member
from ..training.records.runs import AUTO, LATEST, is_run, newest_first
from ..training.splits import settled
from .group import Claims, Taken, create_group, find_group
from .outcome import outcome

# What may be another in a group that goes on.
_FREE = ("run.", "checkpoint.", "data.root", "data.residency", "data.evaluation_batch_size")


@dataclass(frozen=True)
class Planned:
    """What to train: N seeds, or K folds, with or without strata."""

    kind: Kind
    count: int
    stratified: bool = False

    def members(self, config: RunConfig) -> tuple[Member, ...]:
        """Each run's name and settings. Seeds count up from the config's, on its own split."""
        if self.kind == "folds":
            strata = f", stratified: {str(self.stratified).lower()}"
            return tuple(
                Member(f"fold-{i}", (f"data.fold={{count: {self.count}, index: {i}{strata}}}",))
                for i in range(1, self.count + 1)
            )
        data = config.data
        split = config.seed if data.split_seed is None else data.split_seed
        seeds = range(config.seed, config.seed + self.count)
        return tuple(
            Member(f"seed-{seed}", (f"seed={seed}", f"data.split_seed={split}")) for seed in seeds
        )

    def folder(self, config: RunConfig, resume: str | None = None) -> Path:
        """The folder of a group; see ``open_group``. Seeds may become more."""
        members = self.members(config)
        path = open_group(config, self.kind, members, "", resume)
        group = read_group(path)
        # Those beyond the ones that are asked for are trained, too.
        longest = replace(self, count=max(self.count, len(group.members))).members(config)
        if longest[: len(group.members)] != group.members or (
            self.kind == "folds" and len(members) != len(group.members)
        ):
            raise CheckpointError(
                f"{path}: was begun with other {self.kind}: {len(group.members)}, the first with "
                f"{' '.join(group.members[0].settings)}; give the same again"
            )
        if len(members) > len(group.members):
            write_group(path, replace(group, members=members))
        return path


def open_group(
    config: RunConfig,
    kind: Kind,
    members: tuple[Member, ...],
    search: str,
    resume: str | None,
    changes: Callable[[Path, Group], Sequence[str]] = lambda path, group: (),
) -> Path:
    """The folder of a new group, or of the one that ``resume`` names.

    LATEST: the latest one of the config; AUTO: the same, or a new one if there is none. ``changes``
    in what a group was begun with, besides those of the config. Raises CheckpointError for a group
    of another kind, or with changes.
    """
    runs_dir, name = Path(config.run.dir), f"{config.name}-{kind}"

    def is_own(path: Path) -> bool:
        return is_group(path) and read_group(path).kind == kind

    if resume == AUTO:
        with deciding(runs_dir, name, is_own) as found:
            known = None if found is None else str(found)
            return open_group(config, kind, members, search, known, changes)
    if resume is None:
        group = Group(kind, effective_yaml(settled(config)), members, search)
        return create_group(runs_dir, name, group)
    if resume == LATEST:
        path = next(filter(is_own, newest_first(runs_dir, name)), None)
        if path is None:
            raise CheckpointError(
                f"{runs_dir}: has no group '{name}' to resume; start it without --resume"
            )
    else:
        path = find_group(resume, runs_dir)
    group = read_group(path)
    noun, other = ("sweep", "no sweep") if kind == "sweep" else ("group", f"not of {kind}")
    if group.kind != kind:
        raise CheckpointError(f"{path}: is a group of {group.kind}, {other}")
    if changed := [*changed_keys(group, config, path), *changes(path, group)]:
        raise CheckpointError(
            f"{path} was begun with another config (then -> now):",
            *(f"  {line}" for line in changed),
            f"undo these changes, or start a new {noun} without --resume",
        )
    return path


def changed_keys(group: Group, config: RunConfig, path: Path) -> list[str]:
    """The keys that are others than those that a group was begun with, without harmless ones."""
    if group.config == effective_yaml(config):
        return []
    begun = parse_config(group.config, f"{path} (its config)")
    lines = differences(begun, settled(config, begun))
    return [line for line in lines if not line.startswith(_FREE)]


def train_members(
    path: Path,
    train: Callable[[Member, Resume | None], Summary],
    notice: Callable[[str], None],
    begins: Callable[[int, int, Member], object],
    claims: Claims | Taken,
) -> Generator[tuple[Member, Summary | NonFiniteError]]:
    """Train the runs of a group that have not finished, one after the other.

    A run that was begun goes on from its newest checkpoint. ``begins`` is told the number of each,
    from 1, and of all. A training that diverges does not end those that follow. Only runs that
    nobody else has taken of ``claims`` are trained; the group is locked by the caller. Raises
    DnnstackError.
    """
    group = read_group(path)
    for place, member in enumerate(group.members, 1):
        run = path / member.name
        if not claims.take(place - 1) or (is_run(run) and outcome(run).finished):
            continue
        begins(place, len(group.members), member)
        resumed = open_member(run, notice)
        with nullcontext() if resumed is None else closing(resumed):
            try:
                done: Summary | NonFiniteError = train(member, resumed)
            except NonFiniteError as error:
                done = error
        yield member, done
        if isinstance(done, Summary) and done.state == "interrupted":
            return


def check_planned(planned: Planned, config: RunConfig) -> None:
    """Raise ConfigError for settings that the group itself makes."""
    if planned.kind == "folds" and (own := config.data.dataset.own_validation):
        raise ConfigError(
            f"{own}: the data set brings its own validation samples, so "
            "--folds has none to divide; leave out one of the two"
        )
    if planned.kind == "folds" and config.data.fold is not None:
        raise ConfigError("data.fold: --folds sets it; remove it from the config")
    if planned.kind == "folds" and config.data.dataset.type != "image_folder":
        # How many pictures a folder has is seen when they are read.
        count = describe_data(config).train_count
        if count is not None and count < planned.count:
            raise ConfigError(
                f"--folds: {count} samples cannot be divided into {planned.count} folds, each with "
                "a sample to validate on; use fewer"
            )


def settings_of(path: Path, name: str, settings: Sequence[str]) -> list[str]:
    """The settings of a run of the group in this folder, after those of the user."""
    return [*settings, f"name={name}", assignment("run.dir", str(path))]
