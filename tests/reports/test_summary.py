from __future__ import annotations

import json
from math import prod
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError, DatasetError, ShapeError
from dnnstack.configs import load_config, packaged_configs, parse_config
from dnnstack.reports import summary as summarizing
from dnnstack.reports.summary import NetworkSummary, summarize
from dnnstack.reports.summary_text import as_text
from dnnstack.reports.units import bytes_text
from dnnstack.training.assemble import build_network, describe_data, preprocessing
from dnnstack.training.sections import composition

from ..support import composed

# The figures of CMU's lecture on VGG-16, in bytes: weights without biases, and outputs a picture.
KIB, MIB = 1024, 1024**2
LECTURE_WEIGHTS = {
    "conv1_2": 144 * KIB,
    "conv2_1": 288 * KIB,
    "conv2_2": 576 * KIB,
    "conv3_1": 1.1 * MIB,
    "conv3_2": 2.3 * MIB,
    "conv3_3": 2.3 * MIB,
    "conv4_1": 4.5 * MIB,
    **dict.fromkeys(("conv4_2", "conv4_3", "conv5_1", "conv5_2", "conv5_3"), 9 * MIB),
    "fc6": 392 * MIB,
    "fc7": 64 * MIB,
    "fc8": 15.6 * MIB,
}
LECTURE_OUTPUTS = {
    **dict.fromkeys(("conv1_1", "conv1_2"), 12.3 * MIB),
    "pool1": 3.1 * MIB,
    **dict.fromkeys(("conv2_1", "conv2_2"), 6.2 * MIB),
    "pool2": 1.5 * MIB,
    **dict.fromkeys(("conv3_1", "conv3_2", "conv3_3"), 3.1 * MIB),
    "pool3": 766 * KIB,
    **dict.fromkeys(("conv4_1", "conv4_2", "conv4_3"), 1.5 * MIB),
    **dict.fromkeys(("pool4", "conv5_1", "conv5_2", "conv5_3"), 383 * KIB),
    "pool5": 98 * KIB,
}


@pytest.fixture(scope="module")
def vgg():
    return summarize(load_config("vgg16.yaml").config, Path("vgg16.yaml"))


def lenet(*overrides: str, batch_size: int | None = None) -> NetworkSummary:
    return summarize(load_config("lenet.yaml", overrides).config, Path("lenet.yaml"), batch_size)


def by_name(summary: NetworkSummary) -> dict[str, summarizing.Row]:
    return {row.name: row for row in summary.rows}


def test_lenet_by_hand():
    summary = lenet()
    rows = by_name(summary)
    assert [row.name for row in summary.rows][:3] == ["input", "conv2d_1", "max_pool2d_1"]
    conv = rows["conv2d_1"]
    assert (conv.type, conv.output_shape) == ("conv2d", (20, 24, 24))
    assert conv.parameters == 20 * 25 + 20
    assert conv.forward_flops == 20 * 24 * 24 * (2 * 25 + 1)
    assert conv.weight_bytes == 4 * 520
    assert conv.activation_bytes == 4 * 64 * 20 * 24 * 24
    assert rows["dense_1"].forward_flops == 500 * (2 * 800 + 1)
    assert rows["input"].activation_bytes == 64 * (4 * 784 + 4)
    # A view, and a product whose ReLU is part of it.
    assert rows["flatten_1"].activation_bytes == rows["dense_1"].activation_bytes == 0
    assert rows["relu_1"].activation_bytes == 4 * 64 * 500
    assert summary.parameters == 431_080
    assert summary.training.parameters == summary.training.gradients == 4 * 431_080
    assert summary.training.optimizer == 4 * 431_080
    assert summary.training.activations == sum(row.activation_bytes for row in summary.rows)


def test_momentum_and_fusion_count():
    plain = lenet("optimizer.momentum=0", "run.fusion=false")
    assert plain.training.optimizer == 0
    rows = by_name(plain)
    # Without fusion the sums before the bias are kept too.
    assert rows["conv2d_1"].activation_bytes == 2 * 4 * 64 * 20 * 24 * 24
    assert rows["dense_1"].activation_bytes == 2 * 4 * 64 * 500
    assert rows["conv2d_1"].forward_flops == by_name(lenet())["conv2d_1"].forward_flops


def test_another_batch_size_scales_activations_alone():
    one, many = lenet(batch_size=1), lenet(batch_size=256)
    assert (one.batch_size, many.batch_size) == (1, 256)
    assert (one.parameters, one.forward_flops) == (many.parameters, many.forward_flops)
    assert one.training.parameters == many.training.parameters
    for small, large in zip(one.rows[:-1], many.rows[:-1], strict=True):
        assert large.activation_bytes == 256 * small.activation_bytes
    assert one.evaluation == many.evaluation


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("data.validation=70000", "70000 of 60000 training samples leaves 0"),
        ("data.batch_size=70000", "more than the 55000 training samples"),
        ("train.accumulate=7", "cannot be computed in 7 parts"),
    ],
)
def test_what_cannot_be_trained_is_refused(override, reason):
    with pytest.raises((ConfigError, DatasetError), match=reason):
        lenet(override)


