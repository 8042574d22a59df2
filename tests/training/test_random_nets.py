"""Whole networks drawn at random: every backend trains them as the float64 reference does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Executable, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.reference.losses import counted
from dnnstack.backends.select import open_backend
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.configs import RunConfig, parse_config
from dnnstack.graph.graph import Graph
from dnnstack.layers.losses.loss import Loss
from dnnstack.training.assemble import build_network
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.records.formats.state import Snapshot
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from hypothesis import HealthCheck, assume, given, seed, settings

from ..support.costly import TURNS
from ..support.random_nets import Training, trainings

pytestmark = pytest.mark.timeout(0 if os.environ.get("DNNSTACK_NETS") else 600)

# 20,000 by DNNSTACK_NETS=20000, in shares that several processes can take, each time others, or
# those of DNNSTACK_SEED; without it always the same.
COUNT = int(os.environ.get("DNNSTACK_NETS", "0"))
SHARES = range(20 if COUNT else 1)
SEED = os.environ.get("DNNSTACK_SEED")
NETS = settings(
    max_examples=-(-COUNT // len(SHARES)) or 100,
    derandomize=not COUNT,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
# Parameters are moved by so much of their size to see how far roundings may lead.
MOVED = {"fp32": 2.0**-17, "tf32": 2.0**-8, "bf16": 2.0**-6}
FIRST_SEEDS, FURTHER_SEEDS = range(1, 3), range(3, 17)
# What must be reached at least, of the largest number of a tensor, which counts as this at least:
# a gradient that is zero but for roundings has those of what it is the sum of.
COARSE = {"fp32": 1e-4, "tf32": 2.0**-7, "bf16": 2.0**-3}
SMALLEST = {"fp32": 0.1, "tf32": 1.0, "bf16": 1.0}
# Beyond it a training diverges, and float32 overflows where float64 does not.
MOST = 1e4


class Poisoned:
    """An executable whose memory is poisoned before every single run of a section.

    ``answers``: scores and targets of every batch so far, of training (True) and of evaluation.
    """

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self.answers: dict[bool, list[tuple[Array, Array]]] = {True: [], False: []}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def run(self, section: str, steps: int = 1, wait: bool = True) -> None:
        for _ in range(steps):
            self._executable.poison()
            self._executable.run(section, 1, wait)
            graph = self._executable.graphs[section]
            if "scores" in graph.results:
                scores, targets = (self.read(graph[name]) for name in ("scores", "target"))
                real = counted(targets)
                self.answers[graph.training].append((scores[real], targets[real]))

    def run_in_turn(self, sections: Sequence[str], steps: int = 1, wait: bool = True) -> None:
        for section in (*sections,) * steps:
            self.run(section, 1, wait)


class Compiling:
    """A backend that compiles with other options, and poisons what it has compiled."""

    def __init__(self, backend: Backend, **changed: Any) -> None:
        self._backend, self._changed = backend, changed
        self.name, self.rewrites = backend.name, backend.rewrites

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compile(self, sections: Mapping[str, Graph], options: Options | None = None) -> Any:
        options = replace(options or Options(), **self._changed)
        with pytest.MonkeyPatch.context() as patch:
            if options.share_memory:
                # Networks this small would leave all batch norms to NumPy.
                patch.setattr("dnnstack.backends.onednn.norm.FEW", 0)
            return Poisoned(self._backend.compile(sections, options))


def session_of(training: Training, backend: Any) -> Session:
    config: RunConfig = parse_config(json.dumps(training.config), "drawn.yaml")
    network = build_network(config, training.info)
    plan = make_plan(config, len(training.data))
    scaling = preprocessing(config, training.info)
    session = Session(Setup(config, network, scaling, plan, training.data), backend)
    session.initialize()
    return session


def start_of(session: Session, seed: int) -> Snapshot:
    """The first state, its parameters moved a little: equal scores are a matter of roundings."""
    rng = np.random.default_rng(seed)
    start = session.snapshot()
    learned = {t.name for t in session.network.learned()}
    arrays = {
        name: (value + rng.normal(0.0, 0.05, value.shape) * (name in learned)).astype(np.float32)
        for name, value in start.arrays.items()
    }
    for name, value in arrays.items():
        if name.endswith("running_var"):
            np.abs(value, out=value)
    return replace(start, arrays=arrays)


def moved(start: Snapshot, size: float, seed: int) -> Snapshot:
    rng = np.random.default_rng(seed)
    arrays = {
        name: (value * (1.0 + size * rng.choice([-1.0, 1.0], value.shape))).astype(np.float32)
        for name, value in start.arrays.items()
    }
    return replace(start, arrays=arrays)


def course(session: Session, start: Snapshot, steps: int) -> list[dict[str, Array]]:
    """What a training leaves behind after every step, and what its validations find."""
    session.put(start)
    answers: dict[bool, list[tuple[Array, Array]]] = session.executable.answers  # type: ignore
    answers[True].clear()
    found = []
    for _ in range(steps):
        session.run(1)
        loss, right, count = session.sums()
        sums = {"loss": np.array([loss, count]), "right answers": np.array([right])}
        found.append({**session.arrays(), **sums, **joined(answers[True])})
        answers[False].clear()
        metrics = session.validate()
        assert metrics is not None
        sums = {
            "validation": np.array([metrics.loss]),
            "right answers": np.array([metrics.correct]),
        }
        found.append({**sums, **joined(answers[False])})
    again = session.validate()
    assert again == metrics, "the same evaluation again"
    return found


def joined(answers: list[tuple[Array, Array]]) -> dict[str, Array]:
    """scores: (samples, classes), targets: (samples,)."""
    scores, targets = (np.concatenate(each) for each in zip(*answers, strict=True))
    return {"scores": scores, "targets": targets}


def undecided(scores: Array, targets: Array, margin: float, loss: Loss | None = None) -> float:
    """How many samples have a target whose score is that near to the largest of the others.

    scores: (samples, classes), targets: (samples,), or (samples, classes) of the kind of ``loss``:
    then those whose largest score is that near to the next, or the share of a sample's scores that
    are that near to the threshold.
    """
    if loss is not None and loss.target == "yes_no":
        near = np.abs(scores - (0.0 if loss.sigmoid else 0.5)) <= margin
        return float(near.mean(1).sum())
    if targets.ndim == 2:
        largest = np.sort(scores, 1)
        return int((largest[:, -1] - largest[:, -2] <= margin).sum())
    own = scores[np.arange(len(targets)), targets]
    others = scores.copy()
    others[np.arange(len(targets)), targets] = -np.inf
    return int((np.abs(own - others.max(1)) <= margin).sum())


def bound_of(name: str, value: Array, near: list[Array], precision: str) -> float:
    """How far a number may be off: by roundings, and by what they lead to in the reference."""
    coarse = COARSE[precision]
    if precision == "bf16" and name not in ("loss", "validation"):
        coarse = 1.0  # a maximum or a margin that rounding decides turns whole gradients
    size = max(float(np.abs(value).max(initial=0.0)), SMALLEST[precision])
    return coarse * size + 20.0 * max(distance(each, value) for each in near)


def distance(one: Array, other: Array) -> float:
    return float(np.abs(one - other).max(initial=0.0))


def assert_alike(training: Training, backends: Mapping[str, tuple[Any, str]]) -> None:
    """``backends``: each with its precision, by names."""
    with closing(session_of(training, Compiling(ReferenceBackend(1), precision="fp64"))) as exact:
        start, loss = start_of(exact, training.seed), exact.network.loss
        want = course(exact, start, training.steps)
        assume(all((np.abs(value) < MOST).all() for one in want for value in one.values()))
    # In float32: the gradient of a bias in front of a batch norm, a sum that is zero but for
    # roundings, is so wherever the parameters are. Only roundings show how large its terms are.
    with closing(session_of(training, Compiling(ReferenceBackend(1), precision="fp32"))) as rounded:

        @cache
        def courses(seeds: range, size: float) -> list[list[dict[str, Array]]]:
            return [course(rounded, moved(start, size, seed), training.steps) for seed in seeds]

        for name, (backend, precision) in backends.items():
            with closing(session_of(training, backend)) as session:
                got = course(session, start, training.steps)
            shaken = courses(FIRST_SEEDS, MOVED[precision])
            if difference(want, got, shaken, precision, loss):
                # A training may be steady but for a few directions, which two moves hardly find.
                shaken = shaken + courses(FURTHER_SEEDS, MOVED[precision])
            found = difference(want, got, shaken, precision, loss)
            assert not found, f"{name}: {found}"


def difference(
    want: list[dict[str, Array]],
    got: list[dict[str, Array]],
    shaken: list[list[dict[str, Array]]],
    precision: str,
    loss: Loss,
) -> str:
    """What is further off than its bound, in words; empty where nothing is."""
    for step, (one, other, *near) in enumerate(zip(want, got, *shaken, strict=True)):
        bounds = {
            name: bound_of(name, value, [each[name] for each in near], precision)
            for name, value in one.items()
        }
        # Both scores may be off. Scores of -200, say, that are equal but for 1e-14 are in float64
        # the answer to a question that float32 cannot ask.
        margin = 2.0 * bounds["scores"]
        bounds["targets"] = 0.0
        if loss.target != "numbers":
            bounds["right answers"] = undecided(one["scores"], one["targets"], margin, loss)
        for name, value in one.items():
            error, bound = distance(other[name], value), bounds[name]
            if not error <= bound:
                return f"after {step // 2 + 1} steps '{name}' is off by {error:g}, not {bound:g}"
    return ""


def test_an_answer_is_undecided_where_two_scores_are_as_near_as_that():
    scores = np.array([[2.0, 2.0 + 1e-9, 0.0], [2.0, 2.5, 0.0], [0.0, 2.5, 2.0]])
    targets = np.array([0, 1, 0])
    margins = (0.0, 1e-6, 0.5, 2.5)
    assert [undecided(scores, targets, margin) for margin in margins] == [0, 1, 2, 3]
    ties = np.array([[1.0, 1.0], [1.0, 0.0]])
    assert undecided(ties, np.array([1, 1]), 0.0) == 1


def onednn(precision: str = "fp32", share: bool = False) -> Any:
    notices: list[str] = []
    backend = open_backend("cpu", 1, notices.append)
    if backend.name != "onednn":
        pytest.skip(f"oneDNN cannot be loaded: {notices}")
    try:
        backend.precision(precision)  # type: ignore[arg-type]
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    return Compiling(backend, precision=precision, share_memory=share)


BACKENDS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: Compiling(ReferenceBackend(1), precision="fp32"),
    "onednn": onednn,
    "onednn-shared": lambda: onednn(share=True),
    "onednn-bf16": lambda: onednn("bf16"),
}


def assert_all_alike(
    backends: Mapping[str, tuple[Any, str]], share: int, turn: int | None = None
) -> None:
    """Draw one of the ``SHARES`` of networks and compare each with the reference.

    With a ``turn``, it is fewer of them, which are drawn from this number.
    """
    first = turn if SEED is None else int(SEED)
    count = NETS.max_examples // (1 if turn is None or COUNT else TURNS)

    @settings(NETS, max_examples=count)
    @given(training=trainings())
    def run(training: Training) -> None:
        assert_alike(training, backends)

    (run if first is None else seed(first + share)(run))()


@pytest.mark.parametrize("share", SHARES)
def test_trains_and_evaluates_as_the_reference(share, pytestconfig):
    backends, lacking = {}, []
    for name, make in BACKENDS.items():
        try:
            backends[name] = make(), "bf16" if name.endswith("bf16") else "fp32"
        except pytest.skip.Exception as reason:
            lacking.append(reason)
    assert_all_alike(backends, share, pytestconfig.option.turn)
    if lacking:
        raise lacking[0]


@pytest.mark.cuda
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_a_gpu_trains_and_evaluates_as_the_reference(precision, share, cuda):
    assert_all_alike({"cuda": (Compiling(cuda, precision=precision), precision)}, share)


@pytest.mark.cuda
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_gpu_does_so_where_streams_share_the_work_and_activations_memory(
    precision, share, cuda, monkeypatch
):
    from dnnstack.backends.cuda.backend import DEFAULT_CHOICES

    choices = {**DEFAULT_CHOICES[precision], "streams": "3"}
    monkeypatch.setitem(DEFAULT_CHOICES, precision, choices)
    backend = Compiling(cuda, precision=precision, share_memory=precision == "tf32")
    assert_all_alike({"cuda": (backend, precision)}, share)
