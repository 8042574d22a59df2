"""Which operations have a kernel where; it takes no device to know."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import pytest
from dnnstack.backends.cuda import executable as cuda_executable  # its import enters the kernels
from dnnstack.backends.cuda.binding import bind as cuda
from dnnstack.backends.cuda.fused import dense_tail, first_conv, pattern, residual
from dnnstack.backends.onednn import bind as onednn
from dnnstack.backends.onednn import executable as onednn_executable
from dnnstack.backends.onednn.fallback import reference as numpy_in_onednn
from dnnstack.backends.reference import kernels as reference
from dnnstack.backends.registry import Registry
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.graph import ops
from dnnstack.graph.graph import Op, Origin, Tensor

from ..support.operations import OPERATIONS

REGISTRIES = {"numpy": reference.KERNELS, "cpu": onednn.KERNELS, "cuda": cuda.KERNELS}
# Only a GPU's kernels unite several operations; the reference takes them apart.
LACKING = {"numpy": {ops.Fused}, "cpu": {ops.Fused}, "cuda": set[type[Op]]()}
# Only a CPU computes with integers.
INTEGERS = {ops.Quantize, ops.QuantizedConv2d, ops.QuantizedMatMul}
CUDA = tuple(
    cuda_executable.__name__.removesuffix("executable") + folder
    for folder in ("operations.", "fused.")
)
assert onednn_executable


def test_ops_gives_every_operation_of_its_modules():
    """All but what operations are only derived from."""
    for module in pkgutil.iter_modules(ops.__path__, f"{ops.__name__}."):
        import_module(module.name)

    def last(kind: type[Op]) -> Iterator[type[Op]]:
        derived = kind.__subclasses__()
        for each in derived:
            yield from last(each)
        if not derived and kind.__module__.startswith(f"{ops.__name__}."):
            yield kind

    assert set(last(Op)) <= OPERATIONS


@pytest.mark.parametrize("device", REGISTRIES)
def test_every_operation_has_a_kernel(device):
    registry = REGISTRIES[device]
    lacking = {kind for kind in OPERATIONS if registry.find(kind) is None}
    assert {kind.__name__ for kind in lacking} == {kind.__name__ for kind in LACKING[device]}


@pytest.mark.parametrize("device", REGISTRIES)
def test_no_kernel_is_for_an_operation_that_there_is_not(device):
    assert not {kind.__name__ for kind in set(REGISTRIES[device]) - OPERATIONS}


def test_every_kind_of_united_operations_has_a_kernel():
    kinds = {first_conv.FORWARD, first_conv.BACKWARD, dense_tail.TAIL, dense_tail.GRADIENTS}
    kinds |= {residual.NORM_ADD, residual.GRADIENT}
    assert set(pattern.LAUNCHES) == kinds


def test_what_onednn_has_not_numpy_computes():
    """And only there: a GPU that fell back to the host would be slow without a word."""
    for kind in (ops.Rbf, ops.Views):
        assert kind not in onednn.KERNELS
        assert onednn.KERNELS.find(kind) is numpy_in_onednn
        assert cuda.KERNELS.find(kind) is cuda.KERNELS[kind]
    assert numpy_in_onednn not in onednn.KERNELS.values()
    # Only plugins have augmentations of this kind.
    assert OPERATIONS - set(cuda.KERNELS) == {ops.ChangePixels, *INTEGERS}
    for kind in (ops.MatMul, ops.Advance):
        assert onednn.KERNELS.find(kind) is onednn.KERNELS[kind]
    assert all(kernel.__module__.startswith(CUDA) for kernel in cuda.KERNELS.values())


def test_of_an_operation_its_own_kernel_comes_first():
    registry: Registry[str] = Registry("abacus")
    registry[ops.Scale] = "own"
    registry.fall_back("default", {ops.Scale, ops.Softmax})
    x, y, step = Tensor("x", (1,)), Tensor("y", (1,)), Tensor("step", (1,), "int64", "state")
    assert registry.of(ops.Scale(x=x, y=y, factor=2.0)) == "own"
    assert registry.find(ops.Softmax) == "default"
    assert registry.find(ops.Advance) is None
    with pytest.raises(BackendUnavailableError) as caught:
        registry.of(ops.Advance(step=step, origin=(Origin("sgd", "update"),)))
    assert str(caught.value) == (
        "device 'abacus': Advance(sgd) has no kernel there; use --device cpu"
    )
