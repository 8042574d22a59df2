"""airbench94 and its variant with Muon for PyTorch, for airbench.py.

The recipes of Keller Jordan's cifar10-airbench (legacy/airbench94.py, airbench94_muon.py): half
precision with batch norm in float32, channels-last, data on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch_nets import Scaled

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TRANSLATE, SMOOTHING, WHITENED, BIAS_EPOCHS = 2, 0.2, 5000, 3
Scheduled = tuple[torch.optim.Optimizer, Callable[[int], float]]


class Pictures:
    """A data set on the device; iterating gives the batches of the next epoch."""

    def __init__(self, images: Any, labels: Any, batch: int, device: str, dtype: Any) -> None:
        raw = torch.from_numpy(np.array(images)).to(device)
        self.pixels = (raw.to(dtype) / 255).contiguous(memory_format=torch.channels_last)
        self.labels = torch.from_numpy(np.array(labels)).long().to(device)
        self.batch = batch
        self.mean = torch.tensor(MEAN, device=device, dtype=dtype).view(1, 3, 1, 1)
        self.deviation = torch.tensor(DEVIATION, device=device, dtype=dtype).view(1, 3, 1, 1)
        self.epoch = 0
        self._padded: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.pixels) // self.batch

    def normalized(self, count: int | None = None) -> torch.Tensor:
        return (self.pixels[:count] - self.mean) / self.deviation

    def restart(self) -> None:
        self.epoch, self._padded = 0, None

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self._padded is None:
            flipped = flip_some(self.normalized())
            self._padded = F.pad(flipped, (TRANSLATE,) * 4, "reflect")
        images = cropped(self._padded)
        if self.epoch % 2 == 1:
            images = images.flip(-1)
        self.epoch += 1
        order = torch.randperm(len(images), device=images.device)
        for step in range(len(self)):
            chosen = order[step * self.batch : (step + 1) * self.batch]
            yield images[chosen], self.labels[chosen]


def flip_some(images: torch.Tensor) -> torch.Tensor:
    mask = (torch.rand(len(images), device=images.device) < 0.5).view(-1, 1, 1, 1)
    return torch.where(mask, images.flip(-1), images)


def cropped(padded: torch.Tensor) -> torch.Tensor:
    """A window of each picture, at one of (2 TRANSLATE + 1)^2 places."""
    side = padded.shape[-1] - 2 * TRANSLATE
    reach = 2 * TRANSLATE + 1
    corners = torch.randint(reach, (len(padded), 2), device=padded.device)
    out = torch.empty(
        (len(padded), 3, side, side), device=padded.device, dtype=padded.dtype
    ).contiguous(memory_format=torch.channels_last)
    for y in range(reach):
        for x in range(reach):
            mask = (corners[:, 0] == y) & (corners[:, 1] == x)
            out[mask] = padded[mask, :, y : y + side, x : x + side]
    return out


def norm(channels: int) -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    made.weight.requires_grad = False
    return made


class Filters(nn.Conv2d):
    """3x3 filters without bias, the first of which copy a channel at the beginning."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding="same", bias=False)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.dirac_(self.weight.data[: self.in_channels])


class Group(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            *(Filters(inputs, outputs), nn.MaxPool2d(2), norm(outputs), nn.GELU()),
            *(Filters(outputs, outputs), norm(outputs), nn.GELU()),
        )


def network(recipe: str, dtype: Any, device: str) -> nn.Sequential:
    whitening = nn.Conv2d(3, 24, 2, bias=True)
    whitening.weight.requires_grad = False
    head = nn.Linear(256, 10, bias=False)
    if recipe == "sgd":
        nn.init.zeros_(whitening.bias)
    else:
        head.weight.data.mul_(1 / head.weight.data.std())
    net = nn.Sequential(
        *(whitening, nn.GELU(), Group(24, 64), Group(64, 256), Group(256, 256)),
        *(nn.MaxPool2d(3), nn.Flatten(), head, Scaled(1 / 9 if recipe == "sgd" else 1 / 256)),
    )
    net = net.to(device).to(memory_format=torch.channels_last)
    for module in net.modules():
        if not isinstance(module, nn.BatchNorm2d) and not list(module.children()):
            module.to(dtype)
    return net


