"""Train the golden nets with PyTorch in float64 and write losses.json. Needs torch; never run by
the suite: ``python -m tests.support.golden.make_golden``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import golden_nets as nets


class Connected(nn.Module):
    """A convolution whose filters see the maps of a table alone; weight: (connections, kh, kw)."""

    def __init__(self, channels: int, options: dict[str, Any]) -> None:
        super().__init__()
        table, size = options["connections"], options["kernel_size"]
        self.pairs = [(o, c) for o, maps in enumerate(table) for c in maps]
        self.shape = (len(table), channels, size, size)
        self.weight = nn.Parameter(torch.zeros(len(self.pairs), size, size))
        self.bias = nn.Parameter(torch.zeros(len(table)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        filters = torch.zeros(self.shape, dtype=x.dtype)
        outputs, inputs = zip(*self.pairs, strict=True)
        filters = filters.index_put((torch.tensor(outputs), torch.tensor(inputs)), self.weight)
        return nn.functional.conv2d(x, filters, self.bias)


class Subsampling(nn.Module):
    """A coefficient times the sum over 2x2, plus a bias."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = nn.functional.avg_pool2d(x, 2, divisor_override=1)
        return total * self.weight[:, None, None] + self.bias[:, None, None]


class Residual(nn.Module):
    """body(x) + shortcut(x)."""

    def __init__(self, options: dict[str, Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.body, (channels, height, _) = stack(options["body"], shape)
        self.way, self.stride, self.added = nn.Sequential(), 1, 0
        shortcut = options.get("shortcut", "identity")
        if isinstance(shortcut, list):
            self.way, _ = stack(shortcut, shape)
        elif shortcut == "projection":
            step = -(-shape[1] // height)
            self.way = nn.Conv2d(shape[0], channels, 1, step, bias=False)
        elif shortcut == "padding":
            self.stride, self.added = -(-shape[1] // height), channels - shape[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        way = self.way(x)[:, :, :: self.stride, :: self.stride]
        return self.body(x) + nn.functional.pad(way, (0, 0, 0, 0, 0, self.added))


class Concat(nn.Module):
    def __init__(self, options: dict[str, Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(stack(branch, shape)[0] for branch in options["branches"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class LayerNorm(nn.LayerNorm):
    """Of the channels of each pixel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class LayerScale(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight[:, None, None]


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, options: dict[str, Any]) -> None:
        super().__init__()
        gate = nn.Hardsigmoid() if options.get("gate") == "hardsigmoid" else nn.Sigmoid()
        down, up = nn.Linear(channels, options["units"]), nn.Linear(options["units"], channels)
        self.share = nn.Sequential(down, nn.ReLU(), up, gate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.share(x.mean((2, 3)))[:, :, None, None]


class PatchEmbedding(nn.Module):
    def __init__(self, options: dict[str, Any], shape: tuple[int, ...]) -> None:
        super().__init__()
        units, size = options["units"], options["patch_size"]
        tokens = shape[1] // size[0] * (shape[2] // size[1])
        self.position = nn.Parameter(torch.zeros(units, tokens))
        self.patches = nn.Conv2d(shape[0], units, size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.patches(x).flatten(2) + self.position).unsqueeze(2)


class Attention(nn.Module):
    def __init__(self, units: int, heads: int, use_bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Conv2d(units, 3 * units, 1, bias=use_bias)
        self.out = nn.Conv2d(units, units, 1, bias=use_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = (part.flatten(2).mT for part in self.qkv(x).chunk(3, 1))
        parts = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in tokens)
        mixed = nn.functional.scaled_dot_product_attention(*parts)
        return self.out(mixed.transpose(1, 2).flatten(2).mT.unsqueeze(2))


class ScaledTanh(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.7159 * torch.tanh(2.0 / 3.0 * x)


def loss_of(net: nets.Net, scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The loss of a batch; wanted: the classes."""
    rows, p = torch.arange(len(wanted)), torch.softmax(scores, 1)
    match net.loss:
        case "mse":
            onehot = nn.functional.one_hot(wanted, nets.CLASSES).double()
            return nn.functional.mse_loss(scores, onehot)
        case "hinge":
            return nn.functional.multi_margin_loss(scores, wanted)
        case "one_minus_p":
            return (1.0 - p[rows, wanted]).mean()
        case "squared_distance":
            away = torch.arange(nets.CLASSES)[None] - wanted[:, None]
            return (p * away**2).sum(1).mean()
        case "rbf_map":
            rubbish = torch.full((len(scores), 1), -10.0, dtype=scores.dtype)
            every = torch.logsumexp(torch.cat([scores, rubbish], 1), 1)
            return (every - scores[rows, wanted]).mean()
    return nn.functional.cross_entropy(scores, wanted, label_smoothing=net.label_smoothing)


def module(kind: str, options: dict[str, Any], shape: tuple[int, ...]) -> nn.Module:
    """PyTorch's layer for ours; shape: the input's, without the batch."""
    match kind:
        case "dense":
            return nn.Linear(shape[0], options["units"], options.get("use_bias", True))
        case "residual":
            return Residual(options, shape)
        case "concat":
            return Concat(options, shape)
        case "conv2d" if "connections" in options:
            return Connected(shape[0], options)
        case "conv2d":
            ours = ("filters", "kernel_size", "use_bias", "algorithm")
            rest = {k: v for k, v in options.items() if k not in ours}
            rest["bias"] = options.get("use_bias", True)
            return nn.Conv2d(shape[0], options["filters"], options["kernel_size"], **rest)
        case "pad2d":
            return nn.ConstantPad2d(options["padding"], options["value"])
        case "scaled_subsampling":
            return Subsampling(shape[0])
        case "batch_norm":
            made = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
            return made(shape[0], options["eps"])
        case "group_norm":
            return nn.GroupNorm(options["groups"], shape[0], options["eps"])
        case "layer_norm":
            return LayerNorm(shape[0], options["eps"])
        case "layer_scale":
            return LayerScale(shape[0])
        case "squeeze_excite":
            return SqueezeExcite(shape[0], options)
        case "patch_embedding":
            return PatchEmbedding(options, shape)
        case "multi_head_attention":
            return Attention(shape[0], **options)
        case "lrn":
            return nn.LocalResponseNorm(**options)
        case "max_pool2d":
            return nn.MaxPool2d(
                options["pool_size"],
                options.get("stride"),
                ceil_mode=options.get("ceil_mode", False),
            )
        case "avg_pool2d":
            return nn.AvgPool2d(
                options["pool_size"],
                options["stride"],
                options["padding"],
                count_include_pad=False,
            )
        case "global_avg_pool2d":
            return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        case "leaky_relu":
            return nn.LeakyReLU(options["negative_slope"])
        case "elu":
            return nn.ELU(options["alpha"])
    plain = {
        "flatten": nn.Flatten,
        "relu": nn.ReLU,
        "sigmoid": nn.Sigmoid,
        "tanh": nn.Tanh,
        "gelu": nn.GELU,
        "silu": nn.SiLU,
        "softplus": nn.Softplus,
        "relu6": nn.ReLU6,
        "hardsigmoid": nn.Hardsigmoid,
        "hardswish": nn.Hardswish,
        "mish": nn.Mish,
        "scaled_tanh": ScaledTanh,
        "softmax": nn.Identity,  # part of PyTorch's cross entropy
    }
    return plain[kind]()


def stack(
    layers: list[tuple[str, dict[str, Any]]], shape: tuple[int, ...]
) -> tuple[nn.Sequential, tuple[int, ...]]:
    """The layers one after the other, and the shape that they give."""
    found: list[nn.Module] = []
    x = torch.zeros(2, *shape)
    for kind, options in layers:
        found.append(module(kind, options, tuple(x.shape[1:])))
        x = found[-1](x)
    return nn.Sequential(*found), tuple(x.shape[1:])


def losses(net: nets.Net) -> list[float]:
    """The loss of every step."""
    model = stack(net.layers, net.picture)[0].double()
    with torch.no_grad():
        for place, p in enumerate(model.parameters()):
            p.copy_(torch.from_numpy(nets.weights(tuple(p.shape), place)))
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=float(torch.tensor(net.lr)),  # the rate as float32 holds it
        momentum=net.momentum,
        nesterov=net.nesterov,
        weight_decay=net.weight_decay,
    )
    pictures = torch.from_numpy(nets.images(net.picture)).double() * nets.SCALE + nets.SHIFT
    wanted = torch.from_numpy(nets.labels()).long()
    found = []
    for step in range(nets.STEPS):
        rows = nets.order()[step * nets.BATCH : (step + 1) * nets.BATCH].tolist()
        loss = loss_of(net, model(pictures[rows]), wanted[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


if __name__ == "__main__":
    table = {
        "made_with": f"PyTorch {torch.__version__} on the CPU in float64",
        "losses": {name: losses(net) for name, net in nets.NETS.items()},
    }
    Path(__file__).with_name("losses.json").write_text(json.dumps(table, indent=1) + "\n")
