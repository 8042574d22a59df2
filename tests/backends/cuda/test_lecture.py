"""The calls of the lecture's slides: which they are, what they compute, and what they lack."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import lecture
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.bind import Arithmetic, Binder
from dnnstack.backends.cuda.binding.layouts import Geometry, add_shared
from dnnstack.backends.cuda.binding.store import Store
from dnnstack.backends.cuda.dry_run import STREAM, Cuda
from dnnstack.backends.cuda.libraries.shared_library import SharedLibrary
from dnnstack.backends.cuda.memory_plan import choose_residency, plan_memory
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import fingerprint
from dnnstack.common.errors import ConfigError
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed
from ...support.cuda_tape import TapedLibrary
from ...support.feeding import feed, losses_of
from ...support.specs import layers_of, network_of
from ...support.whole_sections import packaged_sections
from . import taped
from .taped import bind, tape

__all__ = ["tape"]
SLIDES = "[flatten, dense: {units: 500}, relu, dense: {units: 10}, softmax]"
DEEP = (
    "[flatten, dense: {units: 37}, relu, dense: {units: 21}, sigmoid, dense: {units: 35}, tanh, "
    "dense: {units: 10}, softmax]"
)
PICTURES = (
    "[conv2d: {filters: 6, kernel_size: 3}, relu, max_pool2d, conv2d: {filters: 5, kernel_size: 3},"
    " sigmoid, avg_pool2d, flatten, dense: {units: 37}, tanh, dense: {units: 10}, softmax]"
)
FIRST = "[flatten, softmax, dense: {units: 10}, softmax]"
PLAIN, HEAVY = Sgd(), Sgd(momentum=0.9, weight_decay=0.01)
COUNT, STEPS = 640, 20


def step_of(text, shape, batch, rule=PLAIN, **loss):
    network = network_of(layers_of(text), shape)
    vars(network.loss).update(loss)
    scaling = Preprocessing.standardize([0.5] * shape[0], [0.2] * shape[0])
    sizes = (batch, "data", COUNT, COUNT // batch, 1600)
    return network, composed.train_graph(network, *sizes, scaling, rule)


def test_the_step_is_the_list_of_the_slides():
    """Call by call, for a dense layer of ours, whose gradients come in another order."""
    _, graph = step_of(SLIDES, (1, 28, 28), 256)
    store, kind = Store(Cuda()), replace(Arithmetic.of("fp32", False), lecture=True)
    add_shared(store, {"train": graph}, Geometry(lecture.CHOICES, "float32"))
    binder = Binder(graph, store, [STREAM], kind, lecture.CHOICES)
    binder.bind()
    calls = [step.call for step in binder.steps]
    found = [(call.function, *call.arguments.values()) for call in calls if call.op.origin]

    def sgemm(transposes, m, n, k, beta):
        lda, ldb = (k if transposes[0] == "T" else m), (n if transposes[1] == "T" else k)
        sizes = (transposes, str(m), str(n), str(k))
        return ("cublasSgemm", *sizes, "1.0", beta, f"{lda},{ldb},{m}")

    assert found == [
        ("gather_batch",),
        sgemm("TN", 500, 256, 784, "0.0"),
        sgemm("NN", 500, 256, 1, "1.0"),
        ("cudnnActivationForward", "relu"),
        sgemm("TN", 10, 256, 500, "0.0"),
        sgemm("NN", 10, 256, 1, "1.0"),
        ("cudnnSoftmaxForward", "accurate", "1.0", "0.0"),
        ("one_hot",),
        ("softmax_loss",),
        ("metrics",),
        ("cudaMemcpyAsync", "10240"),
        ("cublasSaxpy", "2560", "-1.0"),
        ("cublasSscal", "2560", str(1 / 256)),
        sgemm("NT", 500, 10, 256, "0.0"),
        ("cublasSgemv", "N", "10", "256", "1.0", "0.0"),
        sgemm("NN", 500, 256, 10, "0.0"),
        ("cudnnActivationBackward", "relu", "1.0", "0.0"),
        sgemm("NT", 784, 500, 256, "0.0"),
        ("cublasSgemv", "N", "500", "256", "1.0", "0.0"),
        ("sgd_factor",),
        *[("cublasSaxpy", n, "-rate") for n in ("392000", "500", "5000", "10")],
        ("advance",),
    ]


def floats(held, *shape):
    """What lies at an address, or at that of a buffer, which may be written."""
    pointer, size = getattr(held, "pointer", held), int(np.prod(shape))
    return np.ctypeslib.as_array((ctypes.c_float * size).from_address(pointer)).reshape(shape)


def columns(pointer, rows, count, ld):
    return floats(pointer, count, ld).T[:rows]


class Computing(TapedLibrary):
    """Libraries whose functions compute on the host what the slides ask of them."""

    def __init__(self, tape):
        super().__init__(tape)
        for name in [name for name in dir(type(self)) if name.startswith("cu")]:
            # Of a method no types of arguments can be set.
            setattr(self, name, partial(getattr(self, name)))

    def _numbers(self, handle):
        text = self._tape.handles[handle.handle]
        return [int(each) for each in re.findall(r"\b\d+\b", text.replace(".0", ""))]

    def _shape(self, handle):
        return self._numbers(handle)[1:5]

    def cublasSgemm_v2(self, _, turn_a, turn_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        a = columns(a, k, m, lda).T if turn_a else columns(a, m, k, lda)
        b = columns(b, n, k, ldb).T if turn_b else columns(b, k, n, ldb)
        self._sum(columns(c, m, n, ldc), alpha, a @ b, beta)
        return 0

    def cublasSgemv_v2(self, _, turn, m, n, alpha, a, lda, x, step, beta, y, other):
        assert (turn, step, other) == (0, 1, 1)
        self._sum(floats(y, m), alpha, columns(a, m, n, lda) @ floats(x, n), beta)
        return 0

    def cublasSaxpy_v2(self, _, n, alpha, x, step, y, other):
        assert step == other == 1
        scale = floats(alpha, 1)[0] if isinstance(alpha, int) else alpha._obj.value
        floats(y, n)[...] += np.float32(scale) * floats(x, n)
        return 0

    def cublasSscal_v2(self, _, n, alpha, x, step):
        assert step == 1
        floats(x, n)[...] *= np.float32(alpha._obj.value)
        return 0

    def _sum(self, target, alpha, value, beta):
        """Where beta is 0 the target is not read."""
        before = beta._obj.value * target if beta._obj.value else 0
        target[...] = alpha._obj.value * value + before

    def cudnnActivationForward(self, _, how, alpha, given, x, beta, made, y):
        kind, _, x = self._numbers(how)[0], None, floats(x, *self._shape(given))
        value = {
            0: lambda: 1 / (1 + np.exp(-x)),
            1: lambda: np.maximum(x, 0),
            2: lambda: np.tanh(x),
        }
        self._sum(floats(y, *self._shape(made)), alpha, value[kind](), beta)
        return 0

    def cudnnActivationBackward(self, _, how, alpha, *given):
        (y, dy, x), (beta, made, dx) = zip(given[:6:2], given[1:6:2], strict=True), given[6:]
        y, dy, x = (floats(held, *self._shape(shape)) for shape, held in (y, dy, x))
        kind = self._numbers(how)[0]
        slope = {0: y * (1 - y), 1: (x > 0) * (y > 0), 2: 1 - y * y}[kind]
        self._sum(floats(dx, *self._shape(made)), alpha, slope * dy, beta)
        return 0

    def cudnnSoftmaxForward(self, _, algorithm, mode, alpha, given, x, beta, made, y):
        assert (algorithm, mode) == (1, 1)
        x = floats(x, *self._shape(given))
        raised = np.exp(x - x.max(1, keepdims=True))
        value = raised / raised.sum(1, keepdims=True)
        self._sum(floats(y, *self._shape(made)), alpha, value, beta)
        return 0


def put(array, values):
    array.view(np.ndarray).reshape(-1)[...] = np.ravel(values)


def gather_batch(images, labels, order, step, x, target, scale, shift, n, *_):
    at = int(step[0]) % (len(order) // n) * n
    rows = order[at : at + n]
    axes = (None, slice(None), None, None)
    put(x, images[rows] * scale[axes] + shift[axes])
    put(target, labels[rows])


def softmax_loss(predict, target, loss, n, classes, mean):
    wanted = np.log(predict.reshape(n, classes)[target.reshape(n, classes) == 1])
    put(loss, -wanted.mean() if mean else -wanted.sum())


KERNELS = {
    "gather_batch": gather_batch,
    "one_hot": lambda target, rows, _, classes: put(rows, np.eye(classes)[target]),
    "softmax_loss": softmax_loss,
    "metrics": lambda *_: None,
    "sgd_factor": lambda rates, step, out: put(out, -rates[step]),
    "advance": lambda step: put(step, step + 1),
}


@pytest.fixture
def computing(tape, fake_cuda, monkeypatch):
    """The stand-in computes what a step of dense layers launches."""

    def launch(kernel, stream, grid, block, arguments, shared=0):
        return partial(KERNELS[kernel.name], *arguments)

    def copy(target, source, size, kind, stream):
        assert kind == fake_cuda.runtime.memcpyDeviceToDevice
        ctypes.memmove(target, source, size)

    taken = fake_cuda.ones

    def ones(*given):
        array = taken(*given)
        array.fill(1)
        return array

    monkeypatch.setattr(fake_cuda, "ones", ones)
    monkeypatch.setattr(fake_cuda.runtime, "memcpyAsync", copy)
    monkeypatch.setattr(taped.Kernel, "launch", launch)
    monkeypatch.setattr(
        SharedLibrary, "__init__", lambda library, _: setattr(library, "dll", Computing(tape))
    )


def trained(executable, network, graph):
    """Losses, what the layers gave last, the gradients and the parameters behind them."""
    feed(executable, network, graph, 0.05, shuffled=True)
    losses = losses_of(executable, graph, STEPS)
    tensors = [p.tensor for p in network.parameters()]
    slopes = [executable.read(graph.gradient(each)) for each in tensors]
    outputs = [executable.read(each) for each in graph.tensors() if each.name.endswith(".y")]
    return [losses, *outputs, *slopes, *map(executable.read, tensors)]


def check(executable, network, graph, rule):
    exactly = ReferenceBackend(1).compile({"train": graph}, Options("fp64", fusion=False))
    got, want = (trained(each, network, graph) for each in (executable, exactly))
    slopes = len(network.parameters())
    for at, (mine, right) in enumerate(zip(got, want, strict=True)):
        # A decay is added where the gradient lies.
        if rule == PLAIN or not len(got) - 2 * slopes <= at < len(got) - slopes:
            np.testing.assert_allclose(mine, right, rtol=1e-4, atol=2e-5, err_msg=str(at))
    executable.close()


@pytest.mark.parametrize(
    ("text", "rule", "loss"),
    [
        (DEEP, PLAIN, {}),
        (DEEP, HEAVY, {}),
        (FIRST, PLAIN, {}),
        (FIRST, PLAIN, {"reduction": "sum"}),
    ],
)
def test_the_calls_train_as_the_reference(computing, text, rule, loss):
    network, graph = step_of(text, (3, 5, 5), 32, rule, **loss)
    executable = bind({"train": graph}, "fp32", lecture.CHOICES, fusion=False, lecture=True)
    check(executable, network, graph, rule)


@pytest.mark.parametrize(
    ("asked", "streamed"), [("auto", True), ("stream", True), ("device", False)]
)
def test_nothing_is_searched_and_the_batch_is_copied(stand_in, monkeypatch, asked, streamed):
    """In fp32 and without fusion, whatever the defaults are; and the table says so."""
    made = []

    def executable(graphs, tuning, streams, arithmetic, notices, capture, streamed, pictures):
        made.append((graphs["train"].ops, tuning, arithmetic, streamed))

    monkeypatch.setattr(CudaBackend, "executable", staticmethod(executable))
    _, graph = step_of(DEEP, (3, 5, 5), 32)
    for calls in ("lecture", "best"):
        options = Options(fusion=False, precision="fp32", calls=calls, residency=asked, tune=False)
        CudaBackend().compile({"train": graph}, options)
    CudaBackend().compile({"train": graph}, Options(calls="lecture", residency=asked))
    (ops, tuning, arithmetic, copied), (_, other, usual, _), last = made
    assert last == (ops, tuning, arithmetic, copied)
    assert (ops, tuning.choices, copied) == (graph.ops, lecture.CHOICES, streamed)
    assert arithmetic == replace(Arithmetic.of("fp32", False), lecture=True)
    assert usual == Arithmetic.of("fp32", False)
    assert tuning.graph != other.graph
    _, graph = step_of(DEEP, (3, 5, 5), 32, Sgd(momentum=0.9, nesterov=True))
    with pytest.raises(ConfigError, match="no call for SgdUpdate"):
        CudaBackend().compile({"train": graph}, Options(calls="lecture"))


def test_a_pool_goes_back_as_it_came(tape):
    pool = "{pool_size: [3, 2], stride: [1, 2], padding: [1, 0]}"
    conv, dense = "conv2d: {filters: 5, kernel_size: 3}", "dense: {units: 10}"
    text = f"[{conv}, avg_pool2d: {pool}, flatten, {dense}]"
    _, graph = step_of(text, (1, 8, 8), 32)
    executable = bind({"train": graph}, "fp32", lecture.CHOICES, fusion=False, lecture=True)
    executable.run("train")
    assert (
        re.findall(r"Pooling\([^)]*\)", " ".join(tape.lines))
        == ["Pooling( 2, 1, 3, 2, 1, 0, 1, 2)"] * 2
    )
    executable.close()


@pytest.mark.parametrize("streamed", [True, False])
def test_its_memory_is_that_of_the_plan(bound, streamed):
    _, graph = step_of(PICTURES, (3, 12, 12), 32, HEAVY)
    graphs, how = {"train": graph}, {"fusion": False, "lecture": True, "streamed": streamed}
    _, taken = bound(graphs, "fp32", lecture.CHOICES, **how)
    plan = plan_memory(graphs, streamed=streamed, calls="lecture")
    assert plan.total - plan.libraries == taken
    asked = Options(calls="lecture", residency="stream" if streamed else "device")
    assert choose_residency(graphs, "fp32", asked, 1 << 40) == (streamed, plan)


def test_other_numbers_are_bound_anew(bound):
    """Its calls hold them; and the mark of what stays says that it is a lecture's."""
    graphs, other = (
        {"train": step_of(DEEP, (3, 5, 5), 32, Sgd(momentum=momentum))[1]}
        for momentum in (0.9, 0.8)
    )
    executable, _ = bound(graphs, "fp32", lecture.CHOICES, fusion=False, lecture=True)
    assert not executable.renumber(other)
    assert executable.renumber(graphs)
    assert executable.tuning.graph == fingerprint(graphs, True, "lecture")


