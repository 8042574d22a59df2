"""The effective config reads back as an equal one; differences name what changed."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import (
    RunConfig,
    differences,
    effective_yaml,
    load_config,
    parse_config,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ..support.stored import beside

counts = st.integers(1, 2**31 - 1)
rates = st.floats(1e-12, 1e6)
shares = st.floats(0, 1, exclude_max=True)
epochs = st.one_of(st.integers(1, 1000), st.floats(0.01, 1000))
pairs = st.one_of(counts, st.lists(counts, min_size=2, max_size=2))
paddings = st.one_of(
    st.integers(0, 9),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    st.sampled_from(["same", "valid"]),
)
borders = st.one_of(
    counts, st.lists(st.integers(0, 9), min_size=2, max_size=2).filter(lambda sides: any(sides))
)
paths = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1).filter(
    str.isprintable
)


def options(required: dict[str, Any] | None = None, **optional: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required or {}, optional=optional)


def named(name: str, required: dict[str, Any] | None = None, **optional: Any) -> Any:
    long = st.builds(lambda o: {name: o}, options(required, **optional))
    return long if required else st.one_of(st.just(name), long)


def typed(name: str, required: dict[str, Any] | None = None, **optional: Any) -> Any:
    long = st.builds(lambda o: {"type": name, **o}, options(required, **optional))
    return long if required else st.one_of(st.just(name), long)


initializers = st.one_of(
    st.sampled_from(["glorot_uniform", "he_normal", "lecun_normal", "zeros", "ones"]),
    named("normal", {"std": rates}, mean=rates),
    named("truncated_normal", {"std": rates}),
    named("uniform", {"limit": rates}),
    named("constant", {"value": st.floats(-10, 10)}),
)
weighted = {
    "use_bias": st.booleans(),
    "kernel_initializer": initializers,
    "bias_initializer": initializers,
}
layers = st.one_of(
    named("dense", {"units": counts}, **weighted),
    named(
        "conv2d",
        {"filters": counts, "kernel_size": pairs},
        stride=pairs,
        padding=paddings,
        dilation=pairs,
        **weighted,
    ),
    named("max_pool2d", {"pool_size": st.integers(18, 20)}, stride=pairs, padding=paddings),
    named("pad2d", {"padding": borders}, value=st.floats(-10, 10)),
    named("avg_pool2d", stride=pairs, ceil_mode=st.booleans()),
    st.sampled_from(["flatten", "softmax", "relu", "sigmoid", "global_avg_pool2d"]),
    named("leaky_relu", negative_slope=shares),
    named("elu", alpha=rates),
    named("gelu", approximate=st.booleans()),
)
warmups = st.one_of(options({"steps": counts}, start_factor=shares), options({"epochs": epochs}))
schedules = st.one_of(
    typed("fixed", warmup=warmups),
    typed("step", {"step_size": counts}, gamma=rates, warmup=warmups),
    typed("step", {"step_size_epochs": epochs}),
    typed("multistep", {"milestones": st.sets(counts, min_size=1).map(sorted)}),
    typed("multistep", {"milestones_epochs": st.sets(epochs, min_size=1).map(sorted)}),
    typed("exp", {"gamma": st.floats(0.01, 1)}),
    typed("inv", {"gamma": rates, "power": rates}),
    typed("poly", power=rates, max_steps=counts),
    typed("cosine", min_lr=rates, max_epochs=epochs, warmup=warmups),
    typed("one_cycle", peak_fraction=st.floats(0.01, 0.99), shape=st.just("linear")),
    typed("compounding", {"decay": rates}),
)
configs = options(
    {
        "data": options(
            {"dataset": st.one_of(st.just("mnist"), named("strokes", train_count=counts))},
            root=paths,
            batch_size=counts,
            validation=st.one_of(st.integers(0, 10_000), shares),
            normalize=options(mean=st.one_of(shares, st.lists(shares, min_size=1)), std=rates),
        ),
        "layers": st.lists(layers, min_size=1, max_size=5),
        "optimizer": options(
            {"type": st.just("sgd"), "lr": rates},
            momentum=shares,
            weight_decay=rates,
            weight_decay_on=st.sampled_from(["all", "weights"]),
            clip_norm=rates,
        ),
        "train": st.one_of(options({"epochs": epochs}), options({"max_steps": counts})),
    },
    name=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True).filter(
        lambda name: name != "latest"
    ),
    seed=st.integers(0, 2**63 - 1),
    loss=st.one_of(st.just("mse"), typed("cross_entropy", label_smoothing=shares)),
    schedule=schedules,
    run=options(dir=paths, device=st.sampled_from(["cpu", "numpy"]), threads=st.integers(1, 1024)),
    checkpoint=options(every_steps=counts, keep=counts, best=st.booleans()),
)


@settings(max_examples=200, deadline=None)
@given(configs)
def test_effective_yaml_reads_back_equal(written):
    config = RunConfig.model_validate(written)
    text = effective_yaml(config)
    assert parse_config(text, "other.yaml") == config
    assert effective_yaml(parse_config(text, "other.yaml")) == text
    assert RunConfig.model_validate(config.model_dump()) == config


SMALL = beside(__file__, "write_small.yaml")


def test_effective_yaml_is_what_a_person_would_write():
    wanted = beside(__file__, "write_effective.yaml")
    assert effective_yaml(parse_config(SMALL, "x.yaml")) == wanted


@pytest.mark.parametrize(
    ("written", "other"),
    [
        ("data.shuffle=true", "data.shuffle=false"),
        ("data.balance=false", "data.balance=true"),
        ("evaluate.threshold=0.5", "evaluate.threshold=0.4"),
        ("evaluate={tta: mirror, tta_share: 1}", "evaluate={tta: mirror, tta_share: 0.9}"),
        ("checkpoint.best_by=accuracy", "checkpoint.best_by=loss"),
    ],
)
def test_a_default_that_is_written_out_is_as_without_the_key(written, other):
    key = written.partition("=")[0]
    own = ["evaluate.tta=mirror"] if key == "evaluate" else []
    without, *both = (
        effective_yaml(parse_config(SMALL, "x.yaml", each)) for each in (own, [written], [other])
    )
    assert [each == without for each in both] == [True, False]


def test_differences():
    old = parse_config(SMALL, "x.yaml")
    new = parse_config(
        SMALL,
        "x.yaml",
        [
            "optimizer.lr=0.5",
            "layers.0.filters=9",
            "layers.1=tanh",
            "run.threads=2",
            "schedule=cosine",
            "layers.4.kernel_initializer=zeros",
        ],
    )
    assert differences(old, old) == []
    assert differences(old, new) == [
        "layers.0.conv2d.filters: 8 -> 9",
        "layers.1: relu -> tanh",
        "layers.4.dense.kernel_initializer: normal: {mean: 0.0, std: 0.01} -> zeros",
        "optimizer.lr: 1.0 -> 0.5",
        "schedule: {type: poly, power: 1.0} -> {type: cosine, min_lr: 0.0}",
        "run.threads: absent -> 2",
    ]


def test_what_could_not_be_read_back_is_not_written(monkeypatch):
    config = load_config("digits.yaml").config
    text = effective_yaml(config)
    monkeypatch.setattr(write, "LARGEST_FILE", len(text))
    assert effective_yaml(config) == text
    monkeypatch.setattr(write, "LARGEST_FILE", len(text) - 1)
    with pytest.raises(ConfigError, match="all defaults written out is larger than 1 MiB"):
        effective_yaml(config)
