"""A stand-in for CUDA in host memory, which does at once what a device does later."""

from __future__ import annotations

import ctypes
import gc
import json
import re
import sys
import weakref
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda import backend as backend_module
from dnnstack.backends.cuda import timed_plans, tuner
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.bind import Arithmetic
from dnnstack.backends.cuda.binding.launches import Stream
from dnnstack.backends.cuda.dry_run import STREAM, Silent
from dnnstack.backends.cuda.executable import CudaExecutable
from dnnstack.backends.cuda.libraries import driver, kernels, modules, runtime
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.graph.rewrites import rewritten
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed
from ...support.specs import layers_of, network_of

LENET = layers_of(
    "[conv2d: {filters: 20, kernel_size: 5}, max_pool2d, conv2d: {filters: 50, kernel_size: 5}, "
    "max_pool2d, flatten, dense: {units: 500}, relu, dense: {units: 10}, softmax]"
)
CIFAR = layers_of(
    "[conv2d: {filters: 64, kernel_size: 3, padding: same}, relu, "
    "conv2d: {filters: 33, kernel_size: 3, padding: same}, tanh, avg_pool2d, global_avg_pool2d, "
    "dense: {units: 10}, softmax]"
)
DEEP = layers_of(
    "[conv2d: {filters: 24, kernel_size: 3, padding: same}, batch_norm, relu, "
    "conv2d: {filters: 24, kernel_size: 3, padding: same}, batch_norm, relu, max_pool2d, "
    "dropout: {rate: 0.2}, flatten, dense: {units: 10}, softmax]"
)
NETS = {"lenet": (LENET, (1, 28, 28)), "cifar": (CIFAR, (3, 32, 32)), "deep": (DEEP, (3, 16, 16))}


@pytest.fixture(scope="module")
def cuda():
    """The backend, where there is a GPU."""
    try:
        return CudaBackend()
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No other program uses the GPU."""
    for module in (backend_module, tuner):
        monkeypatch.setattr(module, "crowded", lambda: False)


CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}


class FakeError(RuntimeError):
    """As the error of CUDA's runtime."""


class FakeEvent:
    def __init__(self, **_):
        self.recorded = 0

    def record(self, stream=None):
        self.recorded += 1

    def synchronize(self):
        pass

    def seconds_until(self, later):
        return 1e-6


class FakeStream:
    ptr = 0

    def __init__(self):
        self.waited = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def wait_event(self, event):
        self.waited.append(event)

    def synchronize(self):
        pass


class FakeArray(np.ndarray):
    """An array with the parts of one on the device, which is not written by items either."""

    def set(self, array):
        np.copyto(self.view(np.ndarray), array)

    def __setitem__(self, key, value):
        raise TypeError("device arrays are written by set(), fill() and copies")

    def get(self):
        return np.array(self)

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def _array(array):
    return np.ascontiguousarray(array).view(FakeArray)


def _at_address(pointer, size):
    return np.frombuffer((ctypes.c_uint8 * size).from_address(pointer), "uint8").view(FakeArray)


