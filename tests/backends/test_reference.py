from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import BackendUnavailableError, ShapeError
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import Activation, Advance, GatherBatch, SgdUpdate

from ..support.op_cases import CASES
from ..support.rows import rows


def sample() -> Graph:
    """x in, y = relu(x) out, one parameter updated by its own gradient, a counter."""
    graph = Graph("train", 2)
    x = graph.tensor("x", (2, 3), role="input")
    y = graph.tensor("y", (2, 3))
    p = graph.tensor("p", (2, 3), role="parameter")
    step = graph.tensor("step", (1,), "int64", "state")
    rates = graph.tensor("rates", (4,), role="data")
    graph.add(Activation(x=x, y=y, kind="relu"))
    graph.add(
        SgdUpdate(
            gradients=(y,), rates=rates, step=step, parameters=(p,), buffers=(), weight_decay=(0.0,)
        )
    )
    graph.add(Advance(step=step))
    graph.results.update(x=x, y=y, p=p, step=step, rates=rates)
    return graph


X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def test_steps_go_on_where_the_last_ended():
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph})
    executable.write(graph["x"], X)
    executable.write(graph["p"], np.zeros((2, 3), np.float32))
    executable.write(graph["rates"], np.array([1, 10, 100, 1000], np.float32))
    executable.run("train")
    np.testing.assert_array_equal(executable.read(graph["p"]), -np.maximum(X, 0))
    executable.run("train", 2)
    np.testing.assert_array_equal(executable.read(graph["p"]), -111 * np.maximum(X, 0))
    assert executable.read(graph["step"])[0] == 3


def test_sections_share_parameters_and_state_alone():
    first = sample()
    graph = Graph("other", 2)
    p, y = first["p"], graph.tensor("y", (2, 3))
    graph.add(Activation(x=p, y=y, kind="relu"))
    graph.results["y"] = y
    executable = ReferenceBackend(1).compile({"train": first, "other": graph})
    executable.write(p, X)
    executable.run("other")
    np.testing.assert_array_equal(executable.read(y), np.maximum(X, 0))
    with pytest.raises(KeyError, match=r"'y' .activation. was neither written nor computed yet"):
        executable.read(first["y"])


def test_reading_gives_a_copy_and_writing_takes_one():
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph})
    mine = X.copy()
    executable.write(graph["x"], mine)
    mine[...] = 0
    read = executable.read(graph["x"])
    np.testing.assert_array_equal(read, X)
    read[...] = 0
    np.testing.assert_array_equal(executable.read(graph["x"]), X)


def test_data_sets_are_taken_by_reference_of_any_length(tmp_path):
    np.save(tmp_path / "rates.npy", np.arange(7, dtype=np.float32))
    rates = np.load(tmp_path / "rates.npy", mmap_mode="r")
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph})
    executable.write(graph["rates"], rates)
    held = executable._values[graph["rates"]]  # type: ignore[attr-defined]
    assert np.shares_memory(held, rates)
    assert len(executable.read(graph["rates"])) == 7


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x", np.zeros((3, 2), np.float32), r"'x' has the shape \(2, 3\), the array \(3, 2\)"),
        ("x", np.zeros(6, np.float32), r"'x' has the shape \(2, 3\), the array \(6,\)"),
        ("x", np.zeros((2, 3), np.float64), "'x' holds float32, the array float64; convert it"),
        ("step", np.zeros(1, np.int32), "'step' holds int64, the array int32"),
        ("rates", np.zeros((4, 1), np.float32), r"'rates' has the shape \(4,\)"),
        ("rates", np.zeros(4, np.float64), "'rates' holds float32, the array float64"),
    ],
)
def test_arrays_that_do_not_fit(name, array, message):
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph})
    with pytest.raises(ShapeError, match=message):
        executable.write(graph[name], array)


def test_what_is_computed_cannot_be_written():
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph})
    with pytest.raises(KeyError, match=r"'y' .activation. cannot be written"):
        executable.write(graph["y"], X)
    with pytest.raises(KeyError, match="'stranger'"):
        executable.write(Tensor("stranger", (1,), role="parameter"), np.zeros(1, np.float32))
    with pytest.raises(KeyError, match="'stranger' is not held here"):
        executable.read(Tensor("stranger", (1,), role="parameter"))


