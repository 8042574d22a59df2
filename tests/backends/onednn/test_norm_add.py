"""Batch norm whose last pass is a part of the residual sum behind it."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import BoundCall, Options
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.library import library
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.graph.ops import Activation, Add, BatchNorm, BatchNormBackward, Conv2d

SHAPE = (6, 32, 24, 40)
EPS = 1e-3


def normalized(
    graph: Graph, x: Tensor, name: str, affine: bool, gradient: bool
) -> tuple[Tensor, list[tuple[Tensor, BatchNormBackward]]]:
    """Add batch norm of x; returns what it writes, and the gradient of that with its operation."""
    c = x.shape[1]
    y, dy, dx = (graph.tensor(name + part, x.shape) for part in ("_y", "_dy", "_dx"))
    mean, inverse = (graph.tensor(name + part, (c,)) for part in ("_mean", "_inverse"))
    given = {"mean": mean, "inverse_std": inverse, "eps": EPS}
    if affine:
        given["weight"] = graph.tensor(name + "_weight", (c,), role="parameter")
    shift = graph.tensor(name + "_bias", (c,), role="parameter") if affine else None
    variance = graph.tensor(name + "_var", (c,))
    graph.add(BatchNorm(x=x, y=y, bias=shift, var=variance, momentum=0.1, **given))
    if not gradient:
        return y, []
    sums = {part: graph.tensor(name + part, (c,), role="gradient") for part in ("dw", "db")}
    graph.results[name + "_dx"] = dx
    back = BatchNormBackward(x=x, dy=dy, dx=dx, **(sums if affine else {}), **given)
    return y, [(dy, back)]


def block(
    affine: bool = True,
    gradient: bool = True,
    both: bool = False,
    activation: str | None = "relu",
    result: bool = False,
    twice: bool = False,
) -> tuple[Graph, list[BoundCall]]:
    """Run y = activation(batch_norm(x) + other) beside float64; returns the calls."""
    graph, c = Graph("one", SHAPE[0]), SHAPE[1]
    outside = [graph.tensor(name, SHAPE, role="input") for name in ("first", "second")]
    w = graph.tensor("w", (c, c, 1, 1), role="parameter")
    terms = []
    for at, source in enumerate(outside):
        x = graph.tensor(f"x{at}", SHAPE)
        graph.add(Conv2d(x=source, w=w, y=x, window=Window((1, 1))))
        terms.append(x)
    terms[0], later = normalized(graph, terms[0], "a", affine, gradient)
    if both:
        terms[1], more = normalized(graph, terms[1], "b", affine, gradient)
        later += more
    elif twice:
        terms[1] = terms[0]
    y, again = graph.tensor("y", SHAPE), graph.tensor("again", SHAPE)
    graph.add(Add(terms=tuple(terms[::-1]), y=y, activation=activation))
    graph.results["y"] = y
    if result:
        graph.results["term"] = terms[0]
    # What is bound behind the sum may write over everything that nobody reads any more.
    graph.add(Activation(x=y, y=again, kind="tanh"))
    for dy, op in later:
        graph.add(Activation(x=again, y=dy, kind="relu"))
        graph.add(op)
    draw, ends = np.random.default_rng(7), []
    values = {t: draw.standard_normal(t.shape) for t in graph.tensors() if t.role == "parameter"}
    values |= {t: draw.standard_normal(SHAPE) + 2.0 for t in outside}
    values[w] = np.eye(c)[:, :, None, None]
    made = OneDnnExecutable(
        {"one": graph}, Tuning("onednn", choices={"": "nChw16c"}), 2, share=True
    )
    exact = ReferenceBackend(1).compile({"one": graph}, Options("fp64"))
    for executable in (made, exact):
        for tensor, value in values.items():
            executable.write(tensor, value.astype(np.float32))
        for _ in (0, 1):
            if executable is made:
                made.poison()
            executable.run("one")
        ends.append({name: executable.read(t) for name, t in graph.results.items()})
    for name, want in ends[1].items():
        bound = 4e-6 * np.abs(want).max()
        np.testing.assert_allclose(ends[0][name], want, 0, bound, err_msg=name)
    calls = list(made.calls("one"))
    made.close()
    return graph, calls


def left(calls: list[BoundCall]) -> list[str]:
    """The tensors that sums normalise."""
    sums = [call for call in calls if isinstance(call.op, Add)]
    return [call.arguments["normalizes"] for call in sums if "normalizes" in call.arguments]


blocks = pytest.mark.skipif(
    not library().has_avx512(), reason=f"no blocks of 16 channels ({library().isa()})"
)


@blocks
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("activation", [None, "relu", "scaled_tanh", "elu"])
def test_a_sum_normalises_the_term_that_it_alone_reads(activation, affine):
    graph, calls = block(affine=affine, activation=activation)
    assert set(left(calls)) == {"a_y"}
    (norm,) = [op for op in graph.ops if isinstance(op, BatchNorm)]
    size = "x".join(map(str, SHAPE))
    written = [c.arguments.get("dst", "") for c in calls if c.op is norm]
    assert not any(text.endswith(size) for text in written)


@blocks
def test_of_two_batch_norms_a_sum_takes_one():
    _, calls = block(both=True)
    assert set(left(calls)) == {"a_y"}


@pytest.mark.parametrize(
    "case",
    [{"gradient": False}, {"result": True}, {"twice": True}],
    ids=lambda case: next(iter(case)),
)
def test_what_is_read_elsewhere_or_kept_by_nobody_is_written(case):
    _, calls = block(**case)
    assert not left(calls)
