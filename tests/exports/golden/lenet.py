"""lenet, a network for PyTorch, written by dnnstack."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

# producer: dnnstack
# name: lenet
# task: classify
# data: mnist
# data_licence: CC BY-SA 3.0
# checkpoint_sha256: 0000000000000000000000000000000000000000000000000000000000000000
# step: 1
# versions: {"dnnstack": "0"}
CLASSES = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"]
MEAN = torch.tensor([0.3])[:, None, None]
STD = torch.tensor([0.25])[:, None, None]


class Net(nn.Module):
    """(N, 1, 28, 28), as ``preprocess`` gives it -> (N, 10) scores."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 20, 5),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(800, 500),
            nn.ReLU(),
            nn.Linear(500, 10),
        )

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def preprocess(raw):
    """raw: (N, 1, 28, 28) pixels from 0 to 255 -> what the network takes."""
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
