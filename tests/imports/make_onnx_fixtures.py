"""Makes the ONNX files of this folder with PyTorch; run by hand: python make_onnx_fixtures.py.

It needs torch and onnxscript. The networks have the modules and names of torchvision's, with few
channels. ``expected.json`` has the scores that PyTorch computes of the pictures of ``pixels``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

FOLDER = Path(__file__).parent / "onnx"


def pixels(shape: tuple[int, ...]) -> np.ndarray:
    """Two pictures of bytes, the same each time."""
    count = 2 * int(np.prod(shape))
    return (np.arange(count) * 7919 % 65521 % 256).astype(np.uint8).reshape(2, *shape)


class BasicBlock(nn.Module):
    def __init__(self, before: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride > 1:
            shortcut = nn.Conv2d(before, filters, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(4, 4, 1), BasicBlock(4, 4, 1))
        self.layer2 = nn.Sequential(BasicBlock(4, 6, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(x))), 1))


def _make(name: str, network: nn.Module, size: int, **how: Any) -> dict[str, Any]:
    torch.manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.uniform_(-0.5, 0.5)
    given = pixels((3, size, size))
    x = torch.tensor(given / 255, dtype=torch.float32)
    path = FOLDER / f"{name}.onnx"
    torch.onnx.export(network.eval(), (x,), str(path), input_names=["images"], **how)
    if how["dynamo"]:
        # Where in the program each node was, which is most of the file.
        model = onnx.load(path, load_external_data=False)
        for node in model.graph.node:
            node.ClearField("metadata_props")
        for each in (*model.graph.initializer, *model.graph.value_info):
            each.ClearField("metadata_props")
        model.ClearField("metadata_props")
        path.write_bytes(model.SerializeToString())
    with torch.no_grad():
        scores = network(x).numpy()
    return {"size": size, "scores": scores.tolist()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    old: dict[str, Any] = {"dynamo": False}
    unfolded = {**old, "training": torch.onnx.TrainingMode.PRESERVE, "opset_version": 13}
    open_batch = {**old, "dynamic_axes": {"images": {0: "n"}}, "opset_version": 17}
    expected = {
        "resnet": _make("resnet", ResNet(), 32, **open_batch),
        "resnet-unfolded": _make("resnet-unfolded", ResNet(), 32, **unfolded),
        "resnet-dynamo": _make("resnet-dynamo", ResNet(), 32, dynamo=True),
    }
    (FOLDER / "expected.json").write_text(json.dumps(expected) + "\n")
