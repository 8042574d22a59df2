"""Sweeps with the sampler nsga2, whose trials are of generations."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..support.stored import beside
from .test_sweep import SWEEP, WORKERS, folder_of, kill_some, killed_often, lines_of

Child = Callable[..., Any]
Run = Callable[..., subprocess.CompletedProcess[str]]
GENETIC = beside(__file__, "sweep_generations_genetic.yaml")


def test_killed_at_random_it_makes_the_same_trials(child, tmp_path):
    whole, _ = killed_often(child, tmp_path, GENETIC, 11)
    begun = [line["generation"] for line in lines_of(whole) if line["event"] == "begin"]
    assert begun == [0, 0, 1, 1, 2]


def test_kills_of_workers_lose_no_trial_of_a_generation(child, environment, tmp_path):
    """Which are the parents depends on the order of the ends."""
    folder = folder_of(tmp_path, "one", GENETIC.replace("trials: 5", "trials: 8"), epochs=5)
    with subprocess.Popen(
        [sys.executable, "-m", "dnnstack.cli", *WORKERS, "2"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        kill_some(process, random.Random(3))
        process.communicate(timeout=300)
    done = child(folder, *WORKERS, "2", "--resume")
    assert done.status == 0, done.text
    lines = lines_of(folder)
    events = [(line["event"], line["trial"]) for line in lines]
    assert sorted(events) == sorted((e, n) for e in ("begin", "end") for n in range(8))
    begun = {line["trial"]: line["generation"] for line in lines if line["event"] == "begin"}
    assert all(generation <= trial // 2 for trial, generation in begun.items())
    assert begun[7] >= 2


def test_a_search_of_one_generation_is_told_that_it_is_random(run_in, tmp_path):
    for trials, told in ((2, True), (3, False)):
        search = GENETIC.replace("trials: 5", f"trials: {trials}")
        done = run_in(folder_of(tmp_path, f"of-{trials}", search), *SWEEP, status=0)
        words = "nsga2 draws the first 2 trials at random, so all 2 of this search; use more"
        assert (words in done.stderr) == told