@pytest.fixture
def fake_cuda(monkeypatch):
    """Code that asks for CUDA, CuPy or the device gets the stand-in."""
    fake = SimpleNamespace(allocated=0, held=0)

    def add(size):
        fake.held += size

    def counted(array):
        # As the pool rounds.
        size = -(-array.nbytes // 512) * 512
        fake.allocated += size
        add(size)
        # All views of it refer to it.
        weakref.finalize(array, add, -size)
        return _array(array)

    def allocate(shape, dtype="float32", value=0):
        # Zeros of a large network take no memory as long as nobody writes them.
        return counted(np.full(shape, value, dtype) if value else np.zeros(shape, dtype))

    vars(fake).update(
        empty=allocate,
        zeros=allocate,
        ones=lambda shape, dtype="float32": allocate(shape, dtype, 1),
        zeros_like=lambda array: allocate(array.shape, array.dtype),
        asarray=lambda values, dtype=None: counted(np.require(values, dtype, "W")),
        at_address=_at_address,
        pool=SimpleNamespace(free_bytes=lambda: 0),
        get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 0),
        Event=FakeEvent,
        Stream=FakeStream,
        use_device=lambda: None,
        Pinned=lambda size: np.zeros(size, np.uint8),
        driver=SimpleNamespace(DriverError=driver.DriverError),
        runtime=SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToDevice=3,
            memcpyAsync=lambda target, source, size, *_: ctypes.memmove(target, source, size),
            CUDARuntimeError=FakeError,
            memGetInfo=lambda: (1 << 30, 2 << 30),
        ),
    )
    device = SimpleNamespace(
        stream=FakeStream(),
        name="a stand-in",
        capability=(8, 0),
        processors=runtime.H200,
        numbered_stream=lambda _: FakeStream(),
        hold=lambda handles: None,
    )
    # The device of tests that use a real one stays in its cache: their backends hold its streams.
    for module in _modules():
        for name in ("cuda_api", "cupy"):
            if callable(getattr(module, name, None)):
                monkeypatch.setattr(module, name, lambda: fake)
        if hasattr(module, "cupy_on"):
            monkeypatch.setattr(module, "cupy_on", lambda stream: nullcontext(fake))
        if hasattr(module, "device"):
            monkeypatch.setattr(module, "device", lambda: device)
    return fake


@pytest.fixture
def stand_in(fake_cuda, monkeypatch):
    """CudaBackend needs no device and no library but what makes an executable."""
    monkeypatch.setattr(backend_module.device(), "has_tf32", True, raising=False)
    monkeypatch.setattr(fake_cuda.runtime, "memGetInfo", lambda: (8 << 30, 8 << 30))
    monkeypatch.setattr(CudaBackend, "versions", lambda self: {"GPU": "a stand-in"})
    monkeypatch.setattr(CudaBackend, "_stream", lambda self, index, tf32: None)


@pytest.fixture
def searched(fake_cuda):
    """What a search chooses among the candidates of sections, each given as a binder's tables."""
    fake_cuda.empty = lambda *_: SimpleNamespace(data=SimpleNamespace(ptr=0))
    tables = ("products", "convolutions", "either", "variants", "at_once", "tails", "spared")

    def search(*sections, options=None, seconds=1.0, rivals=None):
        nothing = {key: {} for key in tables} | {"together": []}
        binders = [SimpleNamespace(**nothing | each) for each in sections]
        trial = SimpleNamespace(graphs={}, binders=lambda: binders, close=lambda: None)
        options = options or Options("tf32")
        return timed_plans.timed_plans(lambda choices: trial, {}, options, seconds, rivals)

    return search


@pytest.fixture
def no_collection():
    """What refers to itself in circles stays."""
    gc.disable()
    yield
    gc.enable()


def _modules():
    prefix = runtime.__package__.removesuffix("libraries")
    return [module for name, module in list(sys.modules.items()) if name.startswith(prefix)]


def _network(name):
    specs, shape = NETS[name]
    return network_of(specs, shape)


def _sections(name, batch=64, count=640, fusion=True, momentum=0.9, weight_decay=0.01):
    network, (_, shape) = _network(name), NETS[name]
    scaling = Preprocessing.standardize([0.5] * shape[0], [0.2] * shape[0])
    rule = Sgd(momentum=momentum, weight_decay=weight_decay)
    graphs = {
        "train": composed.train_graph(network, batch, "data", count, 10, 20, scaling, rule),
        "evaluate": network.evaluate_graph(128, "data", count, 5, scaling),
    }
    rewrites = CudaBackend.rewrites if fusion else {}
    return {key: rewritten(graph, rewrites) for key, graph in graphs.items()}


@pytest.fixture
def sections():
    """Makes the sections of a small network, after rewrites; ``.network`` gives the network."""
    _sections.network = _network
    return _sections


# What the parameters of kernels are; T depends on how it is compiled, a struct is any bytes.
TYPES = {
    "float": "float32",
    "float*": "float32",
    "float2*": "float32",
    "double": "float64",
    "double*": "float64",
    "double2*": "float64",
    "int": "int32",
    "int*": "int32",
    "int2*": "int32",
    "i64": "int64",
    "i64*": "int64",
    "u8*": "uint8",
    "unsigned": "uint32",
    "unsigned*": "uint32",
    "bfloat*": "uint16",
    "T**": "uint64",
    "char**": "uint64",
}
# Bytes of a large network, beside which a collection of garbage takes no time.
_MUCH = 1 << 26
BOUNDS = r"(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?"


