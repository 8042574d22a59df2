"""Which files are plugins, and what is said of those that are none."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.common.errors import BackendUnavailableError, ShapeError
from dnnstack.configs import load_config
from dnnstack.configs.plugins import here
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.layers.build import LAYERS, LayerSpec, build_layers
from dnnstack.optimizers.schedules import SCHEDULES
from dnnstack.plugins import In, Op, Out, RowFormula, kernel, ops
from dnnstack.plugins.loading import PluginError, fault_of_plugin, load_plugin

from ..support.plugin_files import SWISH, TRAP
from ..support.stored import cases

FLAT = """\
from dnnstack.plugins import Schedule

class Flat(Schedule):
    kind = "flat"
    def rates(self, lr, length):
        return lr + 0 * length.t
"""


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    with pytest.raises(PluginError) as caught:
        load_plugin(path)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(str(path))


@pytest.mark.parametrize(("code", "message"), cases(__file__, "what_is_wrong_is_said_in_a_line"))
def test_what_is_wrong_is_said_in_a_line(tmp_path, code, message):
    before = set(SCHEDULES)
    path = written(tmp_path, code)
    assert refusal(path).startswith(message)
    assert set(SCHEDULES) == before
    assert here("mine.py") is None


def test_only_a_regular_file_of_a_moderate_size_is_read(tmp_path):
    assert "cannot be read as a plugin: No such file" in refusal(tmp_path / "none.py")
    (tmp_path / "folder.py").mkdir()
    assert "is not a regular file" in refusal(tmp_path / "folder.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert "is not a regular file" in refusal(tmp_path / "pipe.py")
    link = tmp_path / "link.py"
    link.symlink_to(written(tmp_path, FLAT))
    assert "is a symbolic link" in refusal(link)
    assert "is larger than" in refusal(written(tmp_path, "#" * (1 << 20) + "\n", "large.py"))
    for name in ("mine.txt", "my-layers.py", "a b.py"):
        assert "a plugin is a Python file whose name" in refusal(written(tmp_path, FLAT, name))


def test_the_same_file_runs_once_and_a_changed_one_again(tmp_path):
    path = written(tmp_path, TRAP)
    first = load_plugin(path)
    (tmp_path / "ran").unlink()
    assert load_plugin(path) == first
    assert not (tmp_path / "ran").exists()
    old = SCHEDULES["flat"]
    path.write_text(TRAP + "\n# changed\n", encoding="utf-8")
    second = load_plugin(path)
    assert (tmp_path / "ran").exists()
    assert second.sha256 != first.sha256
    assert SCHEDULES["flat"] is not old


def test_a_changed_file_that_fails_leaves_what_was_loaded(tmp_path):
    path = written(tmp_path, "x = 1 / 0")
    assert "ZeroDivisionError" in refusal(path)
    assert not any("mine" in module for module in sys.modules if "plugin" in module)
    path.write_text(FLAT, encoding="utf-8")
    load_plugin(path)
    module = sys.modules[SCHEDULES["flat"].__module__]
    path.write_text(FLAT + "x = 1 / 0", encoding="utf-8")
    assert "ZeroDivisionError" in refusal(path)
    assert sys.modules[SCHEDULES["flat"].__module__] is module


def test_another_file_cannot_take_its_kind(tmp_path):
    load_plugin(written(tmp_path, FLAT))
    assert "there is a schedule 'flat' already" in refusal(written(tmp_path, FLAT, "other.py"))


def test_a_config_read_in_a_program_uses_what_was_loaded_and_loads_nothing(tmp_path):
    """Where nobody can be asked, as in a program, no code runs because a config names it."""
    path = written(tmp_path, TRAP, "trap.py")
    text = (
        "plugins: trap.py\ndata: {dataset: strokes}\nlayers: [flatten, dense: {units: 10}]\n"
        "optimizer: {type: sgd, lr: 0.1}\nschedule: flat\ntrain: {epochs: 1}\n"
    )
    config = written(tmp_path, text, "mine.yaml")
    with pytest.raises(Exception, match="has not been loaded; read it, then load it first"):
        load_config(config)
    assert not (tmp_path / "ran").exists()
    plugin = load_plugin(path)
    (entry,) = load_config(config).config.plugins or ()
    assert (entry.file, entry.sha256) == ("trap.py", plugin.sha256)


def test_an_error_of_a_plugin_names_its_line(tmp_path):
    load_plugin(SWISH)
    op_kind = LAYERS["swish"].op  # type: ignore[attr-defined]
    try:
        KERNELS[op_kind].compute(None, 1.0)
    except AttributeError as error:
        fault = fault_of_plugin(error)
    line = SWISH.read_text("utf-8").splitlines().index("def forward(op, x):") + 2
    assert str(fault).startswith(f"{SWISH}:{line}: forward failed: AttributeError: ")
    assert fault_of_plugin(ValueError("ours")) is None


class Doubled(Op):
    x: In
    y: Out


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (np.zeros((2, 1)), r"returned an array \(2, 1\), but \(2, 3\) is needed"),
        (None, "returned NoneType, not an array of real numbers"),
        (np.zeros((2, 3), complex), "returned ndarray, not an array of real numbers"),
    ],
)
def test_what_a_kernel_returns_is_checked(returned, said):
    before = dict(KERNELS)
    try:

        @kernel(Doubled, "add")
        def doubled(op: Doubled, x: Any) -> Any:
            return returned

        x, y = (Tensor(name, (2, 3), "float32", "activation") for name in "xy")
        with pytest.raises(ShapeError, match=rf"test_loading\.py:\d+: doubled, 'y' of .*: {said}"):
            KERNELS[Doubled].compute(Doubled(x=x, y=y), np.ones((2, 3)))
    finally:
        KERNELS.clear()
        KERNELS.update(before)


class Both(Op):
    x: In
    y: Out
    z: Out


@pytest.mark.parametrize("count", [0, 1, 3, None])
def test_a_kernel_returns_as_many_values_as_it_names(count):
    before = dict(KERNELS)
    ones = np.ones((2, 3))
    try:

        @kernel(Both, "add")
        def both(op: Both, x: Any) -> Any:
            # An array of two rows is no pair of arrays.
            return np.stack([x, x]) if count is None else (x,) * wanted

        x, y, z = (Tensor(name, (2, 3), "float32", "activation") for name in "xyz")
        compute = KERNELS[Both].compute
        wanted = 2
        if count is not None:
            assert len(compute(Both(x=x, y=y, z=z), ones)) == 2
            wanted = count
        with pytest.raises(ShapeError, match=r"both must return 2 values: y, z"):
            compute(Both(x=x, y=y, z=z), ones)
    finally:
        KERNELS.clear()
        KERNELS.update(before)


def test_a_kernel_that_is_missing_is_named_with_its_file(tmp_path):
    code = SWISH.read_text().replace('@kernel(SwishBackward, "exp")', "")
    (tmp_path / "half.py").write_text(code.replace('"swish"', '"half"'))
    load_plugin(tmp_path / "half.py")
    (layer,) = build_layers([LayerSpec("half")], (5,))
    graph = Graph("train", 3, training=True)
    x = graph.tensor("x", (3, 5), "float32", "input")
    graph.results.update(y=layer.forward(graph, x))
    dy = graph.tensor("dy", (3, 5), "float32", "input")
    graph.results.update(dx=layer.backward(graph, dy))
    executable = ReferenceBackend(1).compile({"train": graph})
    for tensor in (x, dy):
        executable.write(tensor, np.ones((3, 5), np.float32))
    with pytest.raises(BackendUnavailableError) as caught:
        executable.run("train")
    assert str(caught.value) == (
        f"{tmp_path / 'half.py'}: the operation SwishBackward() has no kernel on any device; "
        "add a function of NumPy, with @kernel(SwishBackward, ...) before def name(op, x, dy)"
    )


def test_what_a_loss_returns_is_checked():
    class Spread(RowFormula):
        def value(self, x: Any, target: Any) -> Any:
            return x

        def gradient(self, x: Any, target: Any) -> Any:
            return x[:, :1]

    x = Tensor("x", (2, 3), "float32", "activation")
    target = Tensor("target", (2,), "int32", "input")
    ends = {"x": x, "target": target, "formula": Spread()}
    forward = ops.RowLoss(**ends, loss=Tensor("loss", (1,), "float32", "activation"))
    backward = ops.RowLossBackward(**ends, dx=x)
    given = np.ones((2, 3)), np.zeros(2, np.int32)
    for op, said in (
        (forward, r"Spread\.value: returned an array \(2, 3\), but \(2,\)"),
        (backward, r"Spread\.gradient: returned an array \(2, 1\), but \(2, 3\)"),
    ):
        with pytest.raises(ShapeError, match=said):
            KERNELS.of(op).compute(op, *given)
