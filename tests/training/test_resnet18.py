"""ResNet-18: its parameters, PyTorch's names for them, and what PyTorch computes with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.configs import load_config
from dnnstack.datasets import ImageSet
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.network import Network
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.weights.source import open_source
from dnnstack.training.weights.start import begin
from safetensors.numpy import save_file

from ..support.golden import resnet18

SIZE = "data.dataset.image_folder.size={}"
STORED = resnet18.stored()
SHAPES = {name: tuple(shape) for name, shape in STORED["shapes"].items()}


def network_of(size: int) -> Network:
    config = load_config("resnet18.yaml", [SIZE.format(size)]).config
    return build_network(config, describe_data(config))


def file_with(folder: Path, names: list[str]) -> Path:
    """A file as PyTorch's users save one, with those of its arrays."""
    arrays = {
        name: resnet18.values(name, SHAPES[name]) if SHAPES[name] else np.array(7, np.int64)
        for name in names
    }
    path = folder / "resnet18.safetensors"
    save_file(arrays, path)
    return path


@pytest.mark.parametrize("size", [64, 224])
def test_it_has_the_parameters_of_torchvision(size):
    network = network_of(size)
    assert sum(p.tensor.size for p in network.parameters()) == 11_689_512
    shapes = {layer.name: layer.output_shape for layer in network.layers}
    side = size // 4
    assert [shapes[f"layer{n}"] for n in (1, 2, 3, 4)] == [
        (64 * 2**n, side // 2**n, side // 2**n) for n in range(4)
    ]


@pytest.mark.parametrize("size", [64, 224])
def test_scores_are_those_of_pytorch(size, onednn, tmp_path):
    network = network_of(size)
    path = file_with(tmp_path, list(SHAPES))
    shapes = {tensor.name: tensor.shape for tensor in network.learned()}
    start = begin(open_source(str(path), tmp_path, print), shapes, ())
    assert (start.new, start.left) == ((), ())
    graph = network.infer_graph(1)
    executable = onednn.compile({"infer": graph}, Options(tune=False))
    for tensor in network.learned():
        executable.write(tensor, start.values[tensor.name])
    executable.write(graph["x"], resnet18.picture(size))
    executable.run("infer")
    scores = executable.read(graph["scores"])[0].astype(np.float64)
    executable.close()
    wanted = STORED["scores"][str(size)]
    largest = max(map(abs, wanted["some"]))
    np.testing.assert_allclose(scores[::50], wanted["some"], rtol=1e-4, atol=1e-5 * largest)
    np.testing.assert_allclose(np.abs(scores).sum(), wanted["sum"], rtol=1e-5)


def test_every_array_has_a_place_and_the_counters_have_none(tmp_path):
    path = file_with(tmp_path, list(SHAPES))
    network = network_of(64)
    shapes = {tensor.name: tensor.shape for tensor in network.learned()}
    names = begin(open_source(str(path), tmp_path, print), shapes, ()).names
    assert set(names) == set(shapes)
    assert sorted(names.values()) == sorted(n for n in SHAPES if "num_batches" not in n)
    assert names["layer2.block_0.downsample.conv.weight"] == "layer2.0.downsample.0.weight"
    assert names["layer4.block_1.bn2.running_var"] == "layer4.1.bn2.running_var"


@pytest.mark.parametrize("size", [64, 224])
def test_it_trains(size, onednn):
    """Two pictures of two classes, again and again, are soon told apart."""
    config = load_config(
        "resnet18.yaml",
        [
            SIZE.format(size),
            "data.dataset.image_folder.classes=2",
            "layers.fc.units=2",
            "data.batch_size=2",
            "data.validation=0",
            "data.augment=[]",
            "optimizer.lr=0.01",
            "schedule=fixed",
            "train={max_steps: 4}",
            "run.tune=false",
        ],
    ).config
    info = describe_data(config)
    rng = np.random.default_rng(1)
    pictures = rng.integers(0, 256, (2, *info.shape), np.uint8)
    data = ImageSet("drawn/train", pictures, np.array([0, 1], np.int32), info.classes)
    plan, network = make_plan(config, 2), build_network(config, info)
    session = Session(Setup(config, network, preprocessing(config, info), plan, data), onednn)
    session.initialize()
    losses = []
    for _ in range(4):
        session.set_sums(np.zeros(3))
        session.run(1)
        losses.append(session.sums()[0])
    session.close()
    assert losses[-1] < 0.5 * losses[0]
