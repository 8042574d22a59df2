"""Layers whose units lie on the ranks: the same training as by one rank, but for roundings."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.cli.main import main
from dnnstack.configs import RunConfig, parse_config
from dnnstack.reports.summary import summarize
from dnnstack.training.assemble import build_network, describe_data, load_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.share import RankShare

from ...support.ranks import NET, SGD, needs_launcher, trained
from ...support.stored import cases
from ...support.threads import Threads
from ...support.trainings import NOWHERE

SPLIT = NET.replace(
    "filters: 6, kernel_size: 3", "filters: 8, kernel_size: 3, parallel: {split: filters}"
).replace("dense: {units: 24}", "dense: {units: 24, parallel: {split: units}}")
GROUPED = """
optimizer: {type: sgd, lr: 0.05, momentum: 0.9, clip_norm: 0.5, ema: {decay: 0.8}, groups: [
  {parameters: dense_1.bias, lr_factor: 2}, {kind: bias, weight_decay: 0.01}]}
"""
# Each of the first three steps trains other parameters.
FROZEN = """
optimizer: {type: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.01, weight_decay_on: weights,
  groups: [{parameters: conv2d_1.*, freeze_after_epoch: 0.25},
    {parameters: dense_2.*, freeze_until_epoch: 0.125}]}
