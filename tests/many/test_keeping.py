"""A training uses again what the one before it has compiled, and has the bits of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.base import Backend, Options
from dnnstack.backends.keeping import Keeping
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import NonFiniteError
from dnnstack.configs import RunConfig
from dnnstack.graph.graph import SHARED
from dnnstack.training.trainer import train

from ..support.trainings import NOWHERE, Counting, go, same, session_of

Tiny = Callable[..., RunConfig]
SGD = "optimizer={type: sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.01}"
AVERAGES = (
    "layers=[{conv2d: {filters: 5, kernel_size: 5, stride: 2}}, batch_norm, relu, {dropout: {}}, "
    "flatten, {dense: {units: 10}}, softmax]",
    "optimizer={type: adam, lr: 0.01, clip_norm: 1.0, ema: {decay: 0.9}}",
    "train.accumulate=2",
)


@pytest.mark.parametrize("how", [(SGD,), AVERAGES], ids=["sgd", "averages"])
def test_another_rate_compiles_nothing_and_has_its_own_bits(
    tiny: Tiny, counting: Counting, how: tuple[str, ...]
) -> None:
    keeping = Keeping(counting)
    rates = [tiny(*how, f"optimizer.lr={rate}", "train.max_steps=12") for rate in (0.01, 0.02)]
    found = [go(config, keeping) for config in (rates[0], rates[1], rates[0])]
    assert (len(counting.made), counting.closed) == (1, [])
    for config, kept in zip((rates[0], rates[1], rates[0]), found, strict=True):
        same(kept, go(config, counting))
    assert not np.array_equal(*(next(iter(one.arrays.values())) for one in found[:2]))


def test_a_training_of_another_length_compiles_nothing(tiny: Tiny, counting: Counting) -> None:
    """Tables are longer or shorter then; averages and lookahead have tables of their own."""
    keeping = Keeping(counting)
    swa = "optimizer.swa={start_step: 4, every_steps: 3}"
    for more in ((), (swa,), ("optimizer.lookahead={}",)):
        before = len(counting.made)
        for steps in (9, 25, 12):
            config = tiny(SGD, "schedule=cosine", f"train.max_steps={steps}", *more)
            same(go(config, keeping), go(config, counting._backend))
        assert len(counting.made) == before + 1


def test_after_a_training_that_diverged(tiny: Tiny, counting: Counting) -> None:
    """Nothing of what is not finite is left, also where a layout is padded."""
    keeping = Keeping(counting)
    config = tiny(SGD, "optimizer.clip_norm=1.0")
    with pytest.raises(NonFiniteError):
        train(tiny(SGD, "optimizer.clip_norm=1.0", "optimizer.lr=1e38"), keeping, NOWHERE)
    same(go(config, keeping), go(config, counting))


def test_renewed_it_is_empty_but_for_its_data(tiny: Tiny, counting: Counting) -> None:
    session = session_of(tiny(*AVERAGES), counting)
    executable = session.executable
    every = {t: None for graph in executable.graphs.values() for t in graph.tensors()}
    outside = [tensor for tensor in every if tensor.role in SHARED]
    for tensor in outside:
        if tensor.dtype == "float32" and tensor.role != "data":
            executable.write(tensor, np.full(tensor.shape, np.nan, np.float32))
    session.run(2)
    before = {tensor: executable.read(tensor) for tensor in outside if tensor.role == "data"}
    executable.renew()
    for tensor in outside:
        if tensor in before:
            np.testing.assert_array_equal(executable.read(tensor), before[tensor])
            continue
        # The reference has nothing to read before it is written.
        with suppress(KeyError):
            assert not executable.read(tensor).any(), tensor
    for arena in getattr(getattr(executable, "_store", None), "arenas", {}).values():
        values = arena if isinstance(arena, np.ndarray) else arena.get()
        assert not values.any()
    session.close()


def test_what_is_compiled_anew(tiny: Tiny, counting: Counting) -> None:
    """Another kind of operation, another shape, other data; one executable is kept."""
    keeping = Keeping(counting)
    changes = (
        *("optimizer.nesterov=false", "data.batch_size=20", "layers.conv2d_1.filters=5"),
        "run.tune=false",
    )
    go(tiny(SGD), keeping)
    for number, change in enumerate(changes):
        config = tiny(SGD, change)
        kept = go(config, keeping)
        assert len(counting.made) == number + 2
        assert counting.closed == [*range(number + 1)]
        same(kept, go(config, counting._backend))
    keeping.close()
    assert counting.closed == [*range(len(counting.made))]


def test_seeds_of_a_network_without_random_numbers_share_it(tiny: Tiny, counting: Counting) -> None:
    keeping = Keeping(counting)
    for seed in (1, 2):
        config = tiny(f"seed={seed}", "data.split_seed=1", "train.max_steps=4")
        same(go(config, keeping), go(config, counting._backend))
    assert len(counting.made) == 1


def test_another_tuning_is_another_executable(tiny: Tiny, counting: Counting) -> None:
    """As for a trial that goes on with the choices of its checkpoint."""
    keeping, session = Keeping(counting), session_of(tiny("run.tune=true"), counting)
    graphs = {graph.name: graph for graph in (session.graph("train"), session.graph("evaluate"))}
    choices = session.executable.tuning
    session.close()

    def compiled(tuning: Tuning | None) -> int:
        executable = keeping.compile(graphs, Options(tuning=tuning))
        executable.close()
        return len(counting.made)

    first = compiled(None)
    assert compiled(None) == first
    assert compiled(choices) == first
    assert compiled(replace(choices, graph="another")) == first + 1
    assert compiled(None) == first + 2


def test_a_tuning_that_is_given_is_for_the_numbers_of_its_sections(
    tiny: Tiny, reference: Backend
) -> None:
    counting = Counting(reference)
    keeping = Keeping(counting)

    def compiled(momentum: float, tuning: Tuning | None) -> int:
        config = tiny(f"optimizer={{type: sgd, lr: 0.05, momentum: {momentum}}}", "run.tune=true")
        session = session_of(config, counting._backend)
        graphs = {"train": session.graph("train")}
        session.close()
        executable = keeping.compile(graphs, Options(tuning=tuning))
        choices.append(executable.tuning)
        executable.close()
        return len(counting.made)

    choices: list[Tuning] = []
    assert [compiled(momentum, None) for momentum in (0.5, 0.6)] == [1, 1]
    assert [compiled(momentum, choices[1]) for momentum in (0.6, 0.7)] == [1, 2]


def test_what_failed_is_not_kept(tiny: Tiny, reference: Backend) -> None:
    counting = Counting(reference)
    keeping, config = Keeping(counting), tiny()
    session = session_of(config, keeping)
    executable = session.executable
    with pytest.raises(KeyError):
        executable.run("no such section")
    session.close()
    assert counting.closed == [0]
    with pytest.raises(ValueError, match="is closed"):
        executable.read(session.graph("train")["loss"])
    executable.close()


def test_two_at_a_time_are_two(tiny: Tiny, reference: Backend) -> None:
    counting = Counting(reference)
    keeping = Keeping(counting)
    one, other = session_of(tiny(), keeping), session_of(tiny(), keeping)
    assert len(counting.made) == 2
    other.close()
    one.close()
    assert counting.closed == [1]
