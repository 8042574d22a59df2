"""Optimizers on a GPU: whole trainings against the reference, and the copies in bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.libraries.layout import _from_bfloat, _to_bfloat
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.augmentations import (
    AlternatingFlip,
    Cutout,
    Elastic,
    RandomCrop,
    Recolour,
    Rotate,
)
from dnnstack.optimizers.adam import Adam, Adamw
from dnnstack.optimizers.groups import Group, stretches
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.rules import Rule
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.average import evaluated
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition, kept

from ....support import composed
from ....support.specs import layers_of, network_of

pytestmark = pytest.mark.cuda

COUNT, BATCH, STEPS, TOTAL = 96, 32, 7, 50
# Numbers of channels that are padded; filters wide and tall as matrices. No bias is before
# batch_norm: its gradient would be rounding errors, which Adam takes for a direction.
NET = layers_of(
    "[conv2d: {filters: 20, kernel_size: 3, use_bias: false}, batch_norm, relu, max_pool2d, "
    "conv2d: {filters: 33, kernel_size: 1, use_bias: false}, tanh, "
    "conv2d: {filters: 18, kernel_size: 3, padding: same}, avg_pool2d, flatten, "
    "dense: {units: 30}, tanh, dense: {units: 10}, softmax]"
)
SGD = Sgd(momentum=0.9, nesterov=True, weight_decay=0.01)
FROZEN = Group(names=("conv2d_1.*",), freeze_after=1.0)
LATE = Group(names=("conv2d_2.*", "dense_1.bias"), freeze_until=1.0, lr_factor=3.0)
RULES = {
    "sgd in groups": Composition(SGD, (FROZEN, Group(kinds=("bias",), lr_factor=4.0), LATE)),
    "adam": Composition(Adam(betas=(0.8, 0.9), eps=1e-2, weight_decay=0.1), clip_norm=1.0),
    "adamw in groups": Composition(Adamw(eps=1e-2, weight_decay=0.1), (FROZEN, LATE)),
    "muon": Muon(rest=SGD, rescale=True, weight_decay=0.1, iterations=3),
    "muon, adam": Muon(rest=Adam(eps=1e-2), momentum=0.6, nesterov=False, iterations=4),
    "averages": Composition(SGD, (FROZEN,), averages=("lookahead", "ema")),
    "parts": Composition(
        Sgd(momentum=0.9), (FROZEN, LATE), clip_norm=0.3, averages=("ema",), parts=4
    ),
}


def trained(backend, rule, precision, residency="device", augment=()):
    """Losses, what was learned, the state, an evaluation's sums, and the executable."""
    shape = (3, 12, 12)
    network = network_of(NET, shape)
    scaling = Preprocessing.standardize([0.4, 0.5, 0.6], [0.2, 0.3, 0.25])
    rule = Composition(rule) if isinstance(rule, Rule) else rule
    per_epoch = COUNT // BATCH
    parameters = network.parameters()
    statistics = tuple(s.tensor for s in network.running_statistics())
    phases = []
    given = (network, BATCH, "train", COUNT, per_epoch, TOTAL, scaling, rule)
    step = composed.step_of(*given, augment=augment)
    for first in stretches(rule.groups, per_epoch, TOTAL):
        phases.append((first, *step.graphs(first)))
    evaluate = network.evaluate_graph(COUNT, "train", COUNT, 1, scaling)
    graphs = [graph for phase in phases for graph in phase[1:] if graph is not None]
    evaluate = evaluate.substituted(evaluated(graphs))
    sections = {graph.name: graph for graph in (*graphs, evaluate)}
    executable = backend.compile(sections, Options(precision, tune=False, residency=residency))
    train = phases[0][1]
    draw = np.random.default_rng(3)
    executable.write(train["images"], draw.integers(0, 256, (COUNT, *shape), dtype=np.uint8))
    executable.write(train["labels"], draw.integers(0, 10, COUNT).astype(np.int32))
    executable.write(train["order"], draw.permutation(COUNT).astype(np.int32))
    executable.write(evaluate["order"], np.arange(COUNT, dtype=np.int32))
    decays = np.where(np.arange(TOTAL) % 2 == 1, 0.7, -1.0).astype(np.float32)
    for name, tensor in (phases[0][2] or train).results.items():
        if tensor.name.startswith("rates"):
            executable.write(tensor, np.full(TOTAL, 0.01, np.float32))
        elif name.endswith(".decays"):
            executable.write(tensor, np.full(TOTAL, 0.8, np.float32) if "ema" in name else decays)
    values = network.initial_values(1)
    for tensor, array in values.items():
        executable.write(tensor, array)
    for average, of in composed.averages(rule, parameters, statistics).items():
        executable.write(average, values[of])
    losses = []
    for step in range(STEPS):
        _, graph, update = [phase for phase in phases if phase[0] <= step][-1]
        executable.run(graph.name, rule.parts)
        if update is not None:
            executable.run(update.name)
        losses.append(float(executable.read(graph["loss"])[0]))
    executable.run(evaluate.name)
    tensors = (*network.learned(), *kept(rule, parameters, statistics))
    found = {tensor.name: executable.read(tensor) for tensor in tensors}
    return losses, found, executable.read(evaluate["sums"]), executable, parameters


