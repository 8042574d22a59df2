"""Weights that share their values: found by k-means, trained by the sums of their gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.common.random import Key
from dnnstack.configs import RunConfig
from dnnstack.optimizers import RULES
from dnnstack.optimizers.sharing import cluster, shared_values
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.records.formats.checkpoint import Checkpoint
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ..support.resuming import _one_step_a_chunk, resume  # noqa: F401
from ..support.resuming import go as begun
from ..support.trainings import end_of, go

Make = Callable[..., RunConfig]
PRUNED = "prune={keep: {'*.weight': 0.5}}"
SHARED = "share={bits: {conv2d_1.weight: 3, '*': 4}}"
BITS = {"conv2d_1.weight": 3, "conv2d_1.bias": 4, "dense_1.weight": 4, "dense_1.bias": 4}


def assert_shared(found: Checkpoint) -> None:
    """Every weight is the centroid of its code to the bit; what is pruned is +0.0."""
    for name, bits in BITS.items():
        codes, centroids = found.arrays[f"code/{name}"], found.arrays[f"centroids/{name}"]
        assert centroids.shape == (1 << bits,)
        value = found.arrays[name]
        assert value.tobytes() == shared_values(codes, centroids).tobytes()
        assert len(np.unique(value[value != 0])) <= 1 << bits
        if name.endswith("weight"):
            assert np.count_nonzero(codes) == round(0.5 * codes.size)
            assert not value.view(np.uint32)[codes == 0].any()
        assert f"mask/{name}" not in found.arrays


@pytest.mark.parametrize("rule", RULES)
def test_they_stay_shared_with_any_optimizer_and_a_resume_is_exact(tiny, backend, rule):
    rest = ", rest: {type: adam, lr: 0.01}" if rule == "muon" else ""
    optimizer = f"optimizer={{type: {rule}, lr: 0.01, weight_decay: 0.1, clip_norm: 0.5{rest}}}"
    config = tiny(PRUNED, SHARED, optimizer, "train.max_steps=12")
    whole = go(config, backend)
    assert_shared(whole)
    part = begun(config, backend, stop_at=5)
    assert part.step == 5
    again = end_of(resume(config, backend, part.run))
    assert set(again.arrays) == set(whole.arrays)
    for name, array in whole.arrays.items():
        assert again.arrays[name].tobytes() == array.tobytes(), name


def test_pruned_weights_need_not_be_named_again(tiny, reference):
    first = go(tiny(PRUNED, "train.max_steps=5"), reference)
    assert_shared(go(tiny(SHARED, f"init_from={first.path}", "train.max_steps=5"), reference))


FLOATS = arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.floats(-100, 100, width=32).map(lambda x: 0.0 if abs(x) < 1 else x),
)


@given(FLOATS, st.integers(1, 4), st.sampled_from(["linear", "density", "random"]))
def test_every_value_belongs_to_the_nearest_centroid_and_these_are_means(values, bits, start):
    codes, centroids = cluster(values, 1 << bits, start, Key(3, 4))  # type: ignore[arg-type]
    assert codes.shape == values.shape
    assert ((codes == 0) == (values == 0)).all()
    for value, code in zip(values, codes.astype(int), strict=True):
        if code:
            distances = np.abs(centroids.astype(np.float64) - value)
            assert distances[code - 1] <= distances.min() + 1e-4
    for number in set(codes.astype(int)) - {0}:
        mean = values[codes == number].astype(np.float64).mean()
        assert centroids[number - 1] == pytest.approx(mean, rel=1e-5, abs=1e-4)


def test_where_centroids_begin():
    values = np.array([-4, -1, -1, -1, -1, -1, 0, 2, 4], np.float32)
    linear = cluster(values, 2, "linear")
    assert linear[0].tolist() == [1, 1, 1, 1, 1, 1, 0, 2, 2]
    np.testing.assert_allclose(linear[1], [-1.5, 3])
    assert cluster(np.zeros((2, 2), np.float32), 4)[0].tolist() == [[0, 0], [0, 0]]
    few = cluster(np.array([1, 2], np.float32), 8)
    assert shared_values(*few).tolist() == [1, 2]


def test_what_does_not_fit_is_told(tiny):
    def built(*overrides: str) -> None:
        config = tiny(*overrides)
        build_network(config, describe_data(config))

    with pytest.raises(ConfigError, match=r"share\.bits: no parameter matches 'x'"):
        built("share={bits: {x: 3}}")
    for averages in ("ema={decay: 0.9}", "lookahead={}", "swa={start_step: 3}"):
        with pytest.raises(ConfigError, match="averages of weights that share"):
            built(SHARED, f"optimizer.{averages}")
    for bits in ("{}", "5", "{a: 0}", "{a: 13}", "{a: 1.5}"):
        with pytest.raises(ConfigError, match=r"share\.bits"):
            tiny(f"share={{bits: {bits}}}")
