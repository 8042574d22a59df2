"""What this process may take of the machine's memory and processors, by its control groups.

Containers, Slurm and systemd make such groups, of version 1 or 2. A limit holds for all groups
within a group too, so those that a group lies in are read as well, and the smallest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

# Each line has a version or controller, and the group of this process.
GROUPS = Path("/proc/self/cgroup")
MOUNTS = Path("/proc/self/mountinfo")
# Read besides: a sandbox may show nothing of its mounts.
USUAL = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 62
_MEMORY = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_QUOTAS = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
# Pages of files count as held, and go when they have to.
_FILES = ("active_file", "inactive_file")


def memory() -> tuple[int, int]:
    """Bytes that all processes of the groups may hold, and what is left; UNLIMITED without one."""
    most = left = UNLIMITED
    for folder, limit, held in _numbers("memory", _MEMORY):
        most, left = min(most, limit), min(left, max(limit - held + _of_files(folder), 0))
    return most, left


def processors() -> int:
    """Whole processors of the smallest quota, rounded up; UNLIMITED without one."""
    quotas = _numbers("cpu", _QUOTAS)
    found = (-(-quota // period) for _, quota, period in quotas if quota > 0 < period)
    return min(found, default=UNLIMITED)


def _numbers(controller: str, names: Iterable[Sequence[str]]) -> Iterator[tuple[Path, int, int]]:
    """The folder of each group, with two numbers from files of either version."""
    for folder in _folders(controller):
        for each in names:
            # Without a limit there is a word, or no file.
            with suppress(ValueError):
                first, second = map(int, " ".join(_text(folder / n) for n in each).split())
                yield folder, first, second


def _of_files(folder: Path) -> int:
    """Bytes of a group's file pages; version 1 has sums over the groups within under total_."""
    try:
        pairs = (line.split() for line in _text(folder / "memory.stat").splitlines())
        held = {name: int(size) for name, size in pairs}
    except ValueError:
        return 0
    return sum(held.get(f"total_{name}", held.get(name, 0)) for name in _FILES)


def _folders(controller: str) -> Iterator[Path]:
    """The folders of this process's groups, and of those that they lie in."""
    groups: dict[str, str] = {}
    for line in _text(GROUPS).splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        groups.update(dict.fromkeys(controllers.split(","), path))
    for line in _text(MOUNTS).splitlines():
        mount, _, system = line.partition(" - ")
        root, point = mount.split()[3:5]
        kind, *_, options = system.split()
        # Version 2 has one tree for all controllers.
        name = "" if kind == "cgroup2" else controller
        if kind != "cgroup2" and not (kind == "cgroup" and controller in options.split(",")):
            continue
        group = PurePosixPath(groups.get(name, "/"))
        within = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
        yield from (Path(point) / each for each in (within, *within.parents))
    yield from (USUAL, USUAL / controller)


def _text(path: Path) -> str:
    """What a file of the system says; "" if there is none."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