@pytest.mark.parametrize("rule", list(RULES))
def test_training_follows_the_reference(cuda, rule):
    wanted, values, sums, _, _ = trained(ReferenceBackend(2), RULES[rule], "fp64")
    losses, got, others, executable, _ = trained(cuda, RULES[rule], "fp32")
    np.testing.assert_allclose(losses, wanted, rtol=5e-5)
    np.testing.assert_allclose(others, sums, rtol=5e-5)
    for name, want in values.items():
        size = max(1e-3, float(np.abs(want).max()))
        np.testing.assert_allclose(got[name], want, rtol=0, atol=2e-4 * size, err_msg=name)
    executable.close()


@pytest.mark.parametrize("rule", list(RULES))
def test_copies_in_bfloat16_are_renewed(cuda, rule):
    """After any update, and what training does with them stays near the reference."""
    wanted, _, _, _, _ = trained(ReferenceBackend(2), RULES[rule], "fp64")
    losses, got, _, executable, parameters = trained(cuda, RULES[rule], "bf16")
    np.testing.assert_allclose(losses, wanted, rtol=0.05)
    copies = 0
    for parameter in parameters:
        tensor = parameter.tensor
        copy = executable._store._bf16_copies.get(tensor)
        if copy is None:
            continue
        copies += 1
        held = copy.layout.unpack(copy.array.get())
        rounded = _from_bfloat(_to_bfloat(got[tensor.name]))
        np.testing.assert_array_equal(held, rounded, tensor.name)
        own = executable._store.buffers[tensor]
        stored = own.array.get()
        assert np.count_nonzero(stored) <= tensor.size, f"{tensor.name}: padding is not zero"
    assert copies >= 4
    executable.close()


@pytest.mark.parametrize("rule", ["muon", "averages", "parts"])
def test_two_runs_are_bit_equal(cuda, rule):
    runs = [trained(cuda, RULES[rule], "tf32") for _ in range(2)]
    assert runs[0][0] == runs[1][0]
    for name, values in runs[0][1].items():
        np.testing.assert_array_equal(values, runs[1][1][name], name)


def test_streamed_pictures_are_augmented_alike(cuda):
    """Samples are known by their own rows and epochs, wherever the pictures are."""
    whole = (Recolour(), RandomCrop(2), AlternatingFlip())
    augment = (*whole, Rotate(20.0), Elastic(4.0, 1.5), Cutout(3))
    runs = [
        trained(cuda, RULES["averages"], "bf16", residency, augment)
        for residency in ("device", "stream")
    ]
    assert runs[0][0] == runs[1][0]
    for name, values in runs[0][1].items():
        np.testing.assert_array_equal(values, runs[1][1][name], name)
    wanted, *_ = trained(ReferenceBackend(2), RULES["averages"], "fp64", augment=augment)
    np.testing.assert_allclose(runs[0][0], wanted, rtol=0.05)