@pytest.mark.cuda
@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("rule", [PLAIN, HEAVY])
@pytest.mark.parametrize("text", [DEEP, PICTURES])
def test_a_gpu_trains_as_the_reference(cuda, text, rule, capture):
    network, graph = step_of(text, (3, 12, 12), 32, rule)
    backend = cuda if capture else CudaBackend(capture=False)
    executable = backend.compile({"train": graph}, Options(calls="lecture"))
    assert not executable.notices
    assert executable.tuning.choices == lecture.CHOICES
    assert executable.tuning.environment["precision"] == "fp32"
    check(executable, network, graph, rule)


POOL = "layers=[{}_pool2d: {{pool_size: 2, {}}}, flatten, dense: {{units: 10}}, softmax]"
LACKING = {
    "layers.2=gelu": "Activation(gelu_1)",
    "layers.2=batch_norm": "BatchNorm(batch_norm_1)",
    "optimizer.groups=[{parameters: dense_1.*, lr_factor: 2}]": "SgdUpdate(sgd)",
    "optimizer.clip_norm=1": "GlobalNorm(sgd)",
    "optimizer={type: adam, lr: 0.1}": "AdamUpdate(adam)",
    "optimizer={type: sgd, lr: 0.1, momentum: 0.9, nesterov: true}": "SgdUpdate(sgd)",
    "loss={type: cross_entropy, label_smoothing: 0.1}": "CrossEntropy(loss)",
    "loss=squared_distance": "SquaredDistance(loss)",
    "train.accumulate=2": "Accumulate(sgd)",
    "layers.2=softmax": "SoftmaxBackward(softmax_1)",
    "data.augment=[random_flip]": "GatherAugmented(data)",
    POOL.format("max", "stride: 1, padding: same"): "Pool2d(max_pool2d_1)",
}


@pytest.mark.parametrize("change", LACKING)
def test_what_the_slides_lack_is_refused(change):
    with pytest.raises(ConfigError) as caught:
        packaged_sections("mlp.yaml", "run.calls=lecture", change)
    assert str(caught.value).startswith(f"run.calls: 'lecture' has no call for {LACKING[change]};")


def test_targets_are_classes():
    _, graph = step_of(DEEP, (3, 5, 5), 32, target="distribution")
    with pytest.raises(ConfigError, match=r"no call for CrossEntropy\(loss\)"):
        lecture.check([graph])


@pytest.mark.parametrize(
    "change",
    [
        "layers.2=tanh",
        "layers.2=sigmoid",
        "evaluate.tta=mirror",
        POOL.format("avg", "padding: 0"),
        "optimizer={type: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.1}",
    ],
)
def test_what_the_slides_have_is_taken(change):
    """Whatever a validation has besides."""
    lecture.check(packaged_sections("mlp.yaml", "run.calls=lecture", change).values())
