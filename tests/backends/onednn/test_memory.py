"""What lies in memory: constants, what comes from outside, and what every run writes anew."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from dnnstack.backends.base import Array, Options
from dnnstack.backends.onednn import memory, store
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.graph import ops
from dnnstack.graph.graph import EXTERNAL
from dnnstack.optimizers.adam import Adam
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.sections import Composition

from ...support.op_cases import CASES
from ...support.op_draft import Draft
from ...support.specs import spec

pytestmark = pytest.mark.usefixtures("norms_by_onednn")
BODIES = (
    [spec("conv2d", filters=8, kernel_size=3, padding=1), spec("relu")],
    [spec("conv2d", filters=8, kernel_size=3), spec("pad2d", padding=1, value=0.5)],
)
END = (spec("flatten"), spec("dense", units=10), spec("softmax"))
DEEP = (
    spec("conv2d", filters=8, kernel_size=3),
    *(spec("residual", body=body) for body in BODIES),
    *(spec("batch_norm"), *END),
)


@pytest.fixture
def allocated(monkeypatch) -> Iterator[list[weakref.ref]]:
    """Weak references to every buffer that is allocated from now on."""
    made: list[weakref.ref] = []
    original = memory.aligned

    def recorded(nbytes: int) -> Array:
        buffer = original(nbytes)
        made.append(weakref.ref(buffer))
        return buffer

    monkeypatch.setattr(memory, "aligned", recorded)
    monkeypatch.setattr(store, "aligned", recorded)
    return made


def unaccounted(executable: OneDnnExecutable, allocated: list[weakref.ref]) -> int:
    """Buffers that live but are neither shared, constant, given from outside, nor written anew."""
    known = {arena.ctypes.data for arena in executable._store.arenas.values()}
    known |= {m.buffer.ctypes.data for m in executable._store.memories.values()}
    for binder in executable._sections.values():
        outside = [m for t, m in binder.memories.items() if t.role in EXTERNAL]
        known |= {m.buffer.ctypes.data for m in (*binder.constants, *outside)}
        known |= {array.ctypes.data for array in binder.changing(entering=True)}
    if not lost(allocated, known):
        return 0
    gc.collect()
    return lost(allocated, known)


def lost(allocated: list[weakref.ref], known: set[int]) -> int:
    alive = [buffer for each in allocated if (buffer := each()) is not None]
    return sum(buffer.ctypes.data not in known for buffer in alive)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_buffer_of_every_operation_is_of_one_kind(onednn, allocated, precision) -> None:
    if precision == "bf16" and not memory.library().has_bfloat16():
        pytest.skip("this processor has no bfloat16")
    tried = 0
    for name, make in CASES.items():
        draft = make(np.random.default_rng(1), "normal")
        allocated.clear()
        executable = onednn.compile(
            {draft.graph.name: draft.graph}, Options(precision, fusion=False, tune=False)
        )
        assert unaccounted(executable, allocated) == 0, name
        tried += bool(allocated)
        executable.close()
    assert tried > 700


@pytest.mark.parametrize("rule", [Sgd(momentum=0.9), Adam(), Muon(rest=Sgd())], ids=repr)
def test_every_buffer_of_a_training_is_of_one_kind(make, allocated, rule) -> None:
    averaged = Composition(rule, averages=("lookahead",))
    _, _, executable = make(rule=averaged, evaluate=True)
    assert unaccounted(executable, allocated) == 0


def trained(make, allocated, share: bool) -> tuple[list[Array], int]:
    allocated.clear()
    options = Options(tune=False, share_memory=share)
    network, graphs, executable = make(DEEP, options=options, evaluate=True)
    size = sum(buffer.nbytes for each in allocated if (buffer := each()) is not None)
    for _ in range(3):
        executable.poison()
        executable.run("train")
    executable.write(graphs["evaluate"]["order"], np.arange(32, dtype=np.int32))
    executable.poison()
    executable.run("evaluate")
    found = [executable.read(p.tensor) for p in network.parameters()]
    return [*found, executable.read(graphs["evaluate"]["scores"])], size


def test_shared_memory_is_less_and_changes_no_bit(make, allocated) -> None:
    own, size = trained(make, allocated, share=False)
    shared, less = trained(make, allocated, share=True)
    assert less < 0.75 * size
    for one, other in zip(own, shared, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)


def test_what_gave_its_memory_away_cannot_be_read(make) -> None:
    _, _, executable = make(DEEP, options=Options(tune=False, share_memory=True))
    executable.run("train")
    given = [t for t in executable.graphs["train"].tensors() if t.role == "activation"]
    refused = 0
    for tensor in given:
        try:
            executable.read(tensor)
        except KeyError as error:
            refused += "given to a later tensor" in str(error)
    assert refused > 5


def test_padding_of_blocks_is_written_too(make) -> None:
    """Channels that only fill up a block reach gradients, over whose padding updates run."""
    conv = spec("conv2d", filters=20, kernel_size=3, padding=1)
    _, _, executable = make((*(conv, spec("batch_norm"), spec("relu")) * 2, *END))
    executable.poison()
    executable.run("train")
    padded = 0
    for tensor, held in executable._sections["train"].memories.items():
        if held.descriptor.dtype == "float32" and held.descriptor.nbytes > 4 * tensor.size:
            assert np.isfinite(held.array()).all(), tensor.name
            padded += 1
    assert padded > 5


def test_what_is_written_late_does_not_come_behind_a_later_tensor(onednn):
    """Variances that nobody reads, whose place a product may have."""
    d = Draft(np.random.default_rng(1), "normal")
    x, var = d.floats("x", 1, 20, 4, 4), d.graph.tensor("var", (20,))
    ends = {"mean": d.out("mean", 20), "inverse_std": d.out("inverse_std", 20)}
    d.graph.add(ops.BatchNorm(x=x, y=d.out("y", *x.shape), **ends, var=var, momentum=1.0, eps=0.1))
    a, b, c = d.floats("a", 2, 3), d.floats("b", 5, 3, role="parameter"), d.out("c", 2, 5)
    d.graph.add(ops.MatMul(a=a, b=b, c=c, transpose_b=True))
    dy, dx = d.floats("dy", *x.shape), d.out("dx", *x.shape)
    d.graph.add(ops.BatchNormBackward(x=x, dy=dy, **ends, dx=dx, eps=0.1))
    executable = onednn.compile({"one": d.graph}, Options(share_memory=True, tune=False))
    for tensor, value in d.values.items():
        executable.write(tensor, value)
    executable.run("one")
    np.testing.assert_allclose(executable.read(c), d.values[a] @ d.values[b].T, rtol=1e-5)
    executable.close()