"""
BACKENDS: dict[str, Callable[[], Backend]] = {
    "numpy": lambda: ReferenceBackend(1),
    "cpu": lambda: OneDnnBackend(1),
}


def configured(text: str, *overrides: str) -> RunConfig:
    return parse_config(text, "net.yaml", overrides)


def states(
    config: RunConfig, backend: Backend, ranks: int, steps: int = 3
) -> tuple[dict[str, Array], Array]:
    """What every rank has after some steps, whole, and the sums of a batch of the validation.

    What a rank has sent at most in the steps must be what the summary says.
    """
    threads = Threads(ranks)
    info, data = describe_data(config), load_data(config, "train", NOWHERE)
    scaling, plan = preprocessing(config, info), make_plan(config, len(data))

    def one(rank: int) -> tuple[Mapping[str, Array], Mapping[str, tuple[int, ...]], Array]:
        network = build_network(config, info)
        setup = Setup(config, network, scaling, plan, data, share=RankShare(rank, ranks))
        session = Session(setup, backend)
        session.begin(None)
        session.run(steps)
        sent.append(threads.sent)
        sums = session.evaluated_batch(1)
        found = session.arrays(), session.shapes(), sums
        session.close()
        return found

    sent: list[int] = []
    every = threads.run(one)
    told = summarize(config, Path("net.yaml"), ranks=ranks).sent_bytes
    # oneDNN's layouts are padded, and gradients are added up with their padding: by AVX2 up to 5%.
    padding = 0.06 * told if isinstance(backend, OneDnnBackend) else 0
    if any(group.freeze_after_epoch is not None for group in config.optimizer.groups or ()):
        # What is told is of the step that trains the most.
        assert max(sent) < steps * told
    else:
        assert max(sent) == pytest.approx(steps * told, abs=steps * padding)
    assert (told > 0) == (ranks > 1)
    whole = {}
    for name, shape in every[0][1].items():
        own = [arrays[name] for arrays, _, _ in every]
        if own[0].shape == shape:
            assert all(np.array_equal(other, own[0]) for other in own), name
            whole[name] = own[0]
        else:
            whole[name] = np.concatenate(own)
        assert whole[name].shape == shape, name
    assert all(np.array_equal(sums, every[0][2]) for _, _, sums in every)
    return whole, every[0][2]


def assert_near(got: Mapping[str, Array], want: Mapping[str, Array], most: float) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        size = max(1.0, float(np.abs(array).max()))
        np.testing.assert_allclose(got[name], array, rtol=0, atol=most * size, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", [SGD, GROUPED], ids=["sgd", "groups"])
def test_units_on_the_ranks_change_roundings_alone(backend, rule):
    config, device = configured(SPLIT + rule), BACKENDS[backend]()
    want, right = states(config, device, 1)
    for ranks in (2, 4):
        got, sums = states(config, device, ranks)
        assert_near(got, want, 2e-6)
        np.testing.assert_allclose(sums, right, rtol=1e-5)


def test_without_batch_norm_one_step_is_that_of_the_whole_batch():
    """Four ranks against a batch in one part: sums in another order, and nothing else."""
    text = SPLIT.replace("  - batch_norm\n", "") + "optimizer: {type: sgd, lr: 0.05}\n"
    device = ReferenceBackend(1)
    want, _ = states(configured(text, "train.accumulate=1"), device, 1, steps=1)
    got, _ = states(configured(text), device, 4, steps=1)
    assert_near(got, want, 1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rule", [SGD, GROUPED, FROZEN], ids=["sgd", "groups", "frozen"])
def test_sums_in_pieces_change_no_bit(backend, rule):
    """However many there are; layers that are split have none."""
    device = BACKENDS[backend]()
    # Filters that oneDNN pads would send more than the summary says.
    text = (SPLIT if backend == "cpu" else NET) + rule
    want, sums = states(configured(text), device, 4)
    for buckets in (3, 100):
        got, found = states(configured(text, f"parallel={{buckets: {buckets}}}"), device, 4)
        assert_near(got, want, 0.0)
        np.testing.assert_array_equal(found, sums)


@needs_launcher
def test_a_checkpoint_of_split_layers_goes_on_anywhere(tmp_path, monkeypatch):
    """By two ranks to step 5, then by one: whole arrays, the validation of one rank."""
    (tmp_path / "net.yaml").write_text(SPLIT + SGD)
    given = ("--config", "net.yaml", "--set", "train.max_steps=5")
    done = trained(tmp_path, 2, *given)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    assert main(["train", *given, "--set", "name=alone", "--quiet"]) == 0
    both, alone = (
        read_checkpoint(tmp_path / "runs" / name / "checkpoints" / "step-5.safetensors")
        for name in ("net", "alone")
    )
    assert_near(both.arrays, alone.arrays, 1e-5)
    tables = [
        list(csv.DictReader((tmp_path / "runs" / name / "metrics.csv").read_text().splitlines()))
        for name in ("net", "alone")
    ]
    assert [row["split"] for row in tables[0]].count("validation") == 1
    for rows in zip(*tables, strict=True):
        losses = [float(row.pop("loss")) for row in rows]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        assert rows[0] == rows[1]
    assert main(["train", *given[:2], "--resume", "--set", "train.max_steps=8", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("change", "said"), cases(__file__, "what_cannot_be_split_is_named_with_its_place")
)
def test_what_cannot_be_split_is_named_with_its_place(change, said, tmp_path, capsys):
    text = SPLIT
    for old, new in change.items():
        text = text.replace(old, new)
    (tmp_path / "net.yaml").write_text(text + SGD)
    assert main(["summary", "--config", str(tmp_path / "net.yaml"), "--ranks", "2"]) != 0
    shown = capsys.readouterr().err
    assert said in shown
    assert f"{tmp_path / 'net.yaml'}:" in shown
    assert "Traceback" not in shown


def test_muon_refuses_filters_that_are_apart(tmp_path, capsys):
    rule = "optimizer: {type: muon, lr: 0.05, rest: {type: adam, lr: 0.01}}\n"
    (tmp_path / "net.yaml").write_text(SPLIT + rule)
    assert main(["summary", "--config", str(tmp_path / "net.yaml"), "--ranks", "2"]) == 1
    assert "layer 'conv2d_1'" in capsys.readouterr().err
    assert main(["summary", "--config", str(tmp_path / "net.yaml")]) == 0


def test_summary_says_what_is_sent_each_way(capsys):
    given = ["summary", "--config", "lenet.yaml", "--ranks", "2", "--set"]
    assert main([*given, "layers.dense_1.parallel={split: units}"]) == 0
    shown = capsys.readouterr().out
    # Forward 32 pictures with 800 inputs and half of 500 units, backward the same.
    assert 4 * 32 * (800 + 250) == 134_400
    assert "of these 131 KiB forward, 131 KiB backward, 119 KiB update" in shown
