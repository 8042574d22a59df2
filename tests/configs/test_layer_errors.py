"""The same for mistakes in the list of layers."""

from __future__ import annotations

import pytest
from dnnstack.configs.schema.layers import Layer
from dnnstack.configs.schema.shape import kinds, models_in

from ..support.config_errors import message, with_line

_KINDS = [kind for model in models_in(Layer) for kind in kinds(model)]
ALL_LAYERS = ", ".join(_KINDS[:-1]) + f" or {_KINDS[-1]}"

ONE_LINE = [
    ("layers: []", "x.yaml:1:9: layers: expected a list of at least one item (got [])"),
    ("layers: {dense: 3}", "x.yaml:1:9: layers: expected a list (got a mapping)"),
    ("layers: [dens]", "x.yaml:1:10: layer 1: unknown layer 'dens'; did you mean 'dense'?"),
    (
        "layers: [MaxPooling2D: {}]",
        "x.yaml:1:10: layer 1: unknown layer 'MaxPooling2D'; did you mean 'max_pool2d'?",
    ),
    (
        "layers: [wibble]",
        f"x.yaml:1:10: layer 1: unknown layer 'wibble'; expected {ALL_LAYERS}",
    ),
    (
        "layers: [dense]",
        "x.yaml:1:10: layer 1 'dense_1' (dense): "
        "units: required key is missing (Number of outputs.)",
    ),
    (
        "layers: [relu, dense: {unit: 5}]",
        "x.yaml:1:24: layer 2 'dense_1' (dense): unit: unknown key; did you mean 'units'?",
    ),
    (
        "layers: [relu: {slope: 1}]",
        "x.yaml:1:17: layer 1 'relu_1' (relu): slope: unknown key; the layer 'relu' takes name",
    ),
    (
        "layers: [dense: {units: 0}]",
        "x.yaml:1:25: layer 1 'dense_1' (dense): units: expected a number of at least 1 (got 0)",
    ),
    (
        "layers: [conv2d: {filters: 0, kernel_size: 3}]",
        "x.yaml:1:28: layer 1 'conv2d_1' (conv2d): "
        "filters: expected a number of at least 1 (got 0)",
    ),
    (
        "layers: [conv2d: {filters: 4, kernel_size: 3, groups: 0}]",
        "x.yaml:1:55: layer 1 'conv2d_1' (conv2d): groups: expected a number of at least 1 (got 0)",
    ),
    (
        "layers: [pad2d: {padding: -1}]",
        "x.yaml:1:27: layer 1 'pad2d_1' (pad2d): padding: expected a whole number of at least 0 "
        "or a pair [height, width] (got -1)",
    ),
    (
        "layers: [dense: 10]",
        "x.yaml:1:17: layer 1 'dense_1' (dense): "
        "expected the options of 'dense' as a mapping (got 10)",
    ),
    (
        "layers: [{type: dense, units: 10}]",
        "x.yaml:1:10: layer 1: a layer with options is written 'dense: {...}'",
    ),
    (
        "layers:\n  - dense:\n    units: 10",
        "x.yaml:2:5: layer 1: the options of 'dense' must be indented further than 'dense', "
        "or written 'dense: {...}'",
    ),
    (
        "layers: [7]",
        "x.yaml:1:10: layer 1: expected a layer, such as relu or dense: {units: 10} (got 7)",
    ),
    (
        "layers: [conv2d: {filters: 8, kernel_size: 3, strides: 2}]",
        "x.yaml:1:47: layer 1 'conv2d_1' (conv2d): strides: unknown key; did you mean 'stride'?",
    ),
    (
        "layers: [conv2d: {filters: 8, kernel_size: [3, 3, 3]}]",
        "x.yaml:1:44: layer 1 'conv2d_1' (conv2d): "
        "kernel_size: expected a whole number of at least 1 "
        "or a pair [height, width] (got [3, 3, 3])",
    ),
    (
        "layers: [conv2d: {filters: 8, kernel_size: 3, padding: sane}]",
        "x.yaml:1:56: layer 1 'conv2d_1' (conv2d): padding: expected a whole number of at least 0 "
        "or a pair [height, width] or 'same' or 'valid' (got 'sane')",
    ),
    (
        "layers: [conv2d: {filters: 8, kernel_size: 3, groups: 3}]",
        "x.yaml:1:55: layer 1 'conv2d_1' (conv2d): groups: expected a number that divides filters, "
        "which is 8 (got 3)",
    ),
    (
        "layers: [max_pool2d: {pool_size: 3, padding: 2}]",
        "x.yaml:1:46: layer 1 'max_pool2d_1' (max_pool2d): "
        "padding: expected at most 1, half of pool_size (got 2)",
    ),
    (
        "layers: [avg_pool2d: {pool_size: [2, 5], padding: [1, 3]}]",
        "x.yaml:1:51: layer 1 'avg_pool2d_1' (avg_pool2d): "
        "padding: expected at most [1, 2], half of pool_size "
        "(got [1, 3])",
    ),
    (
        "layers: [pad2d: {padding: [0, 0]}]",
        "x.yaml:1:27: layer 1 'pad2d_1' (pad2d): padding: expected a border on at least one side, "
        "such as 1 or [1, 0] (got [0, 0])",
    ),
    (
        "layers: [pad2d: {padding: [1, -1]}]",
        "x.yaml:1:27: layer 1 'pad2d_1' (pad2d): padding: expected a whole number of at least 0 "
        "or a pair [height, width] (got [1, -1])",
    ),
    (
        "layers: [max_pool2d: {pool_size: 0}]",
        "x.yaml:1:34: layer 1 'max_pool2d_1' (max_pool2d): "
        "pool_size: expected a whole number of at least 1 "
        "or a pair [height, width] (got 0)",
    ),
    (
        "layers: [dense: {units: 5, kernel_initializer: he}]",
        "x.yaml:1:48: layer 1 'dense_1' (dense): kernel_initializer: unknown initializer 'he'; "
        "did you mean 'he_uniform'?",
    ),
    (
        "layers: [dense: {units: 5, kernel_initializer: {normal: {sd: 1}}}]",
        "x.yaml:1:58: layer 1 'dense_1' (dense): kernel_initializer.normal.sd: unknown key; "
        "did you mean 'std'?",
    ),
    (
        "layers: [dense: {units: 5, use_bias: yes}]",
        "x.yaml:1:38: layer 1 'dense_1' (dense): "
        "use_bias: expected true or false (got 'yes'; write true)",
    ),
    (
        "layers: [dense: {units: 5, name: a.b}]",
        "x.yaml:1:34: layer 1 'a.b' (dense): name: expected a word of letters, digits, '_' and '-' "
        "(at most 64) that begins with a letter (got 'a.b')",
    ),
    (
        "layers: [relu: {name: relu_2}, relu]",
        "x.yaml:1:9: layers: 2 layers are called 'relu_2'; give each its own name, or none",
    ),
    (
        "layers: [dense: {units:5}]",
        "x.yaml:1:18: layer 1 'dense_1' (dense): units:5: unknown key; put a space after the ':'",
    ),
    (
        "layers: [dense: {frobnicate: 5}]",
        "x.yaml: 2 errors\n"
        "x.yaml:1:10: layer 1 'dense_1' (dense): "
        "units: required key is missing (Number of outputs.)\n"
        "x.yaml:1:18: layer 1 'dense_1' (dense): "
        "frobnicate: unknown key; the layer 'dense' takes name, "
        "units, use_bias, kernel_initializer, bias_initializer, parallel",
    ),
]


@pytest.mark.parametrize(("line", "expected"), ONE_LINE, ids=[line for line, _ in ONE_LINE])
def test_message(line: str, expected: str) -> None:
    assert message(with_line(line)) == expected
