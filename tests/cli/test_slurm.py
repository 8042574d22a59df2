"""Jobs of a real Slurm: ranks, a job that is put back into the queue, an array of seeds."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from ..support import ranks
from ..support.slurm import Slurm, lacking, slurm, wait_until

ROOT = Path(__file__).parents[2]
STEPS = 250
NET = ranks.NET.replace("max_steps: 14", f"max_steps: {STEPS}") + ranks.SGD
needs_slurm = pytest.mark.skipif(bool(lacking()), reason=lacking())


@pytest.mark.skipif(
    os.environ.get("DNNSTACK_EXPECT_SLURM") != "1",
    reason="DNNSTACK_EXPECT_SLURM=1 is not set: tests of jobs may be skipped",
)
def test_slurm_can_be_started_here():
    assert (lacking(), ranks.lacking()) == ("", "")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, cache):
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = ranks.environment(PATH=programs, DNNSTACK_CACHE=str(cache))
    with slurm(tmp_path_factory.mktemp("slurm"), told) as found:
        yield found


@pytest.fixture
def folder(tmp_path):
    """It holds a network under the names of those that the document trains."""
    for name in ("lenet", "cifar10-resnet9"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{NET}")
    return tmp_path


def documented(head: str) -> str:
    """The batch file of the document that has this option."""
    text = (ROOT / "docs" / "parallel.md").read_text("utf-8")
    blocks = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    (found,) = [block for block in blocks if f"#SBATCH {head}" in block]
    return re.sub(r"^    ", "", found, flags=re.MULTILINE)


def same_bits(run: Path, other: Path) -> bool:
    rows = [(each / "metrics.csv").read_text() for each in (run, other)]
    return ranks.bits(run, STEPS) == ranks.bits(other, STEPS) and rows[0] == rows[1]


def interrupted(cluster: Slurm, job: str, run: Path) -> None:
    """Tell the shell of a job, once it trains, that its time ends."""
    wait_until(lambda: (run / "log.jsonl").exists(), "the log begins")
    wait_until(lambda: len(ranks.events(run, "train")) > 3, "a few steps are done")
    cluster.run(run, "scancel", "--signal=USR1", "--batch", job)


@needs_slurm
@ranks.needs_launcher
def test_srun_starts_ranks(cluster, folder):
    train = ("dnnstack", "train", "--config", "lenet.yaml")
    text = cluster.run(folder, "srun", "--mpi=pmi2", "-n", "2", *train, "--threads", "1")
    assert "ranks       2 on this machine" in text
    cluster.run(folder, *train, "--runs-dir", "alone")
    assert same_bits(folder / "runs/lenet", folder / "alone/lenet")


@needs_slurm
@ranks.needs_launcher
def test_a_job_of_ranks_is_put_back_into_the_queue(cluster, folder):
    (folder / "train.sh").write_text(documented("--nodes=2"))
    run = folder / "runs/cifar10-resnet9"
    here = ("--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--output=job.out")
    job = cluster.run(folder, "sbatch", "--parsable", *here, "train.sh").strip()
    interrupted(cluster, job, run)
    cluster.start_again(job)
    config = ("--config", "cifar10-resnet9.yaml", "--set", "train.accumulate=8", "--threads", "1")
    cluster.run(folder, "dnnstack", "train", *config, "--runs-dir", "whole")
    cluster.until("COMPLETED", job)
    (stopped, done) = ranks.events(run, "end")
    assert (stopped["state"], done["state"]) == ("interrupted", "finished")
    assert 0 < stopped["step"] < STEPS
    assert [each["step"] for each in ranks.events(run, "resume")] == [stopped["step"]]
    assert same_bits(run, folder / "whole/cifar10-resnet9")
    assert sorted(path.name for path in run.parent.iterdir()) == ["cifar10-resnet9", "latest"]


@needs_slurm
def test_an_array_of_seeds(cluster, folder):
    (folder / "seeds.sh").write_text(documented("--array=1-5"))
    here = ("--array=1-2", "--cpus-per-task=1", "--output=job-%a.out")
    job = cluster.run(folder, "sbatch", "--parsable", *here, "seeds.sh").strip()
    runs = folder / "runs/lenet-seeds"
    second = f"{job}_2"
    interrupted(cluster, second, runs / "seed-2")
    cluster.until("PENDING", second)
    cluster.start_again(second)
    for seed in ("1", "2"):
        own = ("--set", f"seed={seed}", "--set", f"name=seed-{seed}", "--set", "data.split_seed=1")
        words = ("dnnstack", "train", "--config", "lenet.yaml", *own, "--runs-dir", "whole")
        cluster.run(folder, *words, "--threads", "1")
    cluster.until("COMPLETED", f"{job}_1", second)
    ends = {seed: ranks.events(runs / f"seed-{seed}", "end") for seed in (1, 2)}
    assert [each["state"] for each in ends[1]] == ["finished"]
    assert [each["state"] for each in ends[2]] == ["interrupted", "finished"]
    for seed in (1, 2):
        assert same_bits(runs / f"seed-{seed}", folder / f"whole/seed-{seed}")
