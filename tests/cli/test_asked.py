"""What train and sweep have been asked, in the words that a command to go on repeats."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dnnstack.cli.asked import Asked
from dnnstack.cli.main import main
from dnnstack.common.errors import DnnstackError

from ..support.stored import beside

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


@pytest.mark.parametrize(
    ("line", "does", "asked"),
    [
        (
            "train --config tiny.yaml --offline --same-samples --data-dir d",
            "training.fitting.fit",
            {"downloads": True, "same_samples": True, "data_dir": Path("d")},
        ),
        ("train --config tiny.yaml", "training.fitting.fit", {"downloads": False}),
        (
            "compress tiny --config stages.yaml --offline --same-samples --device numpy",
            "training.compressed.pipeline.compress",
            {"downloads": True, "same_samples": True},
        ),
        (
            "predict runs/tiny/curves.png --top 2 --invert --raw --min-probability 0.5",
            "classifier.Classifier.predict_each",
            {"top": 2, "invert": True, "raw": True, "min_probability": 0.5},
        ),
        (
            "predict runs/tiny/curves.png --no-invert --json",
            "classifier.Classifier.predict_each",
            {"top": 3, "invert": False, "raw": False, "min_probability": None},
        ),
    ],
)
def test_what_is_asked_comes_to_what_does_it(trained, tmp_path, monkeypatch, line, does, asked):
    """Downloads are told by whether they are forbidden."""
    (tmp_path / "stages.yaml").write_text(beside(__file__, "compress_stages.yaml"), "utf-8")
    shutil.copytree(trained, tmp_path, symlinks=True, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DNNSTACK_OFFLINE")
    heard = {}

    def hear(*_, **named):
        heard.update(named)
        raise DnnstackError("heard")

    monkeypatch.setattr(f"dnnstack.{does}", hear)
    assert main(line.split()) == 1
    assert {key: getattr(heard[key], "offline", heard[key]) for key in asked} == asked
