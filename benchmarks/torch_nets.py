"""Networks of packaged configs as PyTorch users write them, and a step as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from dnnstack.layers.connections import LENET5
from dnnstack.layers.rbf import DIGITS, bitmaps
from torch import nn
from torch.nn import functional as F


def conv(
    given: int, filters: int, size: int = 3, stride: int = 1, padding: int | None = None
) -> nn.Sequential:
    """Convolution, padded to the same size unless told, batch norm, ReLU."""
    padding = size // 2 if padding is None else padding
    layer = nn.Conv2d(given, filters, size, stride, padding, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(filters), nn.ReLU())


def he(model: nn.Module) -> nn.Module:
    """Filters from He et al. 2015."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model


def quick() -> nn.Module:
    """Caffe's quick net."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(3, 2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(1024, 64),
        nn.Linear(64, 10),
    )
    held = [module for module in model if isinstance(module, (nn.Conv2d, nn.Linear))]
    for module, deviation in zip(held, (1e-4, 0.01, 0.01, 0.1, 0.1), strict=True):
        nn.init.normal_(module.weight, std=deviation)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
    return model


class Basic(nn.Module):
    """The block of ResNet-20, its shortcut padded with zeros."""

    def __init__(self, given: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = conv(given, filters, stride=stride)
        self.second = conv(filters, filters)[:2]
        self.stride, self.more = stride, filters - given

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return F.relu(near + self.second(self.first(x)))


def resnet20() -> nn.Module:
    """He et al. 2016, section 4.2."""
    blocks: list[nn.Module] = [conv(3, 16)]
    given = 16
    for filters in (16, 32, 64):
        for turn in range(3):
            blocks.append(Basic(given, filters, 2 if turn == 0 and filters > 16 else 1))
            given = filters
    head = nn.Linear(64, 10)
    nn.init.kaiming_normal_(head.weight, nonlinearity="relu")
    nn.init.zeros_(head.bias)
    return he(nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head))


class Twice(nn.Module):
    def __init__(self, filters: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(filters, filters), conv(filters, filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Scaled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def resnet9() -> nn.Module:
    """David Page's network for DAWNBench."""
    return nn.Sequential(
        *(conv(3, 64), conv(64, 128), nn.MaxPool2d(2), Twice(128)),
        *(conv(128, 256), nn.MaxPool2d(2), conv(256, 512), nn.MaxPool2d(2), Twice(512)),
        *(nn.MaxPool2d(4), nn.Flatten(), nn.Linear(512, 10, bias=False), Scaled(0.125)),
    )


class Inception(nn.Module):
    """Szegedy et al. 2015, figure 2(b), with batch norm."""

    def __init__(
        self, given: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pool: int
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv(given, one, 1),
                nn.Sequential(conv(given, reduce3, 1), conv(reduce3, three)),
                nn.Sequential(conv(given, reduce5, 1), conv(reduce5, five, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(given, pool, 1)),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def inception() -> nn.Module:
    head = nn.Linear(288, 10)
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(
        *(he(conv(3, 64)), nn.MaxPool2d(2), he(Inception(64, 32, 48, 64, 16, 16, 16))),
        *(he(Inception(128, 64, 64, 96, 16, 32, 32)), nn.MaxPool2d(2)),
        he(Inception(224, 96, 64, 128, 16, 32, 32)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), head),
    )


def mnist_best() -> nn.Module:
    head = nn.Linear(1152, 10)
    return nn.Sequential(
        *(he(conv(1, 32)), he(conv(32, 32)), nn.MaxPool2d(2)),
        *(he(conv(32, 64)), he(conv(64, 64)), nn.MaxPool2d(2)),
        *(
            he(conv(64, 128, padding=0)),
            he(conv(128, 128, padding=0)),
            nn.Flatten(),
            nn.Dropout(0.3),
            head,
        ),
    )


class ScaledTanh(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.7159 * torch.tanh(x * (2.0 / 3.0))


class Subsampling(nn.Module):
    """A trained coefficient and bias for each map, of the sum of four pixels."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((maps, 1, 1), 0.25))
        self.bias = nn.Parameter(torch.zeros(maps, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 4.0 * self.weight * F.avg_pool2d(x, 2) + self.bias


class Connected(nn.Conv2d):
    """A convolution whose filters see some of the maps: table I of LeCun et al. 1998."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__(6, 16, 5)
        self.register_buffer("seen", torch.zeros(16, 6, 1, 1))
        for row, maps in enumerate(LENET5):
            self.seen[row, list(maps)] = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.weight * self.seen, self.bias)


class Rbf(nn.Module):
    """Minus the squared distances to a bitmap of each digit."""

    centres: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centres", torch.tensor(bitmaps(DIGITS)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -(x[:, None] - self.centres).square().sum(2)


def lenet5_1998() -> nn.Module:
    """LeCun et al. 1998, section II.B."""
    return nn.Sequential(
        *(nn.ConstantPad2d(2, -0.1), nn.Conv2d(1, 6, 5), ScaledTanh()),
        *(Subsampling(6), ScaledTanh(), Connected(), ScaledTanh(), Subsampling(16), ScaledTanh()),
        *(nn.Conv2d(16, 120, 5), ScaledTanh(), nn.Flatten(), nn.Linear(120, 84), ScaledTanh()),
        Rbf(),
    )


def map_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """LeCun et al. 1998, eq. 9, j = 10."""
    right = x.gather(1, y[:, None])[:, 0]
    beyond = x.new_full((len(x), 1), -10.0)
    return (torch.logsumexp(torch.cat([x, beyond], 1), 1) - right).mean()


NETS: dict[str, Callable[[], nn.Module]] = {
    "cifar10-quick.yaml": quick,
    "cifar10-resnet20.yaml": resnet20,
    "cifar10-resnet9.yaml": resnet9,
    "inception-small.yaml": inception,
    "mnist-best.yaml": mnist_best,
    "lenet5-1998.yaml": lenet5_1998,
}
# Of those whose loss is not plain cross-entropy.
LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mnist-best.yaml": partial(F.cross_entropy, label_smoothing=0.05),
    "lenet5-1998.yaml": map_loss,
}


def captured(
    step: Callable[[], Any], optimizer: torch.optim.Optimizer
) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A step as a CUDA graph, and its result, which each replay overwrites.

    A graph does not hold what it reads: whoever replays it must.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        result = step()
    return graph, result
