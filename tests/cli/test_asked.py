"""What train and sweep have been asked, in the words that a command to go on repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.cli.asked import Asked

NOTHING = {
    **dict.fromkeys(("resume", "device", "threads", "data_dir", "runs_dir")),
    **dict.fromkeys(("same_samples", "no_graph", "offline"), False),
}


def asked(**more):
    return Asked("a.yaml", ("seed=1",), (), **{**NOTHING, **more})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, []),
        ({"offline": True}, ["--offline"]),
        ({"no_graph": True}, ["--no-graph"]),
        ({"same_samples": True, "workers": 2}, ["--same-samples", "--workers", "2"]),
        (
            {"data_dir": Path("d"), "workers": 3, "together": True},
            ["--data-dir", "d", "--workers", "3", "--together"],
        ),
    ],
)
def test_the_options_are_given_again(given, words):
    assert asked(**given).words() == words


def test_more_words_come_before_those_of_workers():
    assert asked(offline=True, workers=2).words("--seeds", "3") == [
        *("--offline", "--seeds", "3", "--workers", "2")
    ]


def test_options_stand_for_keys():
    found = asked(device="cpu", threads=2, runs_dir=Path("r"), keys={"init_from.source": None})
    assert found.changes == ("seed=1", 'run.device="cpu"', "run.threads=2", 'run.dir="r"')