def whiten(layer: nn.Conv2d, images: torch.Tensor) -> None:
    patches = images.unfold(2, 2, 1).unfold(3, 2, 1)
    flat = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, 12).float()
    values, vectors = torch.linalg.eigh(flat.T @ flat / len(flat), UPLO="U")
    filters = (vectors.T / torch.sqrt(values[:, None] + 5e-4)).flip(0).view(12, 3, 2, 2)
    layer.weight.data[:] = torch.cat([filters, -filters])


def newton_schulz(g: torch.Tensor, steps: int = 3, eps: float = 1e-7) -> torch.Tensor:
    x = g.bfloat16()
    x = x / (x.norm() + eps)
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    for _ in range(steps):
        a = x @ x.T
        b = -4.7750 * a + 2.0315 * a @ a
        x = 3.4445 * x + b @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters: Any, lr: float, momentum: float, iterate: Any) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum})
        self.iterate = iterate

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            momentum = group["momentum"]
            for p in group["params"]:
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p.grad)
                buffer = state["momentum"]
                buffer.mul_(momentum).add_(p.grad)
                g = p.grad.add(buffer, alpha=momentum)
                p.mul_(len(p) ** 0.5 / p.norm())
                update = self.iterate(g.reshape(len(g), -1)).view(g.shape)
                p.add_(update, alpha=-group["lr"])


class Lookahead:
    """Slow weights of everything that floats, running statistics too."""

    def __init__(self, net: nn.Module) -> None:
        self._net = net
        self._slow = {name: value.clone() for name, value in net.state_dict().items()}

    def update(self, decay: float) -> None:
        for slow, fast in zip(self._slow.values(), self._net.state_dict().values(), strict=True):
            if fast.is_floating_point():
                slow.lerp_(fast, 1 - decay)
                fast.copy_(slow)


