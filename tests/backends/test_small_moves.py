"""Small moves of many numbers: of weights by weight decay, of averages and running statistics.

In float32 a factor 1 - 1e-9 is 1. So what is done over some steps is compared with float64, as the
mean over many numbers in which roundings cancel. The limits are those of float32's own numbers:
averages and statistics cannot hold moves of less than about 1e-6 of them, but weights can, as their
gradients bring the small moves over the next number now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array, Backend, Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph import ops
from dnnstack.graph.graph import Tensor

from ..support.op_draft import Draft
from ..support.opened import NAMES, opened
from ..support.update_formulas import FORMULAS

STEPS, RATE = 20, 1e-3
# Few filters, so that the products of Muon take no time.
SHAPE = (16, 62_500)
Describe = Callable[[Draft], Tensor]


@pytest.fixture(params=NAMES, scope="module")
def backend(request):
    return opened(request.param)


def clock(d: Draft) -> dict[str, Tensor]:
    rates = d.given("rates", np.full(STEPS, RATE, np.float32), "data")
    return {"rates": rates, "step": d.given("step", np.array([0], np.int64), "state")}


def around_one(d: Draft, name: str, role: Any, *shape: int) -> Tensor:
    return d.given(name, (1.0 + 0.3 * d.drawn(shape)).astype(np.float32), role)


def updated(d: Draft, kind: str, decay: float) -> Tensor:
    """Weights under a rule, whose gradients are around 0."""
    rule, _, option = kind.partition("-")
    p = around_one(d, "p", "parameter", *SHAPE)
    common: dict[str, Any] = {
        **clock(d),
        "gradients": (d.floats("drawn", *SHAPE),),
        "parameters": (p,),
        "weight_decay": (decay,),
    }

    def state(name: str) -> tuple[Tensor, ...]:
        drawn = d.drawn(SHAPE)
        return (d.given(name, np.abs(drawn) if name == "squares" else drawn, "state"),)

    if rule == "sgd":
        momentum = {"momentum": 0.9, "buffers": state("v")} if option else {"buffers": ()}
        d.graph.add(ops.SgdUpdate(**common, **momentum, nesterov=option == "nesterov"))
    elif rule == "muon":
        d.graph.add(ops.MuonUpdate(**common, buffers=state("v"), iterations=1))
    elif rule in FORMULAS:
        formula = FORMULAS[kind]
        kept = [state("squares" if name == "rmsprop_v" else name) for name in formula.families]
        states = {"states": tuple(chain.from_iterable(kept)), "start": (0,)}
        d.graph.add(ops.ElementwiseUpdate(**common, **states, formula=formula))
    else:
        states = {"means": state("m"), "squares": state("squares"), "start": (0,)}
        d.graph.add(ops.AdamUpdate(**common, **states, decoupled=rule == "adamw"))
    d.graph.add(ops.Advance(step=common["step"]))
    return p


def averaged(d: Draft, away: float, pull: bool, exact: bool = False) -> Tensor:
    """Averages of weights that are elsewhere; exact: with a decay that float32 does not round."""
    shape = (1000, 100)
    p = d.given("p", (2.0 + 0.3 * d.drawn(shape)).astype(np.float32), "parameter")
    given = {**clock(d), "gradients": (d.floats("drawn", *shape),), "parameters": (p,)}
    d.graph.add(ops.SgdUpdate(**given, buffers=(), weight_decay=(0.0,)))
    a = around_one(d, "average/p", "state", *shape)
    decays = np.full(STEPS, 1.0 - away)
    table = d.graph.tensor("decays", decays.shape, "float32", "data")
    d.values[table] = decays if exact else decays.astype(np.float32)
    average = {"decays": table, "step": given["step"], "averages": (a,), "values": (p,)}
    d.graph.add(ops.Average(**average, pull=pull))
    d.graph.add(ops.Advance(step=given["step"]))
    return a


def tracked(d: Draft, momentum: float) -> Tensor:
    """The running mean of a batch norm."""
    mean, var = (around_one(d, name, "state", 20_000) for name in ("mean", "var"))
    x, outs = d.floats("drawn", 16, 20_000), [d.out(name, 20_000) for name in ("m", "i")]
    statistics = {"mean": outs[0], "inverse_std": outs[1], "running_mean": mean}
    norm = {"x": x, "y": d.out("y", *x.shape), "eps": 1e-5, "momentum": momentum}
    d.graph.add(ops.BatchNorm(**norm, **statistics, running_var=var))
    return mean


def tracked_by_parts(d: Draft, momentum: float) -> Tensor:
    mean = around_one(d, "mean", "state", 20_000)
    kept = d.given("drawn", d.drawn((1, 20_000)), "data")
    d.graph.add(
        ops.MoveStatistics(kept=kept, running=(mean,), momentum=(momentum,), weight=(momentum,))
    )
    return mean


def after(backend: Backend, describe: Describe, precision: str = "fp32") -> Array:
    """The tensor after all steps, in each of which what is drawn is drawn anew."""
    draft = Draft(np.random.default_rng(1), "normal")
    tensor = describe(draft)
    options = Options(precision, tune=False)  # type: ignore[arg-type]
    executable = backend.compile({draft.graph.name: draft.graph}, options)
    for given, value in draft.values.items():
        executable.write(given, value)
    drawn = next(each for each in draft.values if each.name == "drawn")
    for _ in range(STEPS):
        executable.write(drawn, draft.drawn(drawn.shape))
        executable.run(draft.graph.name, 1)
    found = executable.read(tensor).astype(np.float64)
    executable.close()
    return found


def right(describe: Describe) -> Array:
    return after(ReferenceBackend(1), describe, "fp64")


RULES = ("sgd", "sgd-momentum", "sgd-nesterov", "adam", "adamw", "muon", "sign", "lion")
RULES += ("rmsprop", "rmsprop-momentum")


@cache
def decayed(kind: str, decay: float) -> Array:
    return right(partial(updated, kind=kind, decay=decay))


@pytest.mark.parametrize("away", [1e-7, 1e-9])
@pytest.mark.parametrize("kind", RULES)
def test_weights_decay(backend, kind, away):
    """away: rate times weight decay."""
    if kind in ("sign", "lion") and away < 1e-7:
        pytest.skip("all of its moves are of one size and are rounded alike")
    want = decayed(kind, away / RATE)
    decay = (want - decayed(kind, 0.0)).mean()
    got = after(backend, partial(updated, kind=kind, decay=away / RATE))
    assert abs((got - want).mean() / decay) < 0.03


@pytest.mark.parametrize("away", [1e-2, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("pull", [False, True])
def test_averages_follow(backend, away, pull):
    start = averaged(draft := Draft(np.random.default_rng(1), "normal"), away, pull)
    want = right(partial(averaged, away=away, pull=pull, exact=True))
    moved = (want - draft.values[start]).mean()
    got = after(backend, partial(averaged, away=away, pull=pull))
    assert abs((got - want).mean() / moved) < 0.03


@pytest.mark.usefixtures("norms_by_onednn")
@pytest.mark.parametrize("momentum", [0.1, 1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("describe", [tracked, tracked_by_parts])
def test_running_statistics_follow(backend, describe, momentum):
    if describe is tracked_by_parts and not isinstance(backend, ReferenceBackend):
        pytest.skip("rows are not given from outside; oneDNN has the reference's function")
    start = describe(draft := Draft(np.random.default_rng(1), "normal"), momentum)
    want = right(partial(describe, momentum=momentum))
    moved = (want - draft.values[start]).mean()
    got = after(backend, partial(describe, momentum=momentum))
    assert abs((got - want).mean() / moved) < 0.03
