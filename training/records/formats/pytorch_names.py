"""The names that PyTorch (torchvision) and timm give the arrays of networks that ship here.

``resnet18.yaml`` has PyTorch's names, except that a part of a name begins with a letter here:

    layer2.0.conv1.weight           layer2.block_0.conv1.weight
    layer2.0.downsample.0.weight    layer2.block_0.downsample.conv.weight
    layer2.0.downsample.1.bias      layer2.block_0.downsample.bn.bias

``vgg16.yaml`` has the names of the paper. torchvision numbers the layers, and timm keeps two fully
connected layers as convolutions, whose filters are those rows in another shape:

    features.0.weight               conv1_1.weight
    classifier.0.weight             fc6.weight
    pre_logits.fc1.weight           fc6.weight
    head.fc.weight                  fc8.weight

With batch norms, whose names here are ``bn1_1`` and so on, it counts these too: ``features.3`` is
then ``conv1_2``.

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
_DENSE = {
    "classifier.0": "fc6",
    "classifier.3": "fc7",
    "classifier.6": "fc8",
    "pre_logits.fc1": "fc6",
    "pre_logits.fc2": "fc7",
    "head.fc": "fc8",
}


def _places(norms: bool) -> dict[str, str]:
    """Our layer at each place of VGG-16; with ``norms`` there is one after each convolution."""
    found, at = {}, 0
    for stage, count in enumerate((2, 2, 3, 3, 3), 1):
        for number in range(1, count + 1):
            found[f"features.{at}"] = f"conv{stage}_{number}"
            if norms:
                found[f"features.{at + 1}"] = f"bn{stage}_{number}"
            at += 3 if norms else 2
        at += 1
    return found | _DENSE


_PLACES = {norms: _places(norms) for norms in (False, True)}


def has_norms(theirs: Collection[str]) -> bool:
    """Whether these are the names of a VGG with batch norms."""
    return any(name.endswith("features.1.running_mean") for name in theirs)


def our_name(theirs: str, norms: bool = False) -> str:
    """The name in a network that ships here; names that have no other are returned as they are.

    norms: see ``has_norms``.
    """
    name = theirs.removeprefix(_WRAPPER)
    layer, _, last = name.rpartition(".")
    if layer in _PLACES[norms]:
        return f"{_PLACES[norms][layer]}.{last}"
    return _BLOCK.sub(_in_block, name, count=1) if _BLOCK.match(name) else name


def their_names(ours: Collection[str]) -> dict[str, str]:
    """torchvision's name for each name of a network that ships here; others stay as they are."""
    # Other networks have an fc6 too.
    is_vgg = any(name.startswith("conv1_1.") for name in ours)
    known = _PLACES["bn1_1.weight" in ours] if is_vgg else {}
    places = {place: layer for layer, place in reversed(known.items())}
    found = {}
    for name in ours:
        layer, _, last = name.rpartition(".")
        theirs = f"{places[layer]}.{last}" if layer in places else name
        found[name] = _OUR_BLOCK.sub(_out_of_block, theirs, count=1)
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
