from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.onednn.primitive import Step
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import BackendUnavailableError, DatasetError, DnnlError, ShapeError
from dnnstack.training.preprocessing import Preprocessing

from ...support.specs import layers_of

PIXELS = Preprocessing((1 / 255,) * 3, (-0.5, 0.0, 0.25))
BLOCKED = {f"conv2d_{n}{part}": "nChw16c" for n in (1, 2) for part in ("", "/data", "/filter")}
PLAIN = dict.fromkeys(BLOCKED, "nhwc")


def parameters(network, executable):
    return [executable.read(p.tensor) for p in network.parameters()]


def with_choices(make, choices, **more):
    """Compile with these choices in a table that fits this machine and network."""
    _, _, trial = make(**more)
    table = Tuning("onednn", trial.tuning.environment, trial.tuning.graph, choices)
    network, graphs, executable = make(options=Options(tuning=table), **more)
    assert not executable.notices
    return network, graphs, executable


def test_one_tuning_gives_one_result(make):
    results = []
    for _ in range(2):
        network, _, executable = with_choices(make, PLAIN)
        executable.run("train", 7)
        results.append(parameters(network, executable))
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_tunings_agree_but_for_the_last_bits(make):
    results = []
    for choices in (PLAIN, BLOCKED):
        network, _, executable = with_choices(make, choices)
        executable.run("train", 3)
        results.append(parameters(network, executable))
    same = [np.array_equal(a, b) for a, b in zip(*results, strict=True)]
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-5)
    assert not all(same), "two layouts with equal bits: the tuning was not applied"


def test_misfit_is_said_and_not_applied(make):
    table = Tuning("onednn", {"threads": "64"}, "", PLAIN)
    _, _, executable = make(options=Options(tuning=table))
    assert len(executable.notices) == 1
    assert "not equal to the last bit" in executable.notices[0]


def test_tuning_of_another_backend_says_so(make):
    _, _, executable = make(options=Options(tuning=Tuning("numpy")))
    assert "made for the numpy backend" in executable.notices[0]


@pytest.mark.parametrize("layout", [PLAIN, BLOCKED])
def test_what_is_written_is_read_back(make, layout):
    network, graphs, executable = with_choices(make, layout)
    draw = np.random.default_rng(5)
    tensors = [p.tensor for p in network.parameters()]
    tensors += [t for t in graphs["train"].tensors() if t.name.startswith("momentum/")]
    assert len(tensors) == 12
    for tensor in tensors:
        values = draw.standard_normal(tensor.shape).astype(np.float32)
        executable.write(tensor, values)
        np.testing.assert_array_equal(executable.read(tensor), values)


def test_padding_of_blocked_layouts_stays_zero(make):
    """SGD runs over whole arenas: what lies between the parameters must never grow."""
    network, _, executable = with_choices(make, BLOCKED)
    executable.run("train", 20)
    arena = executable._store.arenas["parameters"]
    total = float(np.abs(arena.view(np.float32)).sum(dtype=np.float64))
    real = sum(float(np.abs(v).sum(dtype=np.float64)) for v in parameters(network, executable))
    assert real == pytest.approx(total, rel=1e-12)


def test_write_refuses_another_shape(make):
    network, graphs, executable = make()
    weight = network.parameters()[0].tensor
    with pytest.raises(ShapeError, match=r"'conv2d_1.weight' has shape \(20, 3, 3, 3\)"):
        executable.write(weight, np.zeros((20, 3, 3, 2), np.float32))
    with pytest.raises(ShapeError, match=r"'train.images' is uint8, not float32"):
        executable.write(graphs["train"]["images"], np.zeros((4, 3, 12, 12), np.float32))


def test_failing_call_names_operation_and_arguments(make):
    _, graphs, executable = make()
    section = executable._sections["train"]
    broken = next(s for s in section.steps if "convolution_forward" in s.call.function)
    section.steps[:] = [Step(lambda: 5, (), broken.call)]
    with pytest.raises(DnnlError) as caught:
        executable.run("train")
    text = str(caught.value)
    assert "dnnl_convolution_forward" in text
    assert "Conv2d(conv2d_1, relu_1)" in text
    assert "16x3x12x12" in text
    assert text.endswith("runtime_error")


def test_other_precisions_are_refused(make):
    with pytest.raises(BackendUnavailableError, match=r"run\.precision"):
        make(options=Options(precision="tf32"))