def test_a_batch_to_look_at_may_be_larger_than_the_data_set():
    assert lenet(batch_size=100_000).batch_size == 100_000


def test_a_shape_error_names_the_file():
    text = "data: {dataset: mnist}\nlayers: [{dense: {units: 10}}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    with pytest.raises(ShapeError, match=r"^flat\.yaml:2:10: layer 1 'dense_1'"):
        summarize(parse_config(text + rest, "flat.yaml"), Path("flat.yaml"))


def test_vgg16(vgg):
    rows = by_name(vgg)
    assert vgg.parameters == 138_357_544
    assert bytes_text(rows["fc6"].weight_bytes) == "392 MiB"
    multiplications = sum(
        row.forward_flops for row in vgg.rows if row.type in ("conv2d", "dense")
    ) / (2e9)
    assert multiplications == pytest.approx(15.48, abs=0.01)
    assert rows["pool5"].output_shape == (512, 7, 7)
    assert vgg.training.total > 2**33


def test_vgg16_is_the_lecture_s():
    config = load_config("vgg16.yaml").config
    rows = by_name(summarize(config, Path("vgg16.yaml"), batch_size=1))
    for name, wanted in LECTURE_WEIGHTS.items():
        assert rows[name].weight_bytes == pytest.approx(wanted, rel=0.03), name
    # The lecture rounds 1728 numbers of 4 bytes to 6.5 KB; here the 64 biases are in it too.
    assert rows["conv1_1"].weight_bytes == 4 * (3 * 3 * 3 * 64 + 64)
    for name, wanted in LECTURE_OUTPUTS.items():
        assert 4 * prod(rows[name].output_shape) == pytest.approx(wanted, rel=0.03), name
    # What forward keeps of a convolution is the output of its ReLU, which is as large.
    kept = [row.activation_bytes for row in rows.values() if row.type in ("relu", "max_pool2d")]
    maps = [row for name, row in rows.items() if name in LECTURE_OUTPUTS]
    assert kept[: len(maps)] == [4 * prod(row.output_shape) for row in maps]


def test_alexnet_has_the_parameters_of_the_paper():
    summary = summarize(load_config("alexnet.yaml").config, Path("alexnet.yaml"))
    assert summary.parameters == 60_965_224
    assert by_name(summary)["conv1"].output_shape == (96, 55, 55)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # He et al. 2016, table 6: 0.27 million.
        ("cifar10-resnet20.yaml", 269_722),
        ("cifar10-resnet9.yaml", 6_573_120),
        # torchvision's resnet18.
        ("resnet18.yaml", 11_689_512),
    ],
)
def test_residual_nets(name, parameters):
    summary = summarize(load_config(name).config, Path(name))
    assert summary.parameters == parameters


def test_layers_of_composites_have_their_own_rows():
    summary = summarize(load_config("cifar10-resnet20.yaml").config, Path("x.yaml"), batch_size=1)
    rows = by_name(summary)
    block, inner = rows["residual_4"], rows["residual_4.conv2d_8"]
    assert (block.depth, inner.depth) == (0, 1)
    assert block.parameters == 0
    assert block.forward_flops == 32 * 16 * 16
    assert inner.parameters == 16 * 32 * 9
    assert rows["residual_4.padding"].output_shape == (32, 16, 16)
    assert sum(row.parameters for row in summary.rows) == summary.parameters
    assert summary.training.parameters == 4 * summary.parameters
    text = as_text(summary).splitlines()
    at = next(i for i, line in enumerate(text) if line.startswith("residual_4 "))
    assert text[at + 1].startswith("  conv2d_8 ")


@pytest.mark.parametrize("name", packaged_configs())
def test_packaged_configs_fit_80_columns(name):
    summary = summarize(load_config(name).config, Path(name))
    assert max(map(len, as_text(summary).splitlines())) <= 80


def test_the_text_has_every_figure_and_fits_80_columns(vgg):
    for summary in (vgg, lenet(), lenet(batch_size=4096)):
        text = as_text(summary)
        assert max(map(len, text.splitlines())) <= 80
        for row in summary.rows:
            name = "  " * row.depth + row.name.rpartition(".")[2]
            own = name.rpartition("_")[0].strip() != row.type and row.type and row.name != "loss"
            assert f"\n{name}: {row.type} " in text if own else f"\n{name} " in text
        assert f"{summary.parameters:,}" in text
        assert bytes_text(summary.training.total) in text
    lines = {line.split()[0]: line.split() for line in as_text(vgg).splitlines() if line}
    assert lines["fc6:"][:6] == ["fc6:", "dense", "4096", "102,764,544", "206", "392"]


