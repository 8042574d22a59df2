"""The names that PyTorch (torchvision) and timm give the arrays of networks that ship here.

``resnet18.yaml`` and ``resnet50.yaml`` have PyTorch's names, except that a part of a name begins
with a letter here:

    layer2.0.conv1.weight           layer2.block_0.conv1.weight
    layer2.0.downsample.0.weight    layer2.block_0.downsample.conv.weight
    layer2.0.downsample.1.bias      layer2.block_0.downsample.bn.bias

``vgg16.yaml`` has the names of the paper. torchvision numbers the layers, and timm keeps two fully
connected layers as convolutions, whose filters are those rows in another shape:

    features.0.weight               conv1_1.weight
    classifier.0.weight             fc6.weight
    pre_logits.fc1.weight           fc6.weight
    head.fc.weight                  fc8.weight

Others, such as ``vgg16-bn.yaml``, have torchvision's names with ``at_`` before the numbers:

    features.1.bias                 features.at_1.bias

Filters (filters, channels, height, width), matrices (outputs, inputs) and statistics are stored in
the same order in both.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_WRAPPER = "module."
"""What DataParallel puts before every name."""
_COUNTER = "num_batches_tracked"
_BLOCK = re.compile(r"layer(\d+)\.(\d+)\.(?:downsample\.([01])(?=\.))?")
_OUR_BLOCK = re.compile(r"^layer(\d+)\.block_(\d+)\.(?:downsample\.(conv|bn)(?=\.))?")
_NUMBER, _OUR_NUMBER = re.compile(r"\.(\d+)(?=\.)"), re.compile(r"\.at_(\d+)(?=\.)")
_PLACES = {
    "features.0": "conv1_1",
    "features.2": "conv1_2",
    "features.5": "conv2_1",
    "features.7": "conv2_2",
    "features.10": "conv3_1",
    "features.12": "conv3_2",
    "features.14": "conv3_3",
    "features.17": "conv4_1",
    "features.19": "conv4_2",
    "features.21": "conv4_3",
    "features.24": "conv5_1",
    "features.26": "conv5_2",
    "features.28": "conv5_3",
    "classifier.0": "fc6",
    "classifier.3": "fc7",
    "classifier.6": "fc8",
}
_TIMM = {
    "pre_logits.fc1": "classifier.0",
    "pre_logits.fc2": "classifier.3",
    "head.fc": "classifier.6",
}


def our_name(theirs: str, ours: Collection[str] = ()) -> str:
    """The name in a network that ships here; names that have no other are returned as they are.

    ours: those of the network; the same place has another name in another network.
    """
    name = theirs.removeprefix(_WRAPPER)
    layer, _, last = name.rpartition(".")
    place = _TIMM.get(layer, layer)
    numbered = _NUMBER.sub(r".at_\1", f"{place}.{last}")
    if numbered in ours:
        return numbered
    if place in _PLACES:
        return f"{_PLACES[place]}.{last}"
    return _BLOCK.sub(_in_block, name, count=1) if _BLOCK.match(name) else name


def their_names(ours: Collection[str]) -> dict[str, str]:
    """torchvision's name for each name of a network that ships here; others stay as they are."""
    # Other networks have an fc6 too.
    is_vgg = any(name.startswith("conv1_1.") for name in ours)
    places = {place: layer for layer, place in reversed(_PLACES.items())} if is_vgg else {}
    found = {}
    for name in ours:
        layer, _, last = name.rpartition(".")
        theirs = f"{places[layer]}.{last}" if layer in places else name
        found[name] = _OUR_NUMBER.sub(r".\1", _OUR_BLOCK.sub(_out_of_block, theirs, count=1))
    return found


def is_counter(theirs: str) -> bool:
    """Whether the array counts batches, which only averages over all batches need."""
    return theirs.rpartition(".")[2] == _COUNTER


def _in_block(found: re.Match[str]) -> str:
    stage, block, shortcut = found.groups()
    inside = {None: "", "0": "downsample.conv", "1": "downsample.bn"}[shortcut]
    return f"layer{stage}.block_{block}.{inside}"


def _out_of_block(found: re.Match[str]) -> str:
    stage, block, shortcut = found.groups()
    inside = {None: "", "conv": "downsample.0", "bn": "downsample.1"}[shortcut]
    return f"layer{stage}.{block}.{inside}"
