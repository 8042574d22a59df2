"""What recipes of packaged configs reach in PyTorch, on the same files: beside results.py.

    python3 benchmarks/torch_recipes.py cifar10-quick.yaml cifar10-resnet9.yaml --data-dir ~/data

The networks (torch_nets.py) are written as PyTorch users write them; batch size, rates, momentum,
decay and the held-back samples are the config's. An epoch is augmented at once on the device; a
step is one captured CUDA graph, in TF32, channels-last. Prints a line a seed, and the mean and
deviation of the accuracy on the test set after the last step. Needs torch beside dnnstack.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median, stdev
from time import perf_counter
from typing import Any

import torch
from dnnstack.configs import RunConfig, load_config
from dnnstack.training.assemble import describe_data, load_data
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import Plan, make_plan
from torch import nn
from torch.nn import functional as F
from torch_nets import LOSSES, NETS, captured

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
EVALUATED = 1000


class Pictures:
    """A training set on the device, and its epochs as the config augments them."""

    def __init__(self, config: RunConfig, images: torch.Tensor, scale: Any, shift: Any) -> None:
        self.scale = torch.tensor(scale, device=DEVICE).view(1, -1, 1, 1)
        self.shift = torch.tensor(shift, device=DEVICE).view(1, -1, 1, 1)
        self.images, self.crop, self.padding, self.flip, self.cutout = images, None, 0, False, 0
        for each in config.data.augment:
            if each.type == "random_crop":
                self.padding = each.padding
                mode = "reflect" if each.mode == "reflect" else "constant"
                self.crop = F.pad(images.half(), (each.padding,) * 4, mode)
            elif each.type == "random_flip":
                self.flip = True
            elif each.type == "cutout":
                self.cutout = each.size
            else:
                raise SystemExit(f"no '{each.type}' here")

    def normalized(self, images: torch.Tensor) -> torch.Tensor:
        numbers = images.float() * self.scale + self.shift
        return numbers.contiguous(memory_format=torch.channels_last)

    def epoch(self, order: torch.Tensor) -> torch.Tensor:
        """The pictures in this order, each augmented by itself."""
        size, count = self.images.shape[-1], len(order)
        pixels = torch.arange(size, device=DEVICE)
        down, right = (self._draw(count, 2 * self.padding) for _ in range(2))
        columns = pixels.expand(count, size)
        if self.flip:
            flipped = self._draw(count, 1).bool()
            columns = torch.where(flipped[:, None], size - 1 - columns, columns)
        source = self.images if self.crop is None else self.crop
        rows = (down[:, None] + pixels)[:, None, :, None]
        channels = torch.arange(source.shape[1], device=DEVICE)[None, :, None, None]
        across = (right[:, None] + columns)[:, None, None, :]
        found = self.normalized(source[order[:, None, None, None], channels, rows, across])
        if self.cutout:
            y, x = (self._draw(count, size - self.cutout)[:, None] for _ in range(2))
            tall = (pixels >= y) & (pixels < y + self.cutout)
            wide = (pixels >= x) & (pixels < x + self.cutout)
            found = found * ~(tall[:, None, :, None] & wide[:, None, None, :])
        return found

    def _draw(self, count: int, most: int) -> torch.Tensor:
        return torch.randint(0, most + 1, (count,), device=DEVICE)


class Training:
    """Steps of one network, captured once as a CUDA graph and begun anew for every seed."""

    def __init__(self, config: RunConfig, plan: Plan, make: Callable[[], nn.Module]) -> None:
        self.plan, self.make = plan, make
        self.model = make().to(DEVICE).to(memory_format=torch.channels_last)
        rule = config.optimizer
        factors = {kind: each.lr_factor for each in rule.groups or () for kind in each.kind}
        self.factors, groups = [], []
        for kind in ("kernel", "bias"):
            named = self.model.named_parameters()
            held = [p for name, p in named if name.endswith("bias") == (kind == "bias")]
            if held:
                self.factors.append(factors.get(kind, 1.0))
                groups.append({"params": held, "lr": torch.zeros((), device=DEVICE) if CUDA else 0})
        self.optimizer = torch.optim.SGD(
            groups,
            momentum=rule.momentum,
            nesterov=rule.nesterov,
            weight_decay=rule.weight_decay,
            fused=True,
        )
        self.x = torch.zeros(plan.batch_size, 3, 32, 32, device=DEVICE)
        self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.y = torch.zeros(plan.batch_size, dtype=torch.int64, device=DEVICE)
        self.launch: Callable[[], Any] = self._step
        if CUDA:
            graph, _ = captured(self._step, self.optimizer)
            self.launch = graph.replay

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.model(self.x), self.y).backward()
        self.optimizer.step()

    def restart(self, seed: int) -> None:
        """A fresh network, no momentum."""
        torch.manual_seed(seed)
        self.model.load_state_dict(self.make().state_dict())
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()

    def run(self, pictures: Pictures, labels: torch.Tensor) -> float:
        """Seconds of all steps."""
        plan = self.plan
        self.model.train()
        begin = perf_counter()
        for step in range(plan.total_steps):
            turn = step % plan.steps_per_epoch
            if turn == 0:
                order = torch.randperm(len(labels), device=DEVICE)
                epoch, answers = pictures.epoch(order), labels[order]
            chosen = slice(turn * plan.batch_size, (turn + 1) * plan.batch_size)
            self.x.copy_(epoch[chosen])
            self.y.copy_(answers[chosen])
            rate = float(plan.rates[step])
            for group, factor in zip(self.optimizer.param_groups, self.factors, strict=True):
                if CUDA:
                    group["lr"].fill_(factor * rate)
                else:
                    group["lr"] = factor * rate
            self.launch()
        if CUDA:
            torch.cuda.synchronize()
        return perf_counter() - begin

    @torch.no_grad()
    def right(self, pictures: torch.Tensor, labels: torch.Tensor) -> int:
        self.model.eval()
        found = [
            (self.model(x).argmax(1) == y).sum()
            for x, y in zip(pictures.split(EVALUATED), labels.split(EVALUATED), strict=True)
        ]
        return int(torch.stack(found).sum())


def tensors(data: Any, chosen: Any = slice(None)) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.from_numpy(data.images[chosen].copy()).to(DEVICE)
    return images, torch.from_numpy(data.labels[chosen].copy()).long().to(DEVICE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="+", choices=[name for name in NETS if name not in LOSSES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-dir", type=Path, required=True)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    rows = []
    for name in options.configs:
        config = load_config(name, options.overrides).config
        train, test = (load_data(config, split, options.data_dir) for split in ("train", "test"))
        scaling = preprocessing(config, describe_data(config))
        tested, answers = tensors(test)
        training = Training(config, make_plan(config, len(train)), NETS[name])
        accuracies, times = [], []
        for seed in range(1, options.seeds + 1):
            # Which samples are held back goes by the seed, as for `dnnstack train`.
            seeded = load_config(name, [*options.overrides, f"seed={seed}"]).config
            images, labels = tensors(train, make_plan(seeded, len(train)).train)
            pictures = Pictures(config, images, scaling.scale, scaling.shift)
            training.restart(seed)
            seconds = training.run(pictures, labels)
            right = training.right(pictures.normalized(tested), answers)
            accuracies.append(100 * right / len(answers))
            times.append(seconds)
            print(f"{name} seed {seed}: {accuracies[-1]:.2f}%, {seconds:.1f} s", flush=True)
        spread = f" +- {stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
        rows.append(f"{name}: {mean(accuracies):.2f}%{spread}, {median(times):.0f} s")
    device = torch.cuda.get_device_name() if CUDA else "CPU"
    print("\n" + "\n".join(rows) + f"\nPyTorch {torch.__version__}, {device}")


if __name__ == "__main__":
    main()
