"""lenet5_1998, a network for PyTorch, written by dnnstack."""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

# producer: dnnstack
# name: lenet5-1998
# task: classify
# data: mnist
# data_licence: CC BY-SA 3.0
# checkpoint_sha256: 0000000000000000000000000000000000000000000000000000000000000000
# step: 1
# versions: {"dnnstack": "0"}
CLASSES = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"]
MEAN = torch.tensor([0.3])[:, None, None]
STD = torch.tensor([0.25])[:, None, None]


class ConnectedConv2d(nn.Conv2d):
    """A convolution whose filters see some of the maps: those where ``seen`` is 1."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.register_buffer("seen", torch.ones(self.weight.shape[:2]))

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.seen[:, :, None, None], self.bias)


class Function(nn.Module):
    """A formula without weights."""

    def __init__(self, forward):
        super().__init__()
        self.forward = forward


class Rbf(nn.Module):
    """Minus the squared distance to each of the centres, which are fixed."""

    def __init__(self, classes, inputs):
        super().__init__()
        self.register_buffer("centres", torch.zeros(classes, inputs))

    def forward(self, x):
        return -(x[:, None] - self.centres).square().sum(2)


class Subsampling(nn.Module):
    """A trained factor and offset of each map, of factor times the mean of each window."""

    def __init__(self, channels, kernel_size, stride, factor):
        super().__init__()
        self.window, self.factor = (kernel_size, stride), factor
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x):
        return self.weight * self.factor * F.avg_pool2d(x, *self.window) + self.bias


class Net(nn.Module):
    """(N, 1, 28, 28), as ``preprocess`` gives it -> (N, 10) scores."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.ConstantPad2d(2, -0.1),
            nn.Conv2d(1, 6, 5),
            Function(lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
            Subsampling(6, 2, 2, 4.0),
            Function(lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
            ConnectedConv2d(6, 16, 5),
            Function(lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
            Subsampling(16, 2, 2, 4.0),
            Function(lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
            nn.Conv2d(16, 120, 5),
            Function(lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
        )
        self.classifier = nn.Sequential(
            nn.Linear(120, 84),
            Function(lambda x: 1.7159 * torch.tanh(2 / 3 * x)),
            Rbf(10, 84),
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
