"""A training that begins with the weights of a run or a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.common.errors import CheckpointError
from dnnstack.configs import RunConfig, effective_yaml, parse_config
from dnnstack.training.listener import Listener, Summary
from dnnstack.training.records.formats.checkpoint import Checkpoint, encode, read_checkpoint
from dnnstack.training.records.formats.provenance import BegunFrom
from dnnstack.training.records.formats.store import newest_checkpoint
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train
from dnnstack.training.weights.source import anchored
from dnnstack.training.weights.start import Start

from ...support.stored import cases
from ...support.trainings import NOWHERE, end_of
from .files import written

Make = Callable[..., RunConfig]
NORM = (
    "layers=[{conv2d: {filters: 4, kernel_size: 5, stride: 2}}, batch_norm, relu, "
    "global_avg_pool2d, {dense: {units: 10, name: head}}]"
)
LEARNED = {
    *("conv2d_1.weight", "conv2d_1.bias", "batch_norm_1.weight", "batch_norm_1.bias"),
    *("batch_norm_1.running_mean", "batch_norm_1.running_var", "head.weight", "head.bias"),
}


class Ear(Listener):
    def __init__(self) -> None:
        self.notices: list[str] = []
        self.starts: list[Start] = []
        self.step = -1

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def initialized(self, start: Start) -> None:
        self.starts.append(start)

    def progressed(self, progress: object) -> None:
        self.step = progress.step  # type: ignore[attr-defined]


def go(config: RunConfig, backend: Backend, ear: Ear | None = None, **given: object) -> Summary:
    return train(config, backend, NOWHERE, listener=ear or Ear(), **given)  # type: ignore[arg-type]


@pytest.fixture
def base(tiny, reference):
    return end_of(go(tiny(NORM, "name=base", "train.max_steps=12"), reference))


def first_of(config: RunConfig, backend: Backend, ear: Ear | None = None) -> Checkpoint:
    """The weights with which a training begins: those after steps at a rate of 0."""
    text = effective_yaml(config)
    changes = ["optimizer={type: sgd, lr: 1e-30, ema: {decay: 0.5}}", "train.max_steps=1"]
    return end_of(go(parse_config(text, "x.yaml", changes), backend, ear))


def test_a_run_gives_what_it_learned_and_the_rest_is_as_from_scratch(tiny, base, reference):
    fresh = first_of(tiny(NORM, "name=fresh", "freeze=batch_norm_1"), reference).arrays
    ear = Ear()
    found = first_of(
        tiny(NORM, "init_from={source: base, skip: head.*}", "freeze=batch_norm_1"), reference, ear
    )
    for name in LEARNED:
        wanted = fresh if name.startswith("head.") else base.arrays
        close = {"atol": 1e-28} if name == "head.bias" else {"atol": 0}
        np.testing.assert_allclose(found.arrays[name], wanted[name], rtol=0, **close, err_msg=name)
    # Averages begin where the weights do.
    np.testing.assert_array_equal(found.arrays["ema/conv2d_1.bias"], base.arrays["conv2d_1.bias"])
    assert not np.array_equal(fresh["conv2d_1.weight"], base.arrays["conv2d_1.weight"])
    (start,) = ear.starts
    assert set(start.values) == {n for n in LEARNED if not n.startswith("head.")}


def test_where_it_began_is_recorded(tiny, base, reference):
    done = go(tiny(NORM, f"init_from={base.path}"), reference)
    sha256 = hashlib.sha256(base.path.read_bytes()).hexdigest()
    begun = end_of(done).provenance.begun_from
    assert begun is not None
    assert vars(begun) == {
        "path": str(base.path),
        "file_sha256": sha256,
        "layout": "dnnstack",
        "taken": len(LEARNED),
    }
    lines = [json.loads(line) for line in (done.run / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines][:2] == ["init", "start"]
    assert lines[0] | vars(begun) == lines[0]
    assert base.provenance.begun_from is None
    assert b"begun_from" not in base.path.read_bytes()


def test_averages_are_taken_where_there_are_some(tiny, reference):
    averaged = end_of(go(tiny("name=base", "optimizer.ema.decay=0.9"), reference)).arrays
    found = first_of(tiny("init_from=base"), reference).arrays
    np.testing.assert_array_equal(found["dense_1.weight"], averaged["ema/dense_1.weight"])
    assert not np.array_equal(found["dense_1.weight"], averaged["dense_1.weight"])


def test_a_resume_does_not_read_the_file_again(tiny, tmp_path, backend):
    rng = np.random.default_rng(3)
    path = written(tmp_path / "w.safetensors", conv2d_1__weight=rng.normal(size=(4, 1, 5, 5)) / 9)
    config = tiny(f"init_from={path}", "optimizer.momentum=0.9", "checkpoint.every_steps=5")
    whole = end_of(go(config, backend))
    ear = Ear()
    half = go(config, backend, ear, stop_requested=lambda: ear.step >= 8)
    assert half.state == "interrupted"
    path.unlink()
    ear = Ear()
    # Also where the config of the resume does not name it any more.
    done = go(
        tiny("optimizer.momentum=0.9", "checkpoint.every_steps=5"),
        backend,
        ear,
        resume=open_resume(half.run, ear.notice),
    )
    end = end_of(done)
    assert not ear.starts
    assert end.provenance.begun_from == whole.provenance.begun_from
    assert f"init_from: {path}" in (done.run / "config.yaml").read_text()
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(end.arrays[name], array, err_msg=name)
    lines = (done.run / "log.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events.count("init") == 1


def test_a_run_without_checkpoint_begins_again_from_the_same_source(tiny, base, reference):
    done = go(tiny(NORM, "init_from=base"), reference)
    for path in (done.run / "checkpoints").iterdir():
        path.unlink()
    ear = Ear()
    resumed = go(tiny(NORM), reference, ear, resume=open_resume(done.run, ear.notice))
    assert [start.origin.path for start in ear.starts] == [str(base.path)]
    assert end_of(resumed).provenance.begun_from is not None


def test_another_source_is_not_read_by_a_resume(tiny, base, reference):
    done = go(tiny(NORM, "train.max_steps=2"), reference)
    for given in ("init_from=base", "train.max_steps=3"):
        ear = Ear()
        config = tiny(NORM, "train.max_steps=3", given)
        done = go(config, reference, ear, resume=open_resume(done.run, ear.notice))
        assert not ear.starts
        said = [text for text in ear.notices if text.startswith("init_from: base is not read")]
        assert len(said) == (given == "init_from=base")
    assert "init_from" not in (done.run / "config.yaml").read_text()


def test_a_rollback_to_the_start_goes_back_to_what_was_taken(tiny, tmp_path, reference):
    """Whose rate is too large after the first update, whatever the rate."""
    weights = np.full((10, 144), 1e-3)
    path = written(tmp_path / "w.safetensors", dense_1__weight=weights)
    ear = Ear()
    config = tiny(
        f"init_from={path}",
        "optimizer.lr=1e30",
        "train={max_steps: 3, on_nan: rollback, log_every: 1}",
        "checkpoint={every_steps: 1000}",
    )
    with pytest.raises(Exception, match="gave up after 3 rollbacks"):
        go(config, reference, ear)
    run = Path(config.run.dir) / "tiny"
    at_start = newest_checkpoint(run / "checkpoints")
    assert at_start.state.step == 0
    np.testing.assert_array_equal(at_start.arrays["dense_1.weight"], weights.astype(np.float32))


def test_what_may_not_be_meant_is_said(tiny, base, reference):
    ear = Ear()
    table = "{table: {inputs: [[1, 2, 3], [2, 1, 0]], targets: [0, 1], classes: [a, b]}}"
    small = "layers=[flatten, {dense: {units: 4}}, relu, {dense: {units: 2}}]"
    data = (f"data.dataset={table}", "data.batch_size=2", "data.validation=0")
    first = end_of(go(tiny(*data, small, "name=first"), reference))
    go(tiny(*data, small, "init_from=first"), reference, ear)
    assert not any("trained" in text for text in ear.notices)
    # Classes in another order are those that the last layer knows, by their names.
    turned = f"data.dataset={table.replace('[a, b]', '[b, a]')}"
    ear = Ear()
    end = end_of(go(tiny(*data, small, turned, "init_from=first"), reference, ear))
    assert not any("trained" in text for text in ear.notices)
    assert end.provenance.classes == ("a", "b")
    anew = "init_from={source: first, skip: dense_2.*}"
    end = end_of(go(tiny(*data, small, turned, anew), reference, ear))
    assert end.provenance.classes == ("b", "a")
    changed = (f"data.dataset={table.replace('[a, b]', '[a, c]')}", "data.normalize={std: 0.5}")
    go(tiny(*data, small, *changed, "init_from=first"), reference, ear)
    assert ear.notices[-2].startswith(f"{first.path} was trained on pixels of another scale")
    assert ear.notices[-1] == (
        "the last layer is taken too, although it was trained for other classes: a, b; to begin "
        "it anew: --set init_from.skip=dense_2.*"
    )
    ear = Ear()
    go(tiny(NORM, "init_from={source: base, skip: conv2d_1.bias}", "freeze=conv*"), reference, ear)
    assert ear.notices[-1] == (
        "frozen layers (freeze) begin with untrained weights: conv2d_1.bias; freeze only what was "
        "taken"
    )


def test_of_a_file_nobody_knows_for_which_classes_its_last_layer_is(tiny, tmp_path, reference):
    parts = {"conv2d_1__bias": np.ones(4), "dense_1__bias": np.ones(10)}
    path = written(tmp_path / "w.safetensors", dense_1__weight=np.ones((10, 144)), **parts)
    advice = "init_from.skip=dense_1.*"
    for changes, count in (((), 1), ((advice,), 0)):
        ear = Ear()
        go(tiny(f"init_from={path}", "train.max_steps=1", *changes), reference, ear)
        assert (
            ear.notices.count(
                "the last layer is taken too, for classes that the file does not name; to begin it "
                f"anew: --set {advice}"
            )
            == count
        )


@pytest.mark.parametrize(
    ("reference_to", "said"), cases(__file__, "what_cannot_be_read_ends_it_before_there_is_a_run")
)
def test_what_cannot_be_read_ends_it_before_there_is_a_run(
    tiny, base, reference, tmp_path, monkeypatch, reference_to, said
):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("damaged.safetensors").write_bytes(b"x" * 100)
    Path("model.pth").write_bytes(b"\x80\x02x")
    data = bytearray(base.path.read_bytes())
    data[-1] ^= 1
    Path("cut.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        go(tiny(NORM, f"init_from={reference_to}"), reference)
    assert said in str(caught.value)
    assert not (tmp_path / "runs" / "tiny").exists()


def test_a_path_counts_from_the_folder_of_the_config(tiny, tmp_path):
    (tmp_path / "w.safetensors").touch()
    config = tiny("init_from={source: w.safetensors, skip: a.*}")
    found = anchored(config, tmp_path).init_from
    assert found is not None
    assert found.source == str(tmp_path / "w.safetensors")
    assert found.skip == ("a.*",)
    assert anchored(config, tmp_path / "runs") == config
    assert anchored(tiny(), tmp_path) == tiny()


@pytest.mark.parametrize(("written_as", "shown"), cases(__file__, "how_it_is_written"))
def test_how_it_is_written(tiny, written_as, shown):
    text = effective_yaml(tiny(written_as))
    assert shown in text
    assert effective_yaml(parse_config(text, "x.yaml")) == text


def test_an_option_changes_a_text_too(tiny):
    config = tiny("init_from=x", "init_from.skip=head.*", "init_from.source=y")
    assert config.init_from is not None
    assert config.init_from.model_dump() == {"source": "y", "skip": "head.*"}


def test_it_begins_where_its_source_ended(tiny, backend):
    """Without a step to speak of, its validation is that of the source; from scratch it is not."""
    ended = go(tiny("name=base", "optimizer.lr=0.1"), backend).validation
    found = [
        go(tiny(*start, "optimizer.lr=1e-30", "train.max_steps=1"), backend).validation
        for start in ((), ("init_from=base",))
    ]
    assert None not in (ended, *found)
    scratch, taken = found
    assert taken == ended
    assert scratch.loss - ended.loss > 0.05  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "wrong",
    [(1, "0" * 64, "pytorch", 3), ("x", "0" * 63, "pytorch", 3), ("x", "0" * 64, "pytorch", -1)],
)
def test_what_a_checkpoint_says_of_it_is_checked(base, tmp_path, wrong):
    provenance = replace(base.provenance, begun_from=BegunFrom(*wrong))
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"".join(encode(base.arrays, base.state, provenance)))
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of dnnstack: begun_from\."):
        read_checkpoint(path)
