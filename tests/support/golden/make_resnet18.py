"""Write resnet18.json: what a ResNet-18 of PyTorch computes in float64. Needs torch; never run by
the suite: ``python -m tests.support.golden.make_resnet18``."""

from __future__ import annotations

import json

import torch
from torch import nn

from .resnet18 import STORED, picture, values

SIZES = (64, 224)


class Basic(nn.Module):
    """The block of torchvision's ResNet-18, with its names."""

    def __init__(self, given: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride > 1:
            way = nn.Conv2d(given, filters, 1, stride, bias=False)
            self.downsample = nn.Sequential(way, nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        way = x if self.downsample is None else self.downsample(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + way)


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Basic(64, 64, 1), Basic(64, 64, 1))
        self.layer2 = nn.Sequential(Basic(64, 128, 2), Basic(128, 128, 1))
        self.layer3 = nn.Sequential(Basic(128, 256, 2), Basic(256, 256, 1))
        self.layer4 = nn.Sequential(Basic(256, 512, 2), Basic(512, 512, 1))
        self.fc = nn.Linear(512, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def main() -> None:
    model = ResNet18()
    shapes = {name: list(each.shape) for name, each in model.state_dict().items()}
    state = {
        name: torch.from_numpy(values(name, tuple(shape)))
        for name, shape in shapes.items()
        if shape
    }
    model.load_state_dict(state, strict=False)
    model.double().eval()
    scores = {}
    with torch.no_grad():
        for size in SIZES:
            found = model(torch.from_numpy(picture(size)).double())[0]
            # Every fiftieth, and a sum that every one goes into.
            scores[str(size)] = {"some": found[::50].tolist(), "sum": found.abs().sum().item()}
    table = {
        "made_with": f"PyTorch {torch.__version__} on the CPU in float64",
        "shapes": shapes,
        "scores": scores,
    }
    STORED.write_text(json.dumps(table, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