class FakeToolchain:
    """Its code is what it was given; ``made``: how many times that was."""

    mark, architecture = "a stand-in", "-arch=sm_80"
    made = 0

    def submit(self, source, options):
        FakeToolchain.made += 1
        done = Future()
        done.set_result(json.dumps([source, options]).encode())
        return done


class FakeModule:
    """Its kernels compute nothing."""

    def __init__(self, code):
        self.source, self.options = json.loads(code)

    def function(self, name):
        return FakeKernel(self.source, self.options, name)


class FakeKernel:
    """A kernel that computes nothing, with the types that its source declares."""

    ptr = 0

    def __init__(self, code, options, name):
        (found,) = re.findall(rf"KERNEL\s+{BOUNDS}{name}\(([^)]*)\)", code)
        plain = re.sub(r"\b(const|__restrict__)\b|\s+", " ", found)
        self.name = name
        self.kinds = [part.rsplit(maxsplit=1)[0].replace(" ", "") for part in plain.split(",")]
        stored = "uint16" if "-DBFLOAT=1" in options else "float32"
        structs = {f"{each}*": None for each in re.findall(r"struct (?:\w+\([^)]*\) )?(\w+)", code)}
        result = "uint16" if "-DRESULT_BFLOAT=1" in options else "float32"
        known = {**structs, **TYPES, "T*": stored, "R*": result}
        self.types = [known[kind] for kind in self.kinds]

    def launch(self, *_):
        return lambda: None

    def check(self, arguments):
        assert len(arguments) == len(self.types), self.name
        for at, (value, kind, dtype) in enumerate(
            zip(arguments, self.kinds, self.types, strict=True)
        ):
            where = f"{self.name}, argument {at}, {kind}"
            assert kind.endswith("*") == (isinstance(value, int) or np.ndim(value) > 0), where
            if dtype is not None and not isinstance(value, int):
                assert value.dtype == dtype, where


class FakeConvolution(Silent):
    """Stands for a convolution of cuDNN, which asks for a workspace and computes nothing."""

    plan_name = "none"
    plan = 0

    def choice(self, index):
        return str(index)


@pytest.fixture
def bound(fake_cuda, monkeypatch):
    """Binds sections on the stand-in for a device; gives the bytes that were allocated, too.

    What it has bound is closed at the end.
    """
    made = []
    fake_cuda.Module = FakeModule
    fake_cuda.driver.allow_shared = lambda *_: None
    monkeypatch.setattr(modules, "toolchain", FakeToolchain)
    launch = kernels.Kernel.launch

    def checked(kernel, stream, grid, block, arguments, shared=0):
        kernel._function(shared).check(arguments)
        return launch(kernel, stream, grid, block, arguments, shared)

    # A kernel that is given numbers of another type would read beyond their end.
    monkeypatch.setattr(kernels.Kernel, "launch", checked)

    def bind(
        graphs,
        precision="tf32",
        choices=CHOICES,
        streamed=False,
        capture=False,
        fusion=True,
        deterministic=True,
        pictures=None,
        lecture=False,
    ):
        libraries = (STREAM.cublas, STREAM.cudnn, STREAM.cublas_lt)
        stream = Stream(fake_cuda.Stream(), *libraries, convolution=FakeConvolution())
        streams = [stream] * int(choices["streams"])
        kind = replace(Arithmetic.of(precision, fusion, deterministic), lecture=lecture)
        before = fake_cuda.allocated
        executable = CudaExecutable(
            graphs,
            Tuning("cuda", choices=choices),
            streams,
            kind,
            capture=capture,
            streamed=streamed,
            pictures=pictures,
        )
        made.append(executable)
        return executable, fake_cuda.allocated - before

    # What is compiled for the stand-in is no kernel.
    kernels._module.cache_clear()
    yield bind
    for executable in made:
        executable.close()
    kernels._module.cache_clear()
    if fake_cuda.held > _MUCH:
        # What has been bound refers to itself in circles, and a few objects hold all the memory.
        gc.collect()
