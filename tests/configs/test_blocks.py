"""Repeats and blocks mean the same as written out; mistakes in them name their place."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import effective_yaml, parse_config
from dnnstack.configs.schema.layers import layer_names

from ..support.stored import beside, cases, stored

HEAD = "data: {dataset: mnist}\noptimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
BLOCKS = beside(__file__, "blocks.yaml")
WRITTEN_OUT = beside(__file__, "blocks_written_out.yaml")


def read(layers: str, blocks: str = BLOCKS, overrides: tuple[str, ...] = ()):
    return parse_config(HEAD + blocks + layers, "x.yaml", overrides)


def errors(layers: str, blocks: str = BLOCKS, overrides: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(layers, blocks, overrides)
    lines = str(caught.value).splitlines()
    return lines if len(lines) == 1 else lines[1:]


def test_blocks_and_repeat_are_what_they_stand_for():
    short = read("layers: [{stage: {filters: 8, count: 2}}, flatten]\n")
    long = read(WRITTEN_OUT, "")
    assert short == long
    assert layer_names(short.layers) == layer_names(long.layers)
    assert effective_yaml(short) == effective_yaml(long)
    assert parse_config(effective_yaml(short), "x.yaml") == short


def test_names_count_over_the_whole_net_and_join_with_dots():
    config = read(
        """\
layers:
  - relu
  - residual: {body: [relu, {residual: {body: [relu]}}], shortcut: [relu]}
  - concat: {branches: [[{relu: {name: a}}], [], [relu]], name: both}
  - sequential: {layers: [relu, flatten]}
""",
        "",
    )
    assert layer_names(config.layers) == [
        "relu_1",
        "residual_1",
        "residual_1.relu_2",
        "residual_1.residual_2",
        "residual_1.residual_2.relu_3",
        "residual_1.relu_4",
        "both",
        "both.a",
        "both.relu_6",
        "sequential_1",
        "sequential_1.relu_7",
        "sequential_1.flatten_1",
    ]


def test_layers_tell_where_they_were_written():
    config = read("layers:\n  - relu\n  - basic: {filters: 3}\n  - flatten\n")
    relu, residual, _ = config.layers
    assert relu.place == "x.yaml:19:5"
    used = "(in block 'basic', used at x.yaml:20:5)"
    assert residual.place == f"x.yaml:8:9 {used}"
    assert residual.body[0].place == f"x.yaml:10:15 {used}"
    assert read("layers: [relu]\n", "") == read("layers:\n  - relu\n", "")


def test_a_parameter_may_be_a_layer_or_layers():
    blocks = """\
blocks:
  with:
    parameters: {activation: relu, before: , initializer: {normal: {std: 0.5}}}
    layers: [$before, {dense: {units: 3, kernel_initializer: $initializer}}, $activation]
  two: {layers: [tanh, relu]}
"""
    config = read(
        """\
layers:
  - with: {before: [flatten, two]}
  - with: {before: elu, activation: {leaky_relu: {negative_slope: 0.5}}, initializer: he_normal}
""",
        blocks,
    )
    kinds = ["flatten", "tanh", "relu", "dense", "relu", "elu", "dense", "leaky_relu"]
    assert [layer.type for layer in config.layers] == kinds
    assert config.layers[-1].negative_slope == 0.5
    assert config.layers[3].kernel_initializer.std == 0.5
    assert config.layers[6].kernel_initializer.type == "he_normal"


@pytest.mark.parametrize(("layers", "expected"), stored(__file__, "block_uses.txt"))
def test_mistakes_in_uses(layers, expected):
    found = errors(layers + "\n")
    assert found[0].startswith(expected), found
    assert len(found) == 1, found


@pytest.mark.parametrize(("given", "expected"), stored(__file__, "blocks.txt"))
def test_mistakes_in_blocks(given, expected):
    """The blocks, and in the last line what uses them."""
    block, _, use = given.rpartition("\n")
    layers = f"layers: [{{{use}}}]\n" if ":" in use else f"layers: [{use}]\n"
    found = errors(layers, f"blocks:\n{block}\n")
    for line, start in zip(found, expected.split("\n"), strict=True):
        assert line.startswith(start), found


def test_a_mistake_in_a_block_is_told_once_however_often_it_is_used():
    block = "blocks:\n  b: {layers: [{dense: {unit: 3}}]}\n"
    assert len(errors("layers: [b, {repeat: {times: 5, layers: [b]}}]\n", block)) == 1


def test_a_misspelt_blocks():
    assert errors("layers: [relu]\n", "block: {b: {layers: [relu]}}\n") == [
        "x.yaml:4:1: block: unknown key; did you mean 'blocks'?"
    ]


def test_an_override_of_blocks_that_are_not_there():
    (found,) = errors("layers: [relu]\n", "", ("blocks.a.parameters.b=1",))
    assert found.endswith("the config has no blocks")


@pytest.mark.parametrize("blocks", ["", "blocks: {b: {layers: [tanh]}}\n"])
def test_blocks_as_a_whole_are_no_override(blocks):
    change = "blocks={a: {layers: [relu]}}"
    assert errors("layers: [relu]\n", blocks, (change,)) == [
        f"--set {change}: blocks: cannot be set as a whole, because blocks are expanded first; "
        "write them in the file"
    ]


def test_what_is_written_out_can_be_read_again():
    """Blocks nest deeper than their text; the effective config must not be too deep for YAML."""
    levels = "".join(
        f"  b{n}: {{layers: [{{concat: {{branches: [[b{n + 1}], [relu]]}}}}]}}\n" for n in range(7)
    )
    deep = read("layers: [b0]\n", f"blocks:\n{levels}  b7: {{layers: [relu, b8]}}\n{LAST}")
    assert parse_config(effective_yaml(deep), "x.yaml") == deep
    more = LAST.replace("relu", "concat: {branches: [[tanh], [tanh]]}")
    (found,) = errors("layers: [b0]\n", f"blocks:\n{levels}  b7: {{layers: [b8]}}\n{more}")
    assert "layers nested more than 8 deep" in found


LAST = "  b8: {layers: [{residual: {body: [relu]}}]}\n"


def test_overrides_of_what_was_written_out():
    use = "layers: [{stage: {filters: 8, count: 2}}, flatten]\n"
    change = "layers.residual_2.body.conv2d_2.filters=5"
    assert [layer.body[0].filters for layer in read(use, overrides=(change,)).layers[:3]] == [
        8,
        5,
        8,
    ]
    many = read(use, overrides=("blocks.basic.parameters.shortcut=identity",))
    assert {layer.shortcut for layer in many.layers[:3]} == {"identity"}
    replaced = read(use, overrides=("layers.3={basic: {filters: 3}}",))
    assert replaced.layers[3].body[0].filters == 3
    branch = "layers: [{concat: {branches: [[relu], [{dense: {units: 3}}]]}}]\n"
    inner = read(branch, overrides=("layers.concat_1.branches.1.dense_1.units=7",))
    assert inner.layers[0].branches[1][0].units == 7


@pytest.mark.parametrize(("override", "expected"), cases(__file__, "mistakes_in_overrides"))
def test_mistakes_in_overrides(override, expected):
    use = "layers: [{stage: {filters: 8, count: 2}}, flatten]\n"
    (found,) = errors(use, overrides=(override,))
    assert found.startswith(f"--set {override}")
    assert expected in found
