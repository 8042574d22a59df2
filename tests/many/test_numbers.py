"""A training with other numbers, which uses what is compiled where it can, has its own bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.backends.keeping import Keeping
from dnnstack.configs import RunConfig

from ..support.trainings import Counting, go, same

Tiny = Callable[..., RunConfig]
MUON = (
    "optimizer={type: muon, lr: 0.02, momentum: 0.9, weight_decay: 0.01, "
    "rest: {type: sgd, lr: 0.05, momentum: 0.8}}"
)
SGD = "optimizer={type: sgd, lr: 0.05, momentum: 0.9, nesterov: true, groups: [%s]}"
PLAIN = "optimizer={type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}"
ADAM = "optimizer={type: adam, lr: 0.01, weight_decay: 0.01}"
GROUPS = (
    SGD % "{parameters: 'conv*', lr: 0.01, weight_decay: 0.02}",
    SGD % "{parameters: 'conv*', lr: 0.04, weight_decay: 0.03}",
)
DROPOUT = "layers=[flatten, {dropout: {}}, {dense: {units: 10}}, softmax]"
AUGMENT = "data.augment=[{random_crop: {padding: 1}}, random_flip, mixup]"
SPLIT = "data.split_seed=1"
CASES: dict[str, tuple[tuple[str, ...], tuple[str, str]]] = {
    "muon-lr": ((MUON,), ("optimizer.lr=0.03", "optimizer.lr=0.01")),
    "muon-momentum": ((MUON,), ("optimizer.momentum=0.8", "optimizer.momentum=0.7")),
    "muon-decay": ((MUON,), ("optimizer.weight_decay=0.1", "optimizer.weight_decay=0.3")),
    "rest-lr": ((MUON,), ("optimizer.rest.lr=0.04", "optimizer.rest.lr=0.01")),
    "groups": ((), GROUPS),
    "momentum": ((PLAIN,), ("optimizer.momentum=0.5", "optimizer.momentum=0.8")),
    "sgd-decay": ((PLAIN,), ("optimizer.weight_decay=0.1", "optimizer.weight_decay=0.2")),
    "adam": ((ADAM,), ("optimizer.eps=0.001", "optimizer={type: adam, lr: 0.01, "
                       "betas: [0.8, 0.999], weight_decay: 0.02}")),
    "adamw": ((ADAM, "optimizer.type=adamw"),
              ("optimizer.weight_decay=0.03", "optimizer.weight_decay=0.2")),
    "adagrad": (("optimizer={type: adagrad, lr: 0.01, weight_decay: 0.1}",),
                ("optimizer.weight_decay=0.2", "optimizer.weight_decay=0.3")),
    "smoothing": ((), ("loss={type: cross_entropy, label_smoothing: 0.1}",
                       "loss={type: cross_entropy, label_smoothing: 0.2}")),
    "dropout": ((DROPOUT, SPLIT), ("seed=1", "seed=2")),
    "augment": ((AUGMENT, SPLIT), ("seed=1", "seed=2")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_another_number(tiny: Tiny, counting: Counting, case: str) -> None:
    how, changes = CASES[case]
    keeping = Keeping(counting)
    # The second one is of another length too.
    steps = ("train.max_steps=8", "train.max_steps=11", "train.max_steps=8")
    each = [(*changes, changes[0])[i] for i in range(3)]
    configs = [tiny(*how, change, own) for change, own in zip(each, steps, strict=True)]
    found = [go(config, keeping) for config in configs]
    # oneDNN compiles in a few hundredths of a second, so that it takes no other numbers.
    assert len(counting.made) == (3 if counting.name == "onednn" else 1)
    for config, kept in zip(configs, found, strict=True):
        same(kept, go(config, counting._backend))
    first, second = (next(iter(one.arrays.values())) for one in found[:2])
    assert not np.array_equal(first, second)