def test_running_without_an_input_names_it():
    executable = ReferenceBackend(1).compile({"train": sample()})
    with pytest.raises(KeyError, match=r"'x' .input. was neither written nor computed yet"):
        executable.run("train")


def test_float64_throughout():
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph}, Options("fp64"))
    precise = X.astype(np.float64) / 3
    executable.write(graph["x"], precise)
    executable.write(graph["p"], X)
    executable.write(graph["rates"], np.ones(4, np.float32))
    executable.run("train")
    assert executable.read(graph["p"]).dtype == np.float64
    np.testing.assert_array_equal(executable.read(graph["p"]), X - np.maximum(precise, 0))


def test_precisions_that_numpy_does_not_have():
    with pytest.raises(BackendUnavailableError, match=r"'bf16'.* fp32 or fp64; set"):
        ReferenceBackend(1).compile({}, Options("bf16"))


def test_measuring_changes_nothing():
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph})
    executable.write(graph["x"], X)
    executable.write(graph["p"], X)
    # More repeats than there are rates: each measures the same step.
    executable.write(graph["rates"], np.ones(4, np.float32))
    seconds = executable.measure("train", 9)
    assert len(seconds) == len(executable.calls("train")) == 3
    assert all(s > 0 for s in seconds)
    np.testing.assert_array_equal(executable.read(graph["p"]), X)
    assert executable.read(graph["step"])[0] == 0


def test_calls_name_function_and_arguments():
    call = ReferenceBackend(1).compile({"train": sample()}).calls("train")[0]
    assert (call.library, call.function, call.implementation) == ("numpy", "where", "relu")
    assert call.arguments["x"] == "(2, 3) float32"


def test_a_tuning_of_another_backend_is_noticed():
    backend = ReferenceBackend(1)
    first = backend.compile({"train": sample()})
    assert first.notices == ()
    again = backend.compile({"train": sample()}, Options(tuning=first.tuning))
    assert again.notices == ()
    assert again.tuning == first.tuning
    other = backend.compile({"train": sample()}, Options(tuning=Tuning("onednn")))
    assert "made for the onednn backend, this is numpy" in other.notices[0]
    precise = backend.compile({"train": sample()}, Options("fp64", tuning=first.tuning))
    assert "precision was fp32, now it is fp64" in precise.notices[0]


def test_closing_lets_go():
    graph = sample()
    executable = ReferenceBackend(1).compile({"train": graph})
    executable.close()
    with pytest.raises(KeyError):
        executable.read(graph["step"])


def test_limits_and_versions():
    backend = ReferenceBackend(4)
    limits = backend.limits()
    assert limits.gflops > 0
    assert limits.gbytes > 0
    assert backend.versions()["numpy"] == np.__version__


@rows("name", CASES)
def test_float32_stays_float32(name):
    """No kernel slips into float64 on the way: half the speed, and not what the others compute."""
    draft = CASES[name](np.random.default_rng(1), "normal")
    executable = ReferenceBackend(1).compile({"one": draft.graph}, Options(fusion=False))
    for tensor, value in draft.values.items():
        executable.write(tensor, value)
    executable.run("one")
    for op in draft.graph.ops:
        if isinstance(op, GatherBatch):
            continue  # integers alone go in
        fields = [getattr(op, field) for field in (*op.inputs, *op.updates)]
        values = [
            tuple(map(executable.read, f)) if isinstance(f, tuple) else f and executable.read(f)
            for f in fields
        ]
        result = KERNELS[type(op)].compute(op, *values)
        names = (*op.outputs, *op.updates)
        for field, value in zip(names, result if len(names) > 1 else (result,), strict=True):
            for array, tensor in zip(_leaves(value), _leaves(getattr(op, field)), strict=False):
                assert array.dtype == tensor.dtype, tensor.name


def _leaves(value: object) -> tuple:
    """The arrays or tensors of a field: none, one or several of them."""
    return value if isinstance(value, tuple) else () if value is None else (value,)
