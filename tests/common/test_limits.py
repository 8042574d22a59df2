"""Limits of control groups of both versions: made-up trees, and real ones where there are any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dnnstack.common import limits, machine

NONE_V1 = "9223372036854771712"


@pytest.fixture(autouse=True)
def _own_files(tmp_path, monkeypatch):
    for name, path in (("GROUPS", "cgroup"), ("MOUNTS", "mountinfo"), ("USUAL", "usual")):
        monkeypatch.setattr(limits, name, tmp_path / path)


def say(tmp_path: Path, groups: str, *mounts: str) -> None:
    """What the system says: the groups of the process, and lines ``root point type options``."""
    (tmp_path / "cgroup").write_text(groups)
    lines = ["22 27 0:21 / /proc rw,relatime - proc proc rw", "23 27 0:9 / /x rw - fuse  rw"]
    for mount in mounts:
        root, point, kind, options = mount.split()
        lines.append(f"31 22 0:4 {root} {tmp_path / point} rw shared:9 - {kind} {kind} {options}")
    (tmp_path / "mountinfo").write_text("\n".join(lines) + "\n")


def group(folder: Path, **values: object) -> None:
    """A group's files; ``memory_max`` stands for memory.max."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")


def test_without_groups_nothing_is_limited(tmp_path):
    assert limits.memory() == (limits.UNLIMITED, limits.UNLIMITED)
    assert limits.processors() == limits.UNLIMITED
    say(tmp_path, "0::/\n", "/ two cgroup2 rw")
    group(tmp_path / "two", memory_max="max", memory_current=5000, cpu_max="max 100000")
    assert limits.memory() == (limits.UNLIMITED, limits.UNLIMITED)
    assert limits.processors() == limits.UNLIMITED


def test_of_nested_groups_of_version_2_the_smallest_limit_counts(tmp_path):
    say(tmp_path, "0::/slurm/job_1/step_0\n", "/ two cgroup2 rw,nsdelegate")
    step = tmp_path / "two/slurm/job_1/step_0"
    group(step, memory_max="max", memory_current=1000, cpu_max="max 100000")
    group(step.parent, memory_max=400_000, memory_current=100_000, cpu_max="250000 100000")
    group(step.parent.parent, memory_max=900_000, memory_current=850_000, cpu_max="900000 100000")
    assert limits.memory() == (400_000, 50_000)
    assert limits.processors() == 3
    group(step, memory_max=300_000, memory_current=280_000, cpu_max="200000 100000")
    assert limits.memory() == (300_000, 20_000)
    assert limits.processors() == 2


def test_of_nested_groups_of_version_1_likewise(tmp_path):
    say(
        tmp_path,
        "9:name=systemd:/x\n4:memory:/job/step\n3:cpu,cpuacct:/other/step\n0::/\n",
        "/ systemd cgroup rw,name=systemd",
        "/ memory cgroup rw,memory",
        "/ cpu,cpuacct cgroup rw,cpu,cpuacct",
        "/ unified cgroup2 rw",
    )
    step = tmp_path / "memory/job/step"
    group(step, memory_limit_in_bytes=NONE_V1, memory_usage_in_bytes=1000)
    group(step.parent, memory_limit_in_bytes=70_000, memory_usage_in_bytes=30_000)
    group(tmp_path / "memory", memory_limit_in_bytes=NONE_V1, memory_usage_in_bytes=90_000)
    # A group of another controller limits nothing here.
    group(tmp_path / "memory/other", memory_limit_in_bytes=1, memory_usage_in_bytes=0)
    step = tmp_path / "cpu,cpuacct/other/step"
    group(step, cpu_cfs_quota_us=-1, cpu_cfs_period_us=100_000)
    group(step.parent, cpu_cfs_quota_us=100_001, cpu_cfs_period_us=50_000)
    assert limits.memory() == (70_000, 40_000)
    assert limits.processors() == 3
    group(step, cpu_cfs_quota_us=50_000, cpu_cfs_period_us=50_000)
    assert limits.processors() == 1


