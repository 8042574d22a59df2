from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import ShapeError, UsageError
from dnnstack.configs import load_config, parse_config
from dnnstack.datasets import DatasetInfo
from dnnstack.layers.backends.base import Options
from dnnstack.layers.backends.reference.backend import ReferenceBackend
from dnnstack.training import summary as summarizing
from dnnstack.training.assemble import build_network, describe_data, optimizer, preprocessing
from dnnstack.training.summary import NetworkSummary, summarize
from dnnstack.training.summary_text import as_text
from dnnstack.training.units import bytes_text

# Simonyan and Zisserman 2015, configuration D.
_BLOCKS = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]
_CONV = "  - conv2d: {{filters: {0}, kernel_size: 3, padding: same}}\n  - relu\n"
VGG16 = (
    "data: {dataset: mnist, batch_size: 64}\nlayers:\n"
    + "".join(_CONV.format(n) * times + "  - max_pool2d\n" for n, times in _BLOCKS)
    + "  - flatten\n"
    + "  - dense: {units: 4096}\n  - relu\n" * 2
    + "  - dense: {units: 1000}\n  - softmax\n"
    + "optimizer: {type: sgd, lr: 0.01, momentum: 0.9}\ntrain: {epochs: 1}\n"
)


@pytest.fixture
def vgg(monkeypatch: pytest.MonkeyPatch) -> NetworkSummary:
    classes = tuple(map(str, range(1000)))
    info = DatasetInfo("imagenet", (3, 224, 224), classes, None, None)
    with monkeypatch.context() as patch:
        patch.setattr(summarizing, "describe_data", lambda config: info)
        return summarize(parse_config(VGG16, "vgg16.yaml"), Path("vgg16.yaml"))


def lenet(*overrides: str, batch_size: int | None = None) -> NetworkSummary:
    return summarize(load_config("lenet.yaml", overrides).config, Path("lenet.yaml"), batch_size)


def by_name(summary: NetworkSummary) -> dict[str, summarizing.Row]:
    return {row.name: row for row in summary.rows}


def test_lenet_by_hand() -> None:
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


def test_momentum_and_fusion_count() -> None:
    plain = lenet("optimizer.momentum=0", "run.fusion=false")
    assert plain.training.optimizer == 0
    rows = by_name(plain)
    # Without fusion the sums before the bias are kept too.
    assert rows["conv2d_1"].activation_bytes == 2 * 4 * 64 * 20 * 24 * 24
    assert rows["dense_1"].activation_bytes == 2 * 4 * 64 * 500
    assert rows["conv2d_1"].forward_flops == by_name(lenet())["conv2d_1"].forward_flops


def test_another_batch_size_scales_activations_alone() -> None:
    one, many = lenet(batch_size=1), lenet(batch_size=256)
    assert (one.batch_size, many.batch_size) == (1, 256)
    assert (one.parameters, one.forward_flops) == (many.parameters, many.forward_flops)
    assert one.training.parameters == many.training.parameters
    for small, large in zip(one.rows[:-1], many.rows[:-1], strict=True):
        assert large.activation_bytes == 256 * small.activation_bytes
    assert one.evaluation == many.evaluation
    with pytest.raises(UsageError, match="--batch-size"):
        lenet(batch_size=0)


def test_a_shape_error_names_the_file() -> None:
    text = "data: {dataset: mnist}\nlayers: [{dense: {units: 10}}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    with pytest.raises(ShapeError, match=r"^flat\.yaml:2:10: layer 1 'dense_1'"):
        summarize(parse_config(text + rest, "flat.yaml"), Path("flat.yaml"))


def test_vgg16(vgg: NetworkSummary) -> None:
    rows = by_name(vgg)
    assert vgg.parameters == 138_357_544
    assert bytes_text(rows["dense_1"].weight_bytes) == "392 MiB"
    multiplications = sum(
        row.forward_flops for row in vgg.rows if row.type in ("conv2d", "dense")
    ) / (2e9)
    assert multiplications == pytest.approx(15.48, abs=0.01)
    assert rows["max_pool2d_5"].output_shape == (512, 7, 7)
    assert vgg.training.total > 2**33


def test_the_text_has_every_figure_and_fits_80_columns(vgg: NetworkSummary) -> None:
    for summary in (vgg, lenet(), lenet(batch_size=4096)):
        text = as_text(summary)
        assert max(map(len, text.splitlines())) <= 80
        for row in summary.rows:
            assert f"\n{row.name} " in text
        assert f"{summary.parameters:,}" in text
        assert bytes_text(summary.training.total) in text
    lines = {line.split()[0]: line.split() for line in as_text(vgg).splitlines() if line}
    assert lines["dense_1"][:6] == ["dense_1", "dense", "4096", "102,764,544", "206", "392"]


def test_what_a_gpu_needs_is_listed_by_section_with_the_data(vgg: NetworkSummary) -> None:
    plan = lenet().gpu
    assert plan.data >= 60_000 * 784
    assert set(plan.sections) == {"train", "evaluate"}
    assert lenet(batch_size=640).gpu.sections["train"].activations == pytest.approx(
        10 * plan.sections["train"].activations, rel=0.1
    )
    assert vgg.gpu.total > vgg.training.total
    lines = as_text(vgg).splitlines()
    start = lines.index("memory of training on a GPU, at most")
    assert lines[start + 5].startswith(f"  train, batch {vgg.batch_size} ")
    assert bytes_text(vgg.gpu.total) in "\n".join(lines[start:])
    assert vgg.to_json()["gpu_training_bytes"]["total"] == vgg.gpu.total


def test_json_is_complete(vgg: NetworkSummary) -> None:
    shown = json.loads(json.dumps(vgg.to_json()))
    assert shown["layers"][1]["output_shape"] == [64, 224, 224]
    assert shown["training_step_bytes"]["total"] == vgg.training.total
    assert sum(layer["parameters"] for layer in shown["layers"]) == shown["parameters"]
    flops = sum(layer["forward_flops"] for layer in shown["layers"])
    assert flops == shown["forward_flops_per_picture"]
    assert shown["training_step_flops"] > 2.5 * 64 * flops


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
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_memory_is_what_the_reference_holds() -> None:
    """Every array of a step, read back after it: none was forgotten, none counted twice."""
    config = load_config("lenet.yaml", ("run.fusion=false",)).config
    info = describe_data(config)
    network = build_network(config, info)
    scaling = preprocessing(config, info)
    graph = network.train_graph(8, "train", 8, 1, 1, scaling, optimizer(config))
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