def views(net: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Scores over a picture, its mirror image, and both moved by a pixel either way."""

    def mirrored(part: torch.Tensor) -> torch.Tensor:
        return 0.5 * net(part) + 0.5 * net(part.flip(-1))

    padded = F.pad(x, (1,) * 4, "reflect")
    moved = [padded[:, :, at : at + 32, at : at + 32] for at in (0, 2)]
    average = torch.stack([mirrored(part) for part in moved]).mean(0)
    return 0.5 * mirrored(x) + 0.5 * average


class Theirs:
    """The recipe, ready to be trained with any seed; ``compile``: by torch.compile."""

    def __init__(self, options: dict[str, Any], train: Any, test: Any, batch: int) -> None:
        self.recipe, self.device = options["recipe"], options["device"]
        self.compiled, self.mode = options["peer"] == "compile", options["mode"]
        self.dtype = torch.half if self.device == "cuda" else torch.float32
        torch.backends.cudnn.benchmark = True
        self.train_set = Pictures(train.images, train.labels, batch, self.device, self.dtype)
        size = min(2000, len(test.labels))
        self.test_set = Pictures(test.images, test.labels, size, self.device, self.dtype)
        self.epochs = 9.9 if self.recipe == "sgd" else 8
        if options["tiny"]:
            self.epochs = 3.5
        # One network for all runs: another would be compiled again.
        self.net = network(self.recipe, self.dtype, self.device)
        compiled: Any = self._compile
        self.forward = compiled(self.net, self.mode)
        # It is called for one filter after the other, whose results a graph would overwrite.
        self.iterate = compiled(newton_schulz, "default")

    def _compile(self, function: Any, mode: str) -> Any:
        if not self.compiled:
            return function
        return torch.compile(function, mode=mode, dynamic=False)

    def versions(self) -> str:
        text = f"PyTorch {torch.__version__}"
        if self.device == "cuda":
            text += f", cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"
        return text

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return perf_counter()

    def optimizers(self, net: nn.Sequential, total: int) -> list[Scheduled]:
        """Each with the factor of its rates after so many steps."""
        batch = self.train_set.batch
        fused = self.device == "cuda"
        named = list(net.named_parameters())
        biases = [p for n, p in named if n.endswith("bias") and n != "0.bias" and p.requires_grad]
        if self.recipe == "sgd":
            unit = 1024 * (1 + 1 / (1 - 0.85))
            lr, decay = 11.5 / unit, 0.0153 * batch / unit
            others = [p for n, p in named if n == "0.bias" or (p.dim() > 1 and p.requires_grad)]
            groups = [
                {"params": biases, "lr": 64 * lr, "weight_decay": decay / (64 * lr)},
                {"params": others, "lr": lr, "weight_decay": decay / lr},
            ]
            sgd = torch.optim.SGD(groups, momentum=0.85, nesterov=True, fused=fused)
            peak = int(0.23 * total)

            def triangle(step: int) -> float:
                if step < peak:
                    return 0.2 + 0.8 * step / peak
                return 1 - 0.93 * (step - peak) / (total - peak)

            return [(sgd, triangle)]
        decay = 2e-6 * batch
        filters = [p for p in net.parameters() if p.dim() == 4 and p.requires_grad]
        head = [p for p in net.parameters() if p.dim() == 2]
        end = BIAS_EPOCHS * len(self.train_set)

        def rest(params: Any, lr: float) -> torch.optim.SGD:
            group = {"params": params, "lr": lr, "weight_decay": decay / lr}
            return torch.optim.SGD([group], momentum=0.85, nesterov=True, fused=fused)

        return [
            (rest([net[0].bias], 0.053), lambda step: max(1 - step / end, 0.0)),
            (rest(biases, 0.053), lambda step: 1 - step / total),
            (rest(head, 0.67), lambda step: 1 - step / total),
            (Muon(filters, 0.24, 0.6, self.iterate), lambda step: 1 - step / total),
        ]

    def train(self, seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        # Fresh values in the tensors that the compiled function knows.
        fresh = network(self.recipe, self.dtype, self.device)
        self.net.load_state_dict(fresh.state_dict())
        self.net[0].bias.requires_grad = True
        self.train_set.restart()
        total = math.ceil(len(self.train_set) * self.epochs)
        pairs = self.optimizers(self.net, total)
        rates = [[group["lr"] for group in optimizer.param_groups] for optimizer, _ in pairs]
        begin = self._now()
        whiten(self.net[0], self.train_set.normalized(WHITENED))
        whitened = self._now()
        lookahead = Lookahead(self.net) if self.recipe == "sgd" else None
        step = 0
        self.net.train()
        while step < total:
            self.net[0].bias.requires_grad = self.train_set.epoch < BIAS_EPOCHS
            for x, y in self.train_set:
                for (optimizer, factor), first in zip(pairs, rates, strict=True):
                    for group, lr in zip(optimizer.param_groups, first, strict=True):
                        group["lr"] = lr * factor(step)
                scores = self.forward(x)
                F.cross_entropy(scores, y, label_smoothing=SMOOTHING, reduction="sum").backward()
                for optimizer, _ in pairs:
                    optimizer.step()
                self.net.zero_grad(set_to_none=True)
                step += 1
                if lookahead is not None and step % 5 == 0:
                    lookahead.update(0.95**5 * (step / total) ** 3)
                if step == total:
                    break
        if lookahead is not None:
            lookahead.update(1.0)
        trained = self._now()
        accuracy = self.evaluate()
        end = self._now()
        parts = {
            "whitening": whitened - begin,
            "training": trained - whitened,
            "evaluation": end - trained,
        }
        return {"accuracy": accuracy, "seconds": end - begin, "parts": parts}

    @torch.no_grad()
    def evaluate(self) -> float:
        self.net.eval()
        images, size = self.test_set.normalized(), self.test_set.batch
        scores = [views(self.forward, part) for part in images.split(size)]
        return (torch.cat(scores).argmax(1) == self.test_set.labels).float().mean().item()
