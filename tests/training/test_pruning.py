"""Pruned weights: 0 from the first step to the last, on every backend, with any optimizer."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError, ConfigError
from dnnstack.graph.graph import Tensor
from dnnstack.layers.initializers import Initializer
from dnnstack.layers.layer import Parameter
from dnnstack.optimizers import RULES
from dnnstack.optimizers.pruning import is_pruned, magnitude_mask, sensitivity_mask, settings_of
from dnnstack.optimizers.sharing import shared_parameter
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.records.formats.checkpoint import Checkpoint

from ..support.resuming import _one_step_a_chunk, resume  # noqa: F401
from ..support.resuming import go as begun
from ..support.stored import cases
from ..support.trainings import end_of, go

KEEP = "prune={keep: {conv2d_1.weight: 0.5, '*.weight': 0.1}}"
SHARES = {"conv2d_1.weight": 0.5, "dense_1.weight": 0.1}


def assert_pruned(found: Checkpoint, shares: dict[str, float] = SHARES) -> None:
    """Zeros are +0.0 to the bit, in averages too, and the rest was trained."""
    for name, share in shares.items():
        value, mask = found.arrays[name], found.arrays[f"mask/{name}"]
        assert mask.sum() == round(share * value.size)
        for kind in ("", "ema/", "lookahead/"):
            held = found.arrays.get(f"{kind}{name}")
            if held is not None:
                assert not held.view(np.uint32)[mask == 0].any(), kind + name
                assert held[mask == 1].all(), kind + name


def optimizer_of(rule: str) -> str:
    rest = ", rest: {type: adam, lr: 0.01}" if rule == "muon" else ""
    return f"{{type: {rule}, lr: 0.01, weight_decay: 0.1{rest}}}"


@pytest.mark.parametrize("rule", RULES)
def test_they_stay_0_with_any_optimizer_and_a_resume_is_exact(tiny, backend, rule):
    config = tiny(
        KEEP, f"optimizer={optimizer_of(rule)}", "optimizer.clip_norm=0.5", "train.max_steps=12"
    )
    whole = go(config, backend)
    assert_pruned(whole)
    part = begun(config, backend, stop_at=5)
    assert part.step == 5
    again = end_of(resume(config, backend, part.run))
    assert set(again.arrays) == set(whole.arrays)
    for name, array in whole.arrays.items():
        assert again.arrays[name].tobytes() == array.tobytes(), name


def test_they_stay_0_in_averages_in_parts_and_where_they_are_frozen(tiny, backend):
    averaged = (
        "optimizer={type: sgd, lr: 0.05, momentum: 0.9, nesterov: true, ema: {decay: 0.9}, "
        "lookahead: {every: 2}}"
    )
    assert_pruned(go(tiny(KEEP, averaged, "train.accumulate=4", "train.max_steps=7"), backend))
    late = (
        "optimizer={type: adam, lr: 0.01, groups: [{parameters: dense_1.*, freeze_until_epoch: 1}]}"
    )
    assert_pruned(go(tiny(KEEP, late), backend))
    frozen = go(tiny(KEEP, "freeze=dense_1", "train.max_steps=3"), backend)
    assert_pruned(frozen, {"conv2d_1.weight": 0.5})
    assert np.count_nonzero(frozen.arrays["dense_1.weight"]) == round(
        0.1 * frozen.arrays["dense_1.weight"].size
    )


def test_gradients_of_pruned_weights_do_not_count_in_the_norm(tiny, backend):
    """Clipped to a norm of 1e-3, the update of the weights that are kept has this norm."""
    few = ("prune={keep: {dense_1.weight: 0.05}}", "freeze=conv2d_1", "train.max_steps=1")
    rule = "{type: sgd, clip_norm: 1e-3, groups: [{parameters: '*.bias', frozen: true}]"
    moved = go(tiny(*few, f"optimizer={rule}, lr: 1.0}}"), backend).arrays["dense_1.weight"]
    still = go(tiny(*few, f"optimizer={rule}, lr: 1e-30}}"), backend).arrays["dense_1.weight"]
    norm = np.linalg.norm((moved - still).astype(np.float64))
    np.testing.assert_allclose(norm, 1e-3, rtol=1e-3)


def test_of_equal_magnitudes_the_first_are_kept():
    values = np.array([[1, -1, 1], [-1, 2, 1]], np.float32)
    assert magnitude_mask(values, 0.5).tolist() == [[1, 1, 0], [0, 1, 0]]
    assert magnitude_mask(values, 1e-9).tolist() == [[0, 0, 0], [0, 1, 0]]
    assert magnitude_mask(values, 1.0).all()


@pytest.mark.parametrize("keep", ["{dense_7.weight: 0.5}", "{'*': 0.5, dense_1.weight: 0.1}"])
def test_a_name_that_nothing_has_is_told(tiny, keep):
    config = tiny(f"prune={{keep: {keep}}}")
    with pytest.raises(ConfigError, match=r"prune\.keep: no parameter matches 'dense_"):
        build_network(config, describe_data(config))


def test_patterns_mean_no_factors_of_batch_norm_unless_they_name_them():
    kinds = {"conv.weight": "kernel", "conv.bias": "bias", "bn.weight": "scale", "bn.bias": "shift"}
    zeros = Initializer("zeros")
    every = [
        Parameter(Tensor(name, (4,), "float32", "parameter"), kind, zeros, 1, 1)  # type: ignore[arg-type]
        for name, kind in kinds.items()
    ]
    for patterns, meant in (
        ({"*.weight": 3}, ["conv.weight"]),
        ({"*": 3}, ["conv.weight", "conv.bias"]),
        ({"bn.weight": 3, "*.bias": 3}, ["conv.bias", "bn.weight"]),
    ):
        named = {tensor.name for tensor in settings_of("prune.keep", patterns, every)}
        assert named == set(meant)
        assert [p.tensor.name for p in every if is_pruned(p, list(patterns))] == meant
        assert [p.tensor.name for p in every if shared_parameter(p, patterns)] == meant


@pytest.mark.parametrize("keep", ["{}", "0.5", "{a: 0}", "{a: 1.5}", "{a: x}", "[a]"])
def test_wrong_shares_are_told(tiny, keep):
    with pytest.raises(ConfigError, match=r"prune\.keep"):
        tiny(f"prune={{keep: {keep}}}")


def test_a_resume_does_not_prune_anew(tiny, reference):
    done = begun(tiny(KEEP), reference, stop_at=3)
    with pytest.raises(CheckpointError, match=r"prune\.keep"):
        resume(tiny(KEEP.replace("0.1", "0.2")), reference, done.run)


def test_a_factor_times_the_deviation_of_what_is_left_decides():
    values = np.array([[0, -3, 1], [1, 3, 0]], np.float32)
    deviation = float(np.array([-3, 1, 1, 3], np.float64).std())
    assert sensitivity_mask(values, 1.1 / deviation).tolist() == [[0, 1, 0], [0, 1, 0]]
    assert sensitivity_mask(values, 1 / deviation).tolist() == [[0, 1, 1], [1, 1, 0]]
    # At least the largest is kept; of nothing but zeros the first.
    assert sensitivity_mask(values, 100).tolist() == [[0, 1, 0], [0, 1, 0]]
    assert sensitivity_mask(0 * values, 1).sum() == 1


def test_weights_are_pruned_by_a_threshold_too(tiny, backend):
    by = "prune={keep: {conv2d_1.weight: 0.5}, sensitivity: {dense_1.weight: 1.2}}"
    found = go(tiny(by, "train.max_steps=3"), backend)
    mask = sensitivity_mask(
        go(tiny("optimizer.lr=1e-30", "train.max_steps=1"), backend).arrays["dense_1.weight"], 1.2
    )
    assert 0 < mask.mean() < 0.5
    np.testing.assert_array_equal(found.arrays["mask/dense_1.weight"], mask)
    shares = {"conv2d_1.weight": 0.5, "dense_1.weight": float(mask.mean())}
    assert_pruned(found, shares)


@pytest.mark.parametrize(("wrong", "said"), cases(__file__, "mistakes_in_how_to_prune_are_told"))
def test_mistakes_in_how_to_prune_are_told(tiny, wrong, said):
    def built() -> None:
        config = tiny(f"prune={wrong}")
        build_network(config, describe_data(config))

    with pytest.raises(ConfigError, match=said):
        built()
