"""Running statistics and the masks of dropout through a training: kept, resumed, shown, used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.common import random
from dnnstack.configs import RunConfig, parse_config
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Dropout, SgdUpdate
from dnnstack.reports.summary import summarize
from dnnstack.reports.summary_text import as_text
from dnnstack.training import pace
from dnnstack.training.assemble import build_network, describe_data, preprocessing
from dnnstack.training.inference.trained import Trained
from dnnstack.training.listener import Listener, Progress, Started, Summary
from dnnstack.training.network import Network
from dnnstack.training.records.formats.checkpoint import Checkpoint, read_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.sections import composition
from dnnstack.training.trainer import train

from ..support import composed
from ..support.stored import beside

Make = Callable[..., RunConfig]
NOWHERE = Path("unused")
NORMED = beside(__file__, "pixel_statistics_normed.yaml")
STATISTICS = {f"batch_norm_{n}.{part}" for n in (1, 2) for part in ("running_mean", "running_var")}


class Ear(Listener):
    """Asks for a stop at a step."""

    def __init__(self, stop_at: int | None) -> None:
        self.stop_at = stop_at
        self.step = -1

    def started(self, started: Started) -> None:
        self.step = started.state.step

    def progressed(self, progress: Progress) -> None:
        self.step = progress.step

    def stop(self) -> bool:
        return self.stop_at is not None and self.step >= self.stop_at


@pytest.fixture(autouse=True)
def _one_step_a_chunk(monkeypatch):
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 0.0)


@pytest.fixture
def normed(tmp_path):
    def make(*overrides: str) -> RunConfig:
        where = f"run.dir={tmp_path / 'runs'}"
        return parse_config(NORMED, "normed.yaml", [where, *overrides])

    return make


def go(
    config: RunConfig, backend: Backend, stop_at: int | None = None, path: Path | None = None
) -> Summary:
    ear = Ear(stop_at)
    source = open_resume(path, ear.notice) if path is not None else None
    return train(config, backend, NOWHERE, resume=source, listener=ear, stop_requested=ear.stop)


def end_of(summary: Summary) -> Checkpoint:
    assert summary.checkpoint is not None
    return read_checkpoint(summary.checkpoint)


@pytest.mark.parametrize("split", [1, 13])
def test_a_resume_changes_no_bit(normed, backend, split):
    whole = end_of(go(normed(), backend))
    half = go(normed(), backend, stop_at=split)
    assert half.step == split
    done = end_of(go(normed(), backend, path=half.run))
    assert set(whole.arrays) == set(done.arrays)
    assert set(whole.arrays) > STATISTICS
    for name, array in whole.arrays.items():
        assert array.tobytes() == done.arrays[name].tobytes(), name


def test_without_the_statistics_a_resume_would_differ(normed, backend):
    """They move: what is saved is neither where they start nor where another step leaves them."""
    ends = [end_of(go(normed(f"train.max_steps={steps}"), backend)) for steps in (1, 2)]
    for name in STATISTICS:
        start = 0.0 if name.endswith("mean") else 1.0
        first, second = (end.arrays[name] for end in ends)
        assert (first != start).any(), name
        assert (first != second).any(), name


def test_both_backends_train_alike(normed, reference, onednn):
    """The masks of dropout are the same ones, or no step would be like the other's."""
    ends = [end_of(go(normed("train.max_steps=3"), b)) for b in (reference, onednn)]
    for name, value in ends[0].arrays.items():
        np.testing.assert_allclose(ends[1].arrays[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_seed_of_the_config_keys_dropout(normed, reference, monkeypatch):
    graphs: list[Graph] = []
    original = Network.plain_graph

    def spy(network: Network, *arguments: Any, **options: Any) -> Graph:
        graphs.append(original(network, *arguments, **options))
        return graphs[-1]

    monkeypatch.setattr(Network, "plain_graph", spy)
    go(normed("train.max_steps=1", "seed=9"), reference)
    keys = [op.key for op in graphs[0].ops if isinstance(op, Dropout)]
    assert keys == [random.key(9, "dropout", f"dropout_{n}") for n in (1, 2)]


@pytest.mark.parametrize("parts", [2, 4])
def test_a_batch_in_parts_drops_the_same(normed, backend, parts):
    """Without batch norm, which sees one part at a time, the sums of the parts are the whole."""
    stack = "layers=[flatten, dropout, dense: {units: 8}, relu, dropout, dense: {units: 10}]"
    short = (stack, "train.max_steps=4")
    whole = end_of(go(normed(*short), backend))
    split = end_of(go(normed(*short, f"train.accumulate={parts}"), backend))
    for name in ("dense_1.weight", "dense_2.bias"):
        np.testing.assert_allclose(split.arrays[name], whole.arrays[name], rtol=1e-4, atol=1e-6)


def test_a_checkpoint_alone_evaluates_by_its_statistics(normed, backend):
    trained = Trained.of(end_of(go(normed(), backend)))
    graph = trained.network.infer_graph(4)
    x = np.random.default_rng(1).standard_normal((4, *trained.input_shape)).astype(np.float32)

    def scores(batch: np.ndarray) -> np.ndarray:
        executable = trained.compile(backend, graph)
        executable.write(graph["x"], batch)
        executable.run("infer")
        found = executable.read(graph["scores"])
        executable.close()
        return found

    # A sample's scores do not hang on the others of its batch.
    alone = np.repeat(x[:1], 4, axis=0)
    np.testing.assert_allclose(scores(x)[0], scores(alone)[0], rtol=1e-5, atol=1e-6)


def test_sections_share_the_statistics(normed, backend):
    """What training has just moved is what the evaluation beside it normalises by."""
    config = normed()
    info = describe_data(config)
    network, scaling = build_network(config, info), preprocessing(config, info)
    train = composed.train_graph(network, 4, "train", 8, 2, 2, scaling, composition(config), seed=1)
    evaluate, infer = network.evaluate_graph(4, "train", 8, 2, scaling), network.infer_graph(4)
    both = backend.compile({"train": train, "evaluate": evaluate})
    draw = np.random.default_rng(3)
    for graph in (train, evaluate):
        both.write(graph["images"], draw.integers(0, 256, (8, *info.shape)).astype(np.uint8))
        both.write(graph["labels"], np.arange(8, dtype=np.int32))
        both.write(graph["order"], np.arange(8, dtype=np.int32))
    both.write(train["rates"], np.full(2, 0.1, np.float32))
    for tensor, value in network.initial_values(1).items():
        both.write(tensor, value)
    both.run("train", 2)
    both.run("evaluate")
    alone = backend.compile({"infer": infer})
    for tensor in network.learned():
        alone.write(tensor, both.read(tensor))
    alone.write(infer["x"], both.read(evaluate["x"]))
    alone.run("infer")
    want, got = alone.read(infer["scores"]), both.read(evaluate["scores"])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    both.close()
    alone.close()


def test_weight_decay_on_weights_spares_batch_norm(normed):
    for on, spared in (("weights", True), ("all", False)):
        config = normed(f"optimizer.weight_decay_on={on}")
        info = describe_data(config)
        network = build_network(config, info)
        rule = composition(config)
        graph = composed.train_graph(
            network, 4, "train", 4, 1, 1, preprocessing(config, info), rule
        )
        update = next(op for op in graph.ops if isinstance(op, SgdUpdate))
        decays = zip(update.parameters, update.weight_decay, strict=True)
        found = {p.name for p, decay in decays if not decay}
        names = {"batch_norm_1.weight", "batch_norm_1.bias", "batch_norm_2.weight"}
        biases = {"dense_1.bias", "dense_2.bias"}
        assert found == (names | biases if spared else set())


def test_the_summary_counts_statistics_apart(normed):
    summary = summarize(normed(), Path("normed.yaml"))
    rows = {row.name: row for row in summary.rows}
    assert (rows["batch_norm_1"].parameters, rows["batch_norm_1"].statistics) == (8, 8)
    assert (rows["batch_norm_2"].parameters, rows["batch_norm_2"].statistics) == (12, 24)
    assert rows["dropout_1"].parameters == rows["lrn_1"].parameters == 0
    assert summary.statistics == 32
    assert summary.training.statistics == summary.evaluation.statistics == 4 * 32
    assert summary.training.optimizer == 4 * summary.parameters
    assert "32 running statistics" in as_text(summary)
    plain = summarize(normed("layers=[flatten, dense: {units: 10}]"), Path("plain.yaml"))
    assert "statistics" not in as_text(plain)
