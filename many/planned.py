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
from ..training.records.group import Group, Kind, Member, read_group, write_group
from ..training.records.resume import Resume, open_member
from ..training.records.runs import AUTO, is_run
from ..training.splits import settled
from .claims import Claims, Taken
from .group import create_group, deciding_group, find_group, latest_group, lock_group
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

    def begin(self, config: RunConfig) -> Path:
        """The folder of a new group. Raises CheckpointError."""
        group = Group(self.kind, effective_yaml(settled(config)), self.members(config))
        return create_group(Path(config.run.dir), f"{config.name}-{self.kind}", group)

    def go_on(self, config: RunConfig, reference: str | None) -> Path:
        """The folder of a group that goes on, by default the latest one of the config.

        AUTO begins a group where there is none. Seeds may become more. Raises CheckpointError for
        a group of another config or kind.
        """
        if reference == AUTO:
            with deciding_group(config, self.kind) as found:
                return self.begin(config) if found is None else self.go_on(config, str(found))
        runs_dir = Path(config.run.dir)
        if reference is None:
            path = latest_group(runs_dir, f"{config.name}-{self.kind}", self.kind)
        else:
            path = find_group(reference, runs_dir)
        group = read_group(path)
        members = self.members(config)
        if group.kind != self.kind:
            raise CheckpointError(f"{path}: is a group of {group.kind}, not of {self.kind}")
        if changed := changed_keys(group, config, path):
            raise CheckpointError(
                f"{path} was begun with another config (then -> now):",
                *(f"  {line}" for line in changed),
                "undo these changes, or start a new group without --resume",
            )
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
    begins: Callable[[int, int, Member], object] = lambda *place: None,
    claims: Claims | Taken | None = None,
) -> Generator[tuple[Member, Summary | NonFiniteError]]:
    """Train the runs of a group that have not finished, one after the other.

    A run that was begun goes on from its newest checkpoint. ``begins`` is told the number of each,
    from 1, and of all. A training that diverges does not end those that follow. With ``claims``,
    only runs that nobody else has taken are trained, and the group is locked by the caller.
    Raises DnnstackError.
    """
    held = None if claims is not None else lock_group(path)
    with nullcontext() if held is None else held:
        group = read_group(path)
        for place, member in enumerate(group.members, 1):
            run = path / member.name
            if claims is not None and not claims.take(place - 1):
                continue
            if is_run(run) and outcome(run).finished:
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


def settings_of(path: Path, member: Member) -> Sequence[str]:
    """The settings of a run of the group in this folder, after those of the user."""
    return (*member.settings, f"name={member.name}", assignment("run.dir", str(path)))
