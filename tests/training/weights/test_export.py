"""Weights for other programs: float32, with the names of PyTorch, and back again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.configs import load_config
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.records.formats.pytorch_names import is_counter, our_name, their_names
from dnnstack.training.weights.export import save_weights
from dnnstack.training.weights.source import Offered, Source, open_source
from safetensors.numpy import load_file

from ...support.golden import resnet18
from .files import entry, raw, written


def names_of(config: str) -> list[str]:
    found = load_config(config).config
    return [t.name for t in build_network(found, describe_data(found)).learned()]


# Some of torchvision's names, and how many arrays it has.
THEIRS = {
    "resnet18.yaml": (102, "layer2.0.downsample.1.bias"),
    "resnet50.yaml": (267, "layer1.0.downsample.0.weight layer3.5.bn3.running_var fc.bias"),
    "mobilenet-v2.yaml": (
        262,
        "features.0.0.weight features.1.conv.2.bias features.17.conv.1.1.running_var "
        "features.18.1.bias classifier.1.weight",
    ),
    "vgg16.yaml": (32, "features.0.weight features.28.bias classifier.6.bias"),
    "vgg16-bn.yaml": (84, "features.0.weight features.41.running_mean classifier.6.bias"),
}


@pytest.mark.parametrize("config", THEIRS)
def test_names_lead_there_and_back(config):
    ours = names_of(config)
    theirs = their_names(ours)
    assert [our_name(theirs[name], ours) for name in ours] == ours
    count, some = THEIRS[config]
    assert len({*theirs.values()}) == len(ours) == count
    assert {*some.split()} <= {*theirs.values()}
    if config == "resnet18.yaml":
        shapes = resnet18.stored()["shapes"]
        assert set(theirs.values()) == {name for name in shapes if not is_counter(name)}


def test_names_of_other_networks_stay():
    for config in ("alexnet.yaml", "cifar10-resnet20.yaml"):
        assert all(ours == theirs for ours, theirs in their_names(names_of(config)).items())


def source_of(**arrays: np.ndarray) -> Source:
    offered = {
        name.replace("__", "."): Offered(array.shape, "F32", lambda array=array: array)
        for name, array in arrays.items()
    }
    return Source(Path("run/step-1.safetensors"), "0" * 64, "dnnstack", offered)


def test_what_is_written_is_read_again(tmp_path):
    """Also from an array whose memory is in another order."""
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    path = tmp_path / "w.safetensors"
    names = save_weights(source_of(layer1__block_0__bn1__bias=turned[0], fc__weight=turned), path)
    assert names == {"layer1.block_0.bn1.bias": "layer1.0.bn1.bias", "fc.weight": "fc.weight"}
    found = load_file(path)
    np.testing.assert_array_equal(found["fc.weight"], turned)
    np.testing.assert_array_equal(found["layer1.0.bn1.bias"], turned[0])
    assert set(open_source(str(path), tmp_path, print).arrays) == set(found)


def test_a_file_of_pytorch_keeps_its_names_and_loses_its_integers(tmp_path):
    header = {"n": entry("I64", [], 0, 8), "w": entry("F16", [2], 8, 12)}
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(header, bytes(12)))
    save_weights(open_source(str(path), tmp_path, print), tmp_path / "b.safetensors")
    found = load_file(tmp_path / "b.safetensors")
    assert {name: array.dtype for name, array in found.items()} == {"w": np.float32}


def test_the_source_is_not_overwritten(tmp_path):
    path = written(tmp_path / "w.safetensors", w=np.ones(2))
    before = path.read_bytes()
    link = tmp_path / "link.safetensors"
    link.symlink_to(path)
    for target in (path, link):
        with pytest.raises(CheckpointError, match="is the file that the weights come from"):
            save_weights(open_source(str(path), tmp_path, print), target)
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    path = written(tmp_path / "w.safetensors", w=np.ones(2))
    target = tmp_path / "no" / "x.safetensors"
    with pytest.raises(CheckpointError, match=r"no/x\.safetensors: cannot be written: No such"):
        save_weights(open_source(str(path), tmp_path, print), target)
