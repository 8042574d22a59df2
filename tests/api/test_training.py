"""``dnnstack.train``: what a program passes in, hears meanwhile, and gets back."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import dnnstack
import numpy as np
import pytest
from dnnstack.configs import parse_config
from dnnstack.training.records.formats.store import checkpoint_steps

from ..support.picture_folders import paint
from ..support.training_fixtures import TINY


@pytest.fixture
def config(tmp_path):
    """The tiny config as a dict; its runs go to ``tmp_path / "runs"``. 10 steps are an epoch."""
    where = f"run={{device: numpy, dir: {tmp_path / 'runs'}}}"
    return parse_config(TINY, "tiny.yaml", [where]).model_dump()


def _bits(run: Path) -> bytes:
    step = max(checkpoint_steps(run / "checkpoints"))
    return (run / "checkpoints" / f"step-{step}.safetensors").read_bytes()


def test_the_same_bits_as_the_commands(config, tmp_path):
    from dnnstack.cli.main import main

    mine = dnnstack.train(config)
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    flags = ("--device", "numpy", "--runs-dir", str(tmp_path / "runs"))
    assert main(["train", "--quiet", "--config", str(tmp_path / "tiny.yaml"), *flags]) == 0
    theirs = tmp_path / "runs" / "tiny-2"
    for name in ("metrics.csv", "config.yaml"):
        assert (mine.run / name).read_bytes() == (theirs / name).read_bytes()
    tensors = [_bits(run)[-4096:] for run in (mine.run, theirs)]
    assert tensors[0] == tensors[1]
    assert {path.name for path in mine.run.iterdir()} == {path.name for path in theirs.iterdir()}


def test_the_history(config):
    found = dnnstack.train(config)
    columns = found.history
    assert set(columns) == {
        *("epoch", "loss", "accuracy", "learning_rate"),
        *("val_epoch", "val_loss", "val_accuracy"),
    }
    assert columns["val_epoch"] == [1.0, 2.0, 2.5]
    assert columns["epoch"][-1] == found.epoch == 2.5
    assert len({len(columns[key]) for key in ("epoch", "loss", "accuracy", "learning_rate")}) == 1
    assert all(0 <= value <= 1 for key in ("accuracy", "val_accuracy") for value in columns[key])
    assert (found.state, found.step, found.goal) == ("finished", 25, None)
    assert found.best is not None
    assert found.best.accuracy == max(columns["val_accuracy"])
    assert found.checkpoint == found.run / "checkpoints" / "step-25.safetensors"
    assert found.seconds > 0


def test_the_history_as_a_table(config):
    found = dnnstack.train(config)
    columns, history = found.columns, found.history
    names = ("step", "epoch", "loss", "accuracy", "learning_rate", "val_loss", "val_accuracy")
    assert tuple(columns) == names
    assert columns["step"] == [4, 8, 10, 12, 16, 20, 24, 25]
    assert columns["epoch"] == [step / 10 for step in columns["step"]]
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert [value for value in columns[name] if value == value] == history[name]
    rows = zip(columns["step"], columns["loss"], strict=True)
    assert [step for step, loss in rows if loss != loss] == [10]
    table = found.table()
    assert [row["val_loss"] for row in table if row["step"] in (10, 20, 25)] == history["val_loss"]
    assert {len(row) for row in table} == {7}


def test_a_resumed_history_begins_at_the_beginning(config):
    first = dnnstack.train(config)
    more = dnnstack.train(config, overrides={"train.max_steps": 40}, resume=True)
    assert more.run == first.run
    assert more.step == 40
    assert more.history["val_epoch"] == [1.0, 2.0, 2.5, 3.0, 4.0]
    by_name = dnnstack.train(config, overrides=["train.max_steps=41"], resume=first.run)
    assert by_name.step == 41
    by_file = dnnstack.train(config, overrides={"train.max_steps": 42}, resume=by_name.checkpoint)
    assert (by_file.run, by_file.step) == (first.run, 42)
    with pytest.raises(dnnstack.DnnstackError, match="no such run"):
        dnnstack.train(config, resume="none")


def test_one_call_starts_and_goes_on(config):
    first = dnnstack.train(config, overrides={"train.max_steps": 5}, resume="auto")
    more = dnnstack.train(config, overrides={"train.max_steps": 10}, resume="auto")
    assert (first.step, more.step) == (5, 10)
    assert more.run == first.run
    # The lock of the first start is gone with it.
    assert not [*first.run.parent.glob(".*")]


class _Heard(dnnstack.Callback):
    def __init__(self, stop_after: int = 1000) -> None:
        self.events: list[tuple[str, Any]] = []
        self.stop_after = stop_after

    def on_train_begin(self, logs: dict[str, Any]) -> None:
        self.events.append(("begin", logs))

    def on_log(self, logs: dict[str, Any]) -> None:
        self.events.append(("log", logs))

    def on_validation_end(self, logs: dict[str, Any]) -> None:
        self.events.append(("validation", logs))
        self.stop_training = logs["step"] >= self.stop_after

    def on_train_end(self, history: dnnstack.History) -> None:
        self.events.append(("end", history))


def test_callbacks_hear_everything_in_order(config):
    heard, lines = _Heard(), []
    history = dnnstack.train(config, callbacks=[heard, lines.append])
    kinds = [kind for kind, _ in heard.events]
    assert kinds[0] == "begin"
    assert kinds[-1] == "end"
    begin, end = heard.events[0][1], heard.events[-1][1]
    assert begin == {"run": history.run, "step": 0, "total_steps": 25, "steps_per_epoch": 10}
    assert end == history
    between = [logs for _, logs in heard.events[1:-1]]
    assert lines == between
    assert [logs["step"] for logs in between] == sorted(logs["step"] for logs in between)
    columns = history.history
    assert [logs["loss"] for kind, logs in heard.events if kind == "log"] == columns["loss"]
    validations = [logs for kind, logs in heard.events if kind == "validation"]
    assert [logs["val_accuracy"] for logs in validations] == columns["val_accuracy"]
    assert [logs["epoch"] for logs in validations] == columns["val_epoch"]


def test_a_callback_ends_the_training_which_saves(config):
    history = dnnstack.train(config, callbacks=[_Heard(stop_after=20)])
    assert (history.state, history.step) == ("interrupted", 20)
    assert history.checkpoint is not None
    resumed = dnnstack.train(config, resume=True)
    assert (resumed.state, resumed.step) == ("finished", 25)
    assert _bits(resumed.run)[-4096:] == _bits(dnnstack.train(config).run)[-4096:]


def test_what_a_callback_raises_ends_the_training(config):
    def fail(logs: dict[str, Any]) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        dnnstack.train(config, callbacks=[fail])
    last = Path(config["run"]["dir"]) / "tiny" / "log.jsonl"
    assert json.loads(last.read_text("utf-8").splitlines()[-1])["state"] == "failed"
    # The folder is unlocked again.
    assert dnnstack.train(config, resume=True).state == "finished"


@pytest.mark.parametrize("name", ["digits.yaml", "lenet.yaml", "mlp-xor.yaml", "alexnet.yaml"])
def test_a_config_survives_as_a_dict(name):
    config = dnnstack.load_config(name)
    assert dnnstack.load_config(config.model_dump()) == config
    assert dnnstack.load_config(config) == config
    changed = dnnstack.load_config(config, {"optimizer.lr": np.float32(0.5), "seed": 3})
    assert (changed.optimizer.lr, changed.seed) == (0.5, 3)


def test_a_config_is_changed_as_a_dict():
    config = dnnstack.load_config("digits.yaml")
    for part in (config, config.optimizer):
        with pytest.raises(AttributeError, match=r"a config is never changed; .* model_dump\(\)"):
            part.__setattr__(next(iter(type(part).model_fields)), 3)


def test_numbers_of_numpy_and_paths_in_a_dict(config, tmp_path):
    config["optimizer"]["lr"] = np.float64(0.25)
    config["train"]["max_steps"] = np.int64(3)
    config["data"]["root"] = tmp_path
    config["layers"] = tuple(config["layers"])
    found = dnnstack.load_config(config)
    assert (found.optimizer.lr, found.train.max_steps) == (0.25, 3)
    assert found.data.root == str(tmp_path)
    override = dnnstack.load_config(config, {"data.root": tmp_path / "other"})
    assert override.data.root == str(tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": ["flaten"]}, r"config: layer 1: unknown layer 'flaten'; did you mean"),
        ({"optimizer": {"type": "sgd"}}, r"config: optimizer\.lr: required key is missing"),
        ({"seed": "1"}, r"config: seed: expected a whole number \(got '1'; write 1\)"),
        ({"seed": 1.5}, r"config: seed: expected a whole number \(got 1\.5\)"),
        ({"seed": object()}, r"config: seed: expected a number, text, a list .* \(got object\)"),
        ({"seed": np.zeros(3)}, r"config: seed: expected a number, text, .* \(got ndarray\)"),
        ({"sede": 1}, r"config: sede: unknown key; did you mean 'seed'\?"),
        ({"name": "a/b"}, r"config: name: expected a name for a folder"),
    ],
)
def test_mistakes_in_a_dict(config, change, message):
    for act in (dnnstack.load_config, dnnstack.train):
        with pytest.raises(dnnstack.DnnstackError, match=message):
            act({**config, **change})


def test_a_dict_in_itself_is_refused(config):
    config["data"]["root"] = config
    with pytest.raises(dnnstack.DnnstackError, match="nested too deeply"):
        dnnstack.load_config(config)


def test_a_mistake_that_shows_later_has_its_key(config):
    config["data"]["batch_size"] = 100_000
    with pytest.raises(dnnstack.DnnstackError, match=r"^config: data\.batch_size: "):
        dnnstack.train(config)
    missing = {key: value for key, value in config.items() if key != "name"}
    assert dnnstack.load_config(missing).name == "run"
    with pytest.raises(dnnstack.DnnstackError, match="no such file"):
        dnnstack.load_config("none.yaml")


def test_results_print_as_one_line(config):
    done = dnnstack.train(config)
    assert re.fullmatch(
        r"<History of '.*tiny': finished at step \d+ \(epoch [\d.]+\), best [\d.]+% on validation, "
        r"[\d.]+ s>",
        repr(done),
    )
    found = dnnstack.load(done.run).evaluate()
    assert re.fullmatch(
        r"<Evaluation of '.*safetensors' on \w+ \(test\): \d+ of \d+ right, [\d.]+%, loss [\d.]+>",
        repr(found),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dnnstack.Callback(), r"expected a list, as in callbacks=\[Callback\(\)\]"),
        (print, r"expected a list, as in callbacks=\[print\]"),
        (3, "expected a list, got int$"),
        ([3], "3 is neither"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_starts(given, said):
    with pytest.raises(TypeError, match=f"callbacks: {said}"):
        dnnstack.train("digits.yaml", callbacks=given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("optimizer.lr=3", "got str"),
        (5, "got int"),
        ([5], "got 5 in it"),
        ({5: 1}, "got the key 5"),
    ],
)
def test_overrides_that_are_none(given, said):
    wanted = r'^overrides: expected a dict, as in \{"optimizer.lr": 0.05\}, or a list of texts'
    with pytest.raises(TypeError, match=f"{wanted}.*; {said}$"):
        dnnstack.train("digits.yaml", overrides=given)
    with pytest.raises(TypeError, match=r"^overrides: optimizer.lr: expected a number.*got object"):
        dnnstack.train("digits.yaml", overrides={"optimizer.lr": object()})
    with pytest.raises(dnnstack.DnnstackError) as caught:
        dnnstack.train("digits.yaml", overrides={"optimizer.lr": float("nan")})
    expected = 'overrides={"optimizer.lr": float("nan")}: optimizer.lr: expected a finite number'
    assert str(caught.value) == f"{expected} (got .nan)"


def test_an_arguments_mistake_is_reported_as_that_argument():
    """Not as the key that it sets, which nobody wrote."""
    for act in (dnnstack.train, partial(dnnstack.train_group, seeds=2)):
        with pytest.raises(dnnstack.DnnstackError, match=r"^device: expected auto, cpu") as caught:
            act("digits.yaml", device="gpu")
        assert "overrides" not in str(caught.value)
        with pytest.raises(dnnstack.DnnstackError) as caught:
            act("digits.yaml", device="gpu", threads="a", overrides={"optimizer.lr": [0.1, 0.2]})
        lines = str(caught.value).splitlines()[1:]
        assert [line.strip() for line in lines] == [
            'overrides={"optimizer.lr": [0.1, 0.2]}: optimizer.lr: expected a number '
            "(got [0.1, 0.2])",
            "device: expected auto, cpu, numpy or cuda (got 'gpu'; did you mean 'cuda'?)",
            "threads: expected a whole number (got 'a')",
        ]
    with pytest.raises(dnnstack.DnnstackError, match=r"^runs_dir: expected a path"):
        dnnstack.train("digits.yaml", runs_dir="")
    with pytest.raises(dnnstack.DnnstackError, match=r'^overrides=\{"run.device": "gpu"\}: run'):
        dnnstack.train("digits.yaml", overrides={"run.device": "gpu"})


def test_a_run_goes_on_with_its_samples_where_data_have_changed(tmp_path):
    train, test = tmp_path / "train", tmp_path / "test"
    for seed in range(24):
        paint((train if seed < 20 else test) / "ab"[seed % 2] / f"{seed:02}.png", seed)
    folders = {"train": str(train), "test": str(test)}
    given: dict[str, Any] = {
        "data": {"dataset": {"image_folder": {**folders, "size": 8}}, "batch_size": 4},
        "layers": ["flatten", {"dense": {"units": 2}}],
        "optimizer": {"type": "sgd", "lr": 0.1},
        "train": {"epochs": 1},
        "run": {"device": "numpy", "dir": str(tmp_path / "runs")},
    }
    first = dnnstack.train(given)
    paint(train / "a" / "new.png", 99)
    more = {"train.epochs": 2}
    with pytest.raises(dnnstack.DnnstackError, match="as they were: same_samples=True") as told:
        dnnstack.train(given, overrides=more, resume=True)
    assert "1 added: a/new.png" in str(told.value)
    last = dnnstack.train(given, overrides=more, resume=True, same_samples=True)
    assert (last.run, last.step) == (first.run, 2 * first.step)