def test_a_container_sees_a_part_of_the_tree(tmp_path):
    """Its mount begins at its own group, which the paths of processes name from the true root."""
    say(tmp_path, "4:memory:/docker/c/job\n", "/docker/c memory cgroup rw,memory")
    group(tmp_path / "memory/job", memory_limit_in_bytes=500, memory_usage_in_bytes=100)
    assert limits.memory() == (500, 400)
    # A process that was moved out of it.
    say(tmp_path, "4:memory:/elsewhere\n", "/docker/c memory cgroup rw,memory")
    group(tmp_path / "memory", memory_limit_in_bytes=900, memory_usage_in_bytes=200)
    assert limits.memory() == (900, 700)


@pytest.mark.parametrize("folder", ["usual", "usual/memory"])
def test_the_usual_places_are_read_whatever_is_said_of_mounts(tmp_path, folder):
    group(tmp_path / folder, memory_max=800, memory_current=300)
    assert limits.memory() == (800, 500)


def test_pages_of_files_count_as_free(tmp_path):
    stat = "anon 900\ninactive_file 20\nactive_file 10\nfile 31"
    group(tmp_path / "usual", memory_max=800, memory_current=300, memory_stat=stat)
    assert limits.memory() == (800, 530)
    # Version 1 counts those of the groups within apart.
    group(tmp_path / "usual", memory_stat=stat + "\ntotal_inactive_file 50\ntotal_active_file 1")
    assert limits.memory() == (800, 551)
    group(tmp_path / "usual", memory_current=900, memory_stat="anon 5")
    assert limits.memory() == (800, 0)
    group(tmp_path / "usual", memory_stat="of another kind")
    assert limits.memory() == (800, 0)


@pytest.mark.parametrize("quota", ["0 100000", "100000 0", "-1 100000", "max 100000", "", "1 2 3"])
def test_a_quota_that_is_none(tmp_path, quota):
    group(tmp_path / "usual", cpu_max=quota)
    assert limits.processors() == limits.UNLIMITED


def test_the_machine_is_what_the_groups_leave_of_it(monkeypatch):
    memory, cores = machine.main_memory(), machine.available_threads()
    monkeypatch.setattr(limits, "memory", lambda: (memory - 1, 7))
    monkeypatch.setattr(limits, "processors", lambda: cores + 1)
    assert (machine.main_memory(), machine.available_threads()) == (memory - 1, cores)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {3, 4, 5}, raising=False)
    monkeypatch.setattr(limits, "processors", lambda: 2)
    assert machine.available_threads() == 2


SAID = """
import os, sys
for group in sys.argv[1:]:
    open(group + "/cgroup.procs", "w").write(str(os.getpid()))
from dnnstack.common import limits, machine
print(limits.memory()[0], limits.processors(), machine.available_threads())
"""


@pytest.fixture
def groups():
    """Real groups within groups of version 1, by controller; gone afterwards."""
    made = {}
    for controller in ("memory", "cpu", "cpuset"):
        outer = Path(f"/sys/fs/cgroup/{controller}/dnnstack-test-{os.getpid()}")
        try:
            outer.mkdir()
            (outer / "inner").mkdir()
        except OSError:
            continue
        made[controller] = outer
    yield made
    for outer in made.values():
        (outer / "inner").rmdir()
        outer.rmdir()


def test_real_groups(groups):
    if len(groups) < 3:
        pytest.skip("no groups of version 1 can be made here")
    (groups["memory"] / "memory.limit_in_bytes").write_text("400M")
    (groups["cpu"] / "cpu.cfs_quota_us").write_text("100000")
    last = str(max(os.sched_getaffinity(0)))
    for folder in (groups["cpuset"], groups["cpuset"] / "inner"):
        for name, text in (("cpuset.mems", "0"), ("cpuset.cpus", last)):
            (folder / name).write_text(text)

    def said(*names: str) -> list[int]:
        words = [sys.executable, "-c", SAID, *(str(groups[name] / "inner") for name in names)]
        return [*map(int, subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.split())]

    assert said("memory", "cpu") == [400 << 20, 1, 1]
    assert said("cpuset")[2] == 1