def test_overwritten_gradient_cannot_be_read(make):
    """The mask of ReLU works in place: what was there is gone, and reading it must not lie."""
    specs = layers_of("[flatten, dense: {units: 7}, relu, dense: {units: 10}]")
    _, _, executable = make(specs)
    gradient = next(t for t in executable.graphs["train"].tensors() if t.name == "dense_2.dx")
    executable.run("train")
    with pytest.raises(KeyError, match="given to a later tensor"):
        executable.read(gradient)


@pytest.mark.parametrize("fusion", [True, False])
def test_every_call_is_explained_and_measured(make, fusion):
    _, _, executable = make(options=Options(tune=False, fusion=fusion))
    calls = executable.calls("train")
    times = executable.measure("train", 2)
    assert len(calls) == len(times)
    assert all(t > 0 for t in times)
    explained = {id(call.op) for call in calls}
    views = {"Reshape"}
    for op in executable.graphs["train"].ops:
        assert id(op) in explained or type(op).__name__ in views, op.label()
    assert {call.library for call in calls} == {"oneDNN", "numpy"}


def test_closing_frees_memory(make):
    _, _, executable = make()
    executable.close()
    with pytest.raises(KeyError):
        executable.run("train")


def test_measuring_changes_nothing(make):
    network, graphs, executable = make()
    executable.run("train", 2)
    before = [*parameters(network, executable), executable.read(graphs["train"]["sums"])]
    executable.measure("train", 2)
    after = [*parameters(network, executable), executable.read(graphs["train"]["sums"])]
    for first, second in zip(before, after, strict=True):
        np.testing.assert_array_equal(first, second)
    assert executable.read(graphs["train"]["step"])[0] == 2


def test_pictures_in_sequence_are_read_where_they_lie(make):
    """With the bits of copied ones; what is written next, and another order, count at once."""
    network, _, trained = make()
    graph = network.classify_graph(4, PIXELS)
    executable = OneDnnBackend(1).compile({"classify": graph})
    for p in network.parameters():
        executable.write(p.tensor, trained.read(p.tensor))
    executable.write(graph["labels"], np.zeros(9, np.int32))
    executable.write(graph["step"], np.zeros(1, np.int64))
    rng = np.random.default_rng(4)
    shape = (9, *network.input_shape)

    def answers(pictures, rows, *, lasting):
        order = np.array(rows, np.int32)
        order.flags.writeable = not lasting
        executable.write(graph["order"], order)
        executable.write(graph["images"], pictures)
        executable.run("classify")
        return executable.read(graph["probabilities"])

    for rows in ([2, 3, 4, 5], [5, 4, 3, 2], [0, 1, -1, -1], [5, 6, 7, 8], [0, 1, 3, 4]):
        for pictures in (rng.integers(0, 256, shape, np.uint8) for _ in range(2)):
            apart = np.ascontiguousarray(pictures[::-1])[::-1]
            expected = answers(pictures, rows, lasting=False)
            np.testing.assert_array_equal(answers(pictures, rows, lasting=True), expected)
            np.testing.assert_array_equal(answers(apart, rows, lasting=True), expected)
    with pytest.raises(DatasetError, match="sample 9 was requested"):
        answers(pictures, [6, 7, 8, 9], lasting=True)


def test_a_function_of_many_calls_is_write_run_and_read(make):
    """Each answer is an array of its own; what does not fit is refused before it is read."""
    network, _, trained = make()
    graph = network.classify_graph(4, PIXELS)
    executable = OneDnnBackend(1).compile({"classify": graph})
    for p in network.parameters():
        executable.write(p.tensor, trained.read(p.tensor))
    executable.write(graph["labels"], np.zeros(4, np.int32))
    executable.write(graph["step"], np.zeros(1, np.int64))
    order = np.arange(4, dtype=np.int32)
    order.flags.writeable = False
    executable.write(graph["order"], order)
    function = executable.function("classify", graph["images"], graph["probabilities"])
    rng = np.random.default_rng(6)
    batches = [rng.integers(0, 256, (4, *network.input_shape), np.uint8) for _ in range(3)]
    batches[1].flags.writeable = False
    batches.append(batches[0][::-1])
    found = [function(batch) for batch in batches]
    expected = []
    for batch in batches:
        executable.write(graph["images"], batch)
        executable.run("classify")
        expected.append(executable.read(graph["probabilities"]))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ShapeError, match=r"'given\.images' has shape"):
        function(batches[0][..., :-1])
    with pytest.raises(ShapeError, match="uint8, not int32"):
        function(batches[0].astype(np.int32))
    with pytest.raises(DatasetError, match="sample 3 was requested"):
        function(batches[0][:3])
    scores = executable.function("classify", graph["images"], graph["x"])
    assert scores(batches[0]).shape == (4, *network.input_shape)
