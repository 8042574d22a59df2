"""docs/architecture.md shows the calls of a step and the folders as they are."""

from __future__ import annotations

import re
from pathlib import Path

from dnnstack.backends.base import Options
from dnnstack.configs import load_config
from dnnstack.graph.ops import GatherBatch
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.sections import expected_sections

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_calls_of_a_step_are_listed(onednn):
    config = load_config("lenet.yaml").config
    info = describe_data(config)
    network = build_network(config, info)
    sections = expected_sections(config, network, preprocessing(config, info), info)
    train = sections.stretches[0].train
    executable = onednn.compile({train.name: train}, Options(tune=False))
    rows = [
        f"| {call.op.origin[0].phase} | {call.op.origin[0].layer} | {type(call.op).__name__} | "
        f"`{call.function}` |"
        for call in executable.calls(train.name)
        # One that scales pixels is more than a copy.
        if call.function != "dnnl_reorder" or isinstance(call.op, GatherBatch)
    ]
    executable.close()
    table = PAGE.partition("## A step of")[2]
    assert re.findall(r"^\| (?:data|forward|loss|backward|update) .*$", table, re.M) == rows


def test_every_folder_of_the_package_has_a_row():
    told = re.findall(r"^\| `([\w/]+)/` ", PAGE, re.M)
    tops = sorted(path.parent.name for path in ROOT.glob("*/py.typed"))
    assert sorted(folder for folder in told if "/" not in folder) == tops
    assert all((ROOT / folder).is_dir() for folder in told)


def test_every_file_that_is_named_is_there():
    named = re.findall(r"`((?:[a-z]+/)+\w+\.py)`", PAGE)
    assert len(named) > 5
    for name in named:
        assert (ROOT / name).is_file(), name
