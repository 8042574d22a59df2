"""drawn, a network for PyTorch, written by dnnstack."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

# producer: dnnstack
# name: drawn
# task: classify
# data: mnist
# data_licence: CC BY-SA 3.0
# checkpoint_sha256: 0000000000000000000000000000000000000000000000000000000000000000
# step: 1
# versions: {"dnnstack": "0"}
CLASSES = ["c0", "c1", "c2"]
MEAN = torch.tensor([0.3])[:, None, None]
STD = torch.tensor([0.25])[:, None, None]


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class Block2(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(12, eps=0.001, momentum=0.3)
        self.projection = nn.Conv2d(8, 12, 1, stride=2, bias=False)
        self.gelu = nn.GELU()

    def forward(self, x):
        return self.gelu(self.bn1(self.conv1(x)) + self.projection(x))


class Branches(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.branch1 = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1),
            nn.ReLU(),
        )

    def forward(self, x):
        return torch.cat([self.branch1(x), x], 1)


class Net(nn.Module):
    """(N, 1, 7, 7), as ``preprocess`` gives it -> (N, 3) scores."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            Block(8),
            Block2(),
            Block(12),
            nn.Dropout(0.2),
            Branches(12, 2),
            Branches(14, 3),
            nn.AdaptiveAvgPool2d(1),
        )
        self.classifier = nn.Linear(17, 3)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def preprocess(raw):
    """raw: (N, 1, 7, 7) pixels from 0 to 255 -> what the network takes."""
    return (torch.as_tensor(raw, dtype=torch.float32) / 255 - MEAN) / STD


def load():
    """The trained network."""
    net = Net()
    net.load_state_dict(load_file(Path(__file__).with_suffix(".safetensors")))
    return net.eval()


@torch.no_grad()
def predict(net, raw):
    """What dnnstack predict answers to raw."""
    return net(preprocess(raw)).softmax(1)
