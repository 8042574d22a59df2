"""Going on with what a command has begun, or beginning it: one command for every start of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...common.errors import CheckpointError
from ...common.files import make_folder
from ...common.locks import NO_LOCKS, lock
from .resume import Resume, open_resume
from .runs import COMPRESSION, GROUP, config_name, is_bare, newest_first

_TRIES = 500
ELSEWHERE = "choose another folder with --runs-dir, or with run.dir of the config"


def resume_or_start(name: str, runs_dir: Path, notice: Callable[[str], None]) -> Resume:
    """The latest run of a config of this name, as ``open_resume`` gives it; see ``deciding``.

    Without such a run it ``starts``: until it is closed, this call raises LockedError elsewhere.
    """
    with ExitStack() as stack:
        turn = deciding(runs_dir, name, lambda path: config_name(path) == name)
        found = stack.enter_context(turn)
        return Resume(None, None, stack.pop_all()) if found is None else open_resume(found, notice)


@contextmanager
def deciding(runs_dir: Path, name: str, is_own: Callable[[Path], bool]) -> Iterator[Path | None]:
    """Gives the folder ``name-N`` of the highest N that ``is_own``, None if there is none.

    Until the end of the block no other process decides the same. Raises LockedError if one that
    does takes too long, CheckpointError for a folder of this name that says no longer what it is.
    """
    with ExitStack() as stack:
        try:
            make_folder(runs_dir)
            stack.enter_context(lock(runs_dir / f".{name}.lock", keep=False, tries=_TRIES))
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise unwritable(runs_dir, error) from None
        yield _latest(runs_dir, name, is_own)


def _latest(runs_dir: Path, name: str, is_own: Callable[[Path], bool]) -> Path | None:
    for path in newest_first(runs_dir, name):
        if is_own(path):
            return path
        others = any((path / record).is_file() for record in (GROUP, COMPRESSION))
        if not (others or is_bare(path) or config_name(path)):
            raise CheckpointError(
                f"{path}: may be what is to go on, but its record (config.yaml, {GROUP} or "
                f"{COMPRESSION}) is missing or damaged, so nothing is begun beside it; put the "
                "record back, continue from a checkpoint (--resume FILE), or move the folder away"
            )
    return None


def unwritable(path: Path, error: OSError) -> CheckpointError:
    """The error of a folder of runs, or of a file in it, that cannot be written."""
    where = error.filename or path
    return CheckpointError(f"{where}: cannot be written: {error.strerror}; {ELSEWHERE}")