@pytest.mark.parametrize(("width", "columns"), [(80, 6), (60, 5), (50, 4), (40, 3)])
def test_a_narrow_terminal_has_fewer_columns(vgg, width, columns):
    lines = as_text(vgg, width).splitlines()
    head, rule = lines[2:4]
    heads = ["layer", "output", "parameters", "MFLOP", "weights", "activation"]
    assert head.split() == heads[:columns]
    assert rule == "-" * len(head)
    assert max(map(len, lines[2 : lines.index("", 2)])) <= width
    # What a column means is told where there is one.
    for number, name in ((4, "MFLOP"), (6, "activation")):
        assert any(line.startswith(f"{name}: ") for line in lines) == (columns >= number)


def test_what_a_gpu_needs_is_listed_by_section_with_the_data(vgg):
    plan = lenet().gpu
    assert plan.data >= 60_000 * 784
    assert set(plan.sections) == {"train", "evaluate"}
    small, large = plan.sections["train"], lenet(batch_size=640).gpu.sections["train"]
    # Slices of sums over a batch are as many for any batch.
    assert large.fixed == pytest.approx(small.fixed, rel=0.1)
    assert large.activations - large.fixed == pytest.approx(
        10 * (small.activations - small.fixed), rel=0.1
    )
    assert vgg.gpu.total > vgg.training.total
    lines = as_text(vgg).splitlines()
    start = lines.index("memory of training on a GPU, at most")
    assert lines[start + 5].startswith(f"  train, batch {vgg.batch_size} ")
    assert bytes_text(vgg.gpu.total) in "\n".join(lines[start:])
    assert vgg.to_json()["gpu_training_bytes"]["total"] == vgg.gpu.total


def test_a_gpu_in_bf16_keeps_activations_in_two_bytes():
    config = "cifar10-resnet20.yaml"
    needs = [
        summarize(load_config(config, [f"run.precision={precision}"]).config, Path(config)).gpu
        for precision in ("fp32", "bf16")
    ]
    for name, need in needs[0].sections.items():
        half = needs[1].sections[name].per_sample / need.per_sample
        # Its tables and scores stay in float32.
        assert 0.5 <= half <= 0.53


def test_what_no_gpu_can_index_has_no_figure():
    summary = lenet(batch_size=1_000_000)
    assert summary.gpu is None
    lines = as_text(summary).splitlines()
    start = lines.index("memory of training on a GPU, at most")
    assert lines[start + 1] == "  none is enough: a tensor would have 2^31 elements or more"
    assert summary.to_json()["gpu_training_bytes"] is None


def test_json_is_complete(vgg):
    shown = json.loads(json.dumps(vgg.to_json()))
    assert shown["layers"][1]["output_shape"] == [64, 224, 224]
    assert shown["training_step_bytes"]["total"] == vgg.training.total
    assert sum(layer["parameters"] for layer in shown["layers"]) == shown["parameters"]
    flops = sum(layer["forward_flops"] for layer in shown["layers"])
    assert flops == shown["forward_flops_per_picture"]
    assert shown["training_step_flops"] > 2.5 * 256 * flops


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1536, "1.50 KiB"),
        (10 * 1024, "10.0 KiB"),
        (100 * 1024, "100 KiB"),
        (411_058_176, "392 MiB"),
        (1024**4, "1.00 TiB"),
        (5000 * 1024**4, "5000 TiB"),
    ],
)
def test_bytes(count, text):
    assert bytes_text(count) == text


def test_memory_is_what_the_reference_holds():
    """Every array of a step, read back after it: none was forgotten, none counted twice."""
    config = load_config("lenet.yaml", ("run.fusion=false",)).config
    info = describe_data(config)
    network = build_network(config, info)
    scaling = preprocessing(config, info)
    graph = composed.train_graph(network, 8, "train", 8, 1, 1, scaling, composition(config))
    executable = ReferenceBackend(1).compile({"train": graph}, Options(fusion=False))
    for tensor, values in network.initial_values(0).items():
        executable.write(tensor, values)
    executable.write(graph["images"], np.zeros((8, 1, 28, 28), np.uint8))
    executable.write(graph["labels"], np.zeros(8, np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.zeros(1, np.float32))
    executable.run("train")
    held = sum(
        executable.read(tensor).nbytes
        for tensor in graph.tensors()
        if tensor.dtype in ("float32", "int32")
        and tensor.role != "data"
        and tensor.name not in ("flatten_1.y", "flatten_1.dx")
    )
    assert held == summarize(config, Path("lenet.yaml"), 8).training.total


def test_a_batch_in_parts_takes_less_memory_for_the_same_work():
    config = load_config("lenet.yaml", ["optimizer={type: adam, lr: 0.1}"]).config
    whole = summarize(config, Path("x.yaml"))
    config = load_config(
        "lenet.yaml", ["optimizer={type: adam, lr: 0.1}", "train.accumulate=4"]
    ).config
    parts = summarize(config, Path("x.yaml"))
    assert parts.training.activations < whole.training.activations / 3.5
    # Beside the two averages of Adam sums of the gradients, of one part and of two.
    assert parts.training.optimizer == 4 * whole.training.parameters
    assert whole.training.optimizer == 2 * whole.training.parameters
    assert parts.step_flops == pytest.approx(whole.step_flops, rel=0.02)
    assert "kept for backward, 16 pictures" in as_text(parts)
