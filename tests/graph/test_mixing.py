"""What is drawn for pairs, against the laws that it is to follow and a plain computation."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.reference.augment import drawn_mixes
from dnnstack.common.random import key, words
from dnnstack.graph.augmentations import disorder
from dnnstack.graph.graph import Graph
from dnnstack.graph.mixing import DRAWS, CutMix, Mixing, MixUp, betas, last_words, tables
from dnnstack.graph.ops import MixSamples

KEY = key(5, "augment", "mixup_1")


def mixing(mixes: tuple[Mixing, ...], n: int, height: int, width: int, steps: int) -> MixSamples:
    graph = Graph("mix", n)
    return MixSamples(
        x=graph.tensor("x", (2 * n, 1, height, width)),
        target=graph.tensor("target", (2 * n,), "int32"),
        step=graph.tensor("step", (1,), "int64", "state"),
        y=graph.tensor("y", (n, 1, height, width)),
        mixed=graph.tensor("mixed", (n, 3)),
        mixes=mixes,
        key=KEY,
        steps=steps,
    )


@pytest.mark.parametrize("alpha", [1e-30, 0.05, 0.2, 0.5, 1.0, 2.0, 30.0, 1e30])
def test_lambda_has_the_moments_of_its_law(alpha):
    found = betas(alpha)
    assert found.shape == (DRAWS,)
    assert found.mean() == pytest.approx(0.5, abs=1e-3)
    assert found.var() == pytest.approx(0.25 / (2 * alpha + 1), rel=2e-3)
    # Kurtosis tells laws of one variance apart.
    fourth = (((found - 0.5) * 2) ** 4).mean()
    assert fourth == pytest.approx(3 / ((2 * alpha + 1) * (2 * alpha + 3)), rel=1e-2, abs=1e-9)
    assert (found * 2**16 == np.rint(found * 2**16)).all()


def test_lambda_is_uniform_for_an_alpha_of_1():
    np.testing.assert_allclose(np.sort(betas(1.0)), (np.arange(DRAWS) + 0.5) / DRAWS, atol=3e-3)


def test_sides_of_the_rectangle_follow_the_root():
    lam = betas(1.0)
    weight, height, width = CutMix().table(10, 31).T
    assert (weight == 1).all()
    np.testing.assert_array_equal(height, np.floor(10 * np.sqrt(1 - lam)))
    np.testing.assert_array_equal(width, np.floor(31 * np.sqrt(1 - lam)))
    weight, height, width = MixUp(0.3).table(10, 31).T
    np.testing.assert_array_equal(weight, betas(0.3).astype(np.float32))
    assert not np.any([height, width])


def test_probabilities_divide_the_words():
    assert last_words([MixUp(0.2, 0.25), CutMix(1.0, 0.5)]) == [2**30 - 1, 3 * 2**30 - 1]
    assert last_words([CutMix()]) == [2**32 - 1]
    assert last_words([CutMix(1.0, 1e-20)]) == [0]


def test_pairs_are_drawn_by_their_place_in_the_epoch():
    """A plain loop over the places of the third epoch, and the same in batches of other sizes."""
    mixes = (CutMix(1.0, 0.5), MixUp(0.6, 0.3))
    drawn = words(KEY, 2, 0, 24 * 1)
    want = []
    for w0, w1, w2, w3 in drawn.tolist():
        kind = 0 if w3 < 0.5 * 2**32 else 1 if w3 < 0.8 * 2**32 else 2
        weight, *sides = tables(mixes, 9, 7)[kind, w0 * DRAWS >> 32].tolist()
        y, x = w1 * 9 >> 32, w2 * 7 >> 32
        half_y, half_x = int(sides[0]) // 2, int(sides[1]) // 2
        top, left = max(y - half_y, 0), max(x - half_x, 0)
        want.append((weight, top, left, min(y + half_y, 9), min(x + half_x, 7)))
    assert {(w < 1, b > t, w == 1 and b == t) for w, t, _, b, _ in want} == {
        (True, False, False),
        (False, True, False),
        (False, False, True),
    }
    for n in (24, 8, 3):
        op, steps = mixing(mixes, n, 9, 7, 24 // n), 24 // n
        parts = [np.stack(drawn_mixes(op, 2 * steps + step), 1) for step in range(steps)]
        np.testing.assert_array_equal(np.concatenate(parts), want)


def test_the_order_of_the_list():
    assert disorder((MixUp(0.2, 0.7), CutMix(1.0, 0.2), MixUp(0.4, 0.1))) is None
    index, reason = disorder((MixUp(), CutMix(1.0, 0.25))) or (None, "")
    assert index == 1
    assert "'mixup' and 'cutmix' add up to 1.25, more than 1" in reason
