"""Resuming from a checkpoint: which one, in which folder, and whether the config fits it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ...common.errors import CheckpointError, ConfigError, Warned
from ...common.files import read_regular, refuse_link
from ...common.records import dataclass
from ...configs import RunConfig, differences, effective_yaml, parse_config
from ...configs.plugins import changed_plugins
from ..rate_tables import rate_tables
from ..splits import settled
from .formats.checkpoint import Checkpoint
from .formats.dnnz import is_compressed
from .formats.store import (
    checkpoint_steps,
    named_checkpoint,
    newest_checkpoint,
    tensors_path,
    unfinished_steps,
)
from .overridden import forgotten, is_under, shown_change
from .runs import CONFIG, LONGEST_CONFIG, Run, is_run, reopen_run, run_of_checkpoint

# The keys that decide which sample is seen at which step, and what the arrays mean.
_FIXED = (
    "seed",
    "data.dataset",
    "data.batch_size",
    "data.validation",
    "data.fold",
    "data.stratified",
    "data.split_seed",
    "data.balance",
    "data.normalize",
    "layers",
    "prune",
    "share",
)
# The keys that may change without a note.
_FREE = (
    "name",
    "train",
    "run",
    "checkpoint",
    "data.root",
    "data.evaluation_batch_size",
    "data.residency",
)


@dataclass(frozen=True)
class Resume:
    """A verified checkpoint and the folder in which the run continues, locked.

    ``checkpoint`` None: the run has not saved any and starts over in its folder; ``run`` None: a
    new folder is created. ``starts``: nothing is resumed, and this keeps others from starting.
    """

    checkpoint: Checkpoint | None
    run: Run | None
    starts: ExitStack | None = None

    def close(self) -> None:
        """Unlock the folder."""
        if self.run is not None:
            self.run.close()
        if self.starts is not None:
            self.starts.close()


def open_resume(path: Path, notice: Callable[[str], None]) -> Resume:
    """Resume from a run's folder (its newest checkpoint that verifies) or from a checkpoint file.

    A file in a run's folder continues in that folder; ``notice`` is told which newer checkpoints
    are discarded by that, or were damaged. A run that was stopped before its first checkpoint
    starts over in its folder. Raises CheckpointError, LockedError.
    """
    if is_compressed(path):
        raise CheckpointError(
            f"{path}: is a compressed network, which has no state of a training to resume; begin a "
            f"new one with its weights: --init-from {path}"
        )
    folder = path if path.is_dir() else run_of_checkpoint(path)
    if path.is_dir() and not is_run(path):
        raise CheckpointError(f"{path}: is not the folder of a run: it has no config.yaml")
    # Lock first: another process may be about to write a newer checkpoint.
    run = reopen_run(folder, notice) if folder is not None else None
    try:
        if path.is_dir() and run is not None:
            if not checkpoint_steps(run.checkpoints):
                _refuse_to_overwrite(run)
                notice(f"{path}: has no checkpoint yet, so the run starts again from step 0")
                return Resume(None, run)
            return Resume(newest_checkpoint(run.checkpoints, notice), run)
        checkpoint = named_checkpoint(path)
        later = checkpoint_steps(checkpoint.path.parent) if run else []
        later = [step for step in later if step > checkpoint.state.step]
        if later:
            listed = ", ".join(map(str, sorted(later)))
            notice(
                f"continuing from step {checkpoint.state.step}; the checkpoints of later steps "
                f"({listed}) are deleted when the next one is saved"
            )
        return Resume(checkpoint, run)
    except BaseException:
        if run is not None:
            run.close()
        raise


def open_member(path: Path, notice: Callable[[str], None]) -> Resume | None:
    """``open_resume`` of a run in the folder of a group, not of a link; None if it is not begun."""
    refuse_link(path)
    return open_resume(path, notice) if is_run(path) else None


def _refuse_to_overwrite(run: Run) -> None:
    """Raise CheckpointError if there are checkpoints without manifests.

    A single one may be an interrupted first save, which starting over writes again.
    """
    steps = unfinished_steps(run.checkpoints)
    orphans = [tensors_path(run.checkpoints, step) for step in reversed(steps)]
    if len(orphans) > 1:
        names = ", ".join(path.name for path in orphans)
        raise CheckpointError(
            f"{run.checkpoints}: {names} have no manifests (step-N.json), and starting again would "
            f"replace them; continue from one of them, which verifies it: --resume {orphans[-1]}"
        )


def as_begun(resume: Resume, config: RunConfig, notice: Callable[[str], None]) -> RunConfig:
    """The config with the ``init_from`` of the run that goes on; ``notice`` is told of another.

    And stratified as the run is, see ``settled``.
    Raises CheckpointError if it begins again and its config cannot be read.
    """
    if resume.checkpoint is not None:
        text, name = resume.checkpoint.provenance.config, str(resume.checkpoint.path)
        if text == effective_yaml(config):
            return config
        begun = parse_config(text, name)
    else:
        assert resume.run is not None
        path = resume.run.path / CONFIG
        try:
            begun = parse_config(read_regular(path, LONGEST_CONFIG).decode(), str(path))
        except OSError as error:
            # To begin without its weights would be another training.
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, ConfigError):
            return settled(config)
    wanted = config.init_from
    if wanted is not None and wanted != begun.init_from:
        notice(
            f"init_from: {wanted.source} is not read, because a resumed run goes on with "
            "its own weights"
        )
    teacher = getattr(begun.loss, "teacher", "")
    if teacher and config.loss.type == begun.loss.type:
        named = os.path.expanduser(getattr(config.loss, "teacher", ""))
        here = Path(named).absolute(), Path(config.run.dir, named).absolute()
        if not any(map(Path(teacher).is_relative_to, here)):
            notice(
                f"loss.teacher: {named} is not read, because a resumed run goes on with its own "
                f"teacher, {teacher}"
            )
        loss = config.loss.model_copy(update={"teacher": teacher})
        config = config.model_copy(update={"loss": loss})
    return settled(config.model_copy(update={"init_from": begun.init_from}), begun)


def check_config(
    checkpoint: Checkpoint,
    config: RunConfig,
    notice: Callable[[str], None],
    overrides: Sequence[str] = (),
) -> None:
    """Compare the config with the checkpoint's own; allowed changes are reported to ``notice``.

    Those that ``not_repeated`` tells are not reported.

    Raises CheckpointError that lists the other changes: of the network, the data, their order.
    """
    if effective_yaml(config) == checkpoint.provenance.config:
        return
    before = parse_config(checkpoint.provenance.config, str(checkpoint.path))
    _check_plugins(checkpoint, before, notice)
    changed = [line for line in differences(before, config) if not is_under(line, ("plugins",))]
    found = [line for line in changed if not is_under(line, _FREE)]
    fatal = [line for line in found if is_under(line, _FIXED)]
    lost = forgotten(checkpoint, config, overrides)
    if fatal:
        path = checkpoint.path.parent.parent / CONFIG
        in_run = run_of_checkpoint(checkpoint.path) is not None
        own = f"take the run's own config (--config {path}), " if in_run else ""
        begun = []
        if set(fatal) & set(lost.changes):
            begun = [f"the run was started with {lost}, which may be repeated"]
        raise CheckpointError(
            f"{checkpoint.path} does not fit the config (checkpoint -> config):",
            *(f"  {shown_change(line)}" for line in fatal),
            *begun,
            f"undo these changes, {own}or start a new run without --resume",
        )
    if found := [line for line in found if line not in lost.changes]:
        changes = "; ".join(map(shown_change, found))
        notice(Warned(f"resuming with a changed config: {changes}"))
    longer = any(is_under(line, ("train.epochs", "train.max_steps")) for line in changed)
    if longer:
        for what in _that_follow_the_length(config):
            notice(
                f"{what} depends on the length of the training: with the new length it differs "
                "from before"
            )


def _check_plugins(
    checkpoint: Checkpoint, before: RunConfig, notice: Callable[[str], None]
) -> None:
    """Raise CheckpointError for a plugin that was changed, unless the user has named the file."""
    for plugin, sha256 in changed_plugins(before):
        text = (
            f"the plugin {plugin.path} was changed: {checkpoint.path} was trained with the file of "
            f"SHA-256 {sha256}, now it is {plugin.sha256}"
        )
        if not plugin.named:
            raise CheckpointError(
                f"{text}; put the file back, or continue with the changed one, whose results may "
                f"differ: --plugin {plugin.path}"
            )
        notice(Warned(f"{text}; the training continues with the changed file"))


def _that_follow_the_length(config: RunConfig) -> list[str]:
    """What would have been another at the steps already done."""
    schedules = {table.path: table.schedule for table in rate_tables(config).values()}
    found = [f"{k} '{s.kind}'" for k, s in schedules.items() if s.ends_with_training]
    lookahead = config.optimizer.lookahead
    return [*found, *(["optimizer.lookahead"] if lookahead and lookahead.power else [])]
