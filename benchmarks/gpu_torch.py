"""PyTorch's training steps for gpu_peers.py.

Pictures lie on the device as numbers ready to use, in the precision and layout of the variant, so
that a batch is one gather. SGD is the fused one; its learning rate is a tensor on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch_nets
from cpu_peers import torch_net
from gpu_worker import DECAY, MOMENTUM, RATE, Built, Net, data, order, rate
from torch import nn
from torch.nn.functional import cross_entropy

STEPS = 1 << 18


class Job:
    """A network, its optimizer and its data in one precision and layout."""

    def __init__(self, net: Net, variant: str, device: str) -> None:
        precision, _, layout = variant.partition("/")
        torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.allow_tf32 = precision != "fp32"
        torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(1)
        self.net, self.device, self.nhwc = net, device, layout.startswith("nhwc")
        self.bf16 = precision == "bf16"
        self.model = model(net).to(device)
        self.criterion = torch_nets.LOSSES.get(net.config, cross_entropy)
        if self.nhwc:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.rate = torch.tensor(RATE, device=device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=self.rate if device == "cuda" else RATE,
            momentum=MOMENTUM,
            weight_decay=DECAY,
            fused=True,
        )
        self.last = torch.zeros((), device=device)
        images, labels = data(net)
        pictures = torch.from_numpy(images).to(self.device).float() / 255
        # Rows of NHWC pictures are gathered as they lie, then seen as NCHW.
        pictures = pictures.permute(0, 2, 3, 1).contiguous() if self.nhwc else pictures
        self.pictures = pictures.bfloat16() if self.bf16 else pictures
        self.labels = torch.from_numpy(labels).long().to(self.device)
        self.order = torch.from_numpy(order(self.net)).long().to(self.device)

    def batch(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.pictures.index_select(0, index)
        return (x.permute(0, 3, 1, 2) if self.nhwc else x), self.labels.index_select(0, index)

    def precision(self) -> Any:
        # The cache of casts would outlive its graph.
        enabled = torch.autocast(self.device, torch.bfloat16, cache_enabled=False)
        return enabled if self.bf16 else nullcontext()

    def step(
        self,
        forward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        x: torch.Tensor,
        y: torch.Tensor,
    ) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with self.precision():
            return self.criterion(self.model(x), y)

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def model(net: Net) -> nn.Module:
    if net.config:
        return torch_nets.NETS[net.config]()
    made: nn.Module = torch_net(net.layers, torch.rand(2, *net.shape))
    return made


def build(peer: str, net: Net, variant: str, device: str) -> Built:
    """``variant``: precision/layout, for captured graphs also /steps in one graph."""
    job = Job(net, variant, device)
    if peer in ("eager", "compile"):
        run = launched(job, peer == "compile")
    else:
        steps = int(variant.split("/")[2]) if variant.count("/") == 2 else 1
        run = captured(job, peer == "compiled graph", steps)
    return Built(run, lambda: float(job.last), versions(device))


def versions(device: str) -> str:
    text = f"PyTorch {torch.__version__}"
    if device == "cuda":
        text += f", cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"
    return text


def launched(job: Job, compiled: bool) -> Callable[[int], int]:
    """Calls one by one; ``compiled``: forward and backward by torch.compile's CUDA graphs."""
    forward = job.loss
    if compiled:
        mode = "reduce-overhead" if job.device == "cuda" else None
        forward = torch.compile(job.loss, mode=mode, dynamic=False)
    done = 0

    def run(steps: int) -> int:
        nonlocal done
        for _ in range(steps):
            if compiled and job.device == "cuda":
                torch.compiler.cudagraph_mark_step_begin()
            job.rate.fill_(rate(done))
            x, y = job.batch(job.order[done % len(job.order)])
            loss = job.step(forward, x, y)
            done += 1
        # A compiled step's own result is overwritten by the next.
        job.last = loss.clone()
        job.wait()
        return steps

    return run


def captured(job: Job, compiled: bool, steps_a_graph: int) -> Callable[[int], int]:
    """The whole step as one CUDA graph; the batch's number and the rate advance on the device.

    With more steps a graph neither advances: it spares the peer those small kernels.
    """
    counter = torch.zeros(1, dtype=torch.int64, device=job.device)
    rates = torch.tensor([rate(t) for t in range(STEPS)], device=job.device)
    # Each run starts at the table's first row, and never comes to its end.
    rows = job.order.repeat(-(-4096 // len(job.order)), 1)
    net = torch.compile(job.model, dynamic=False) if compiled else job.model

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with job.precision():
            return job.criterion(net(x), y)

    def one() -> torch.Tensor:
        x, y = job.batch(rows.index_select(0, counter).view(-1))
        job.rate.copy_(rates.index_select(0, counter).view(()))
        loss = job.step(forward, x, y)
        counter.add_(1)
        return loss

    def several() -> torch.Tensor:
        for at in range(steps_a_graph):
            loss = job.step(forward, *job.batch(rows[at]))
        return loss

    body = one if steps_a_graph == 1 else several
    replay: Callable[[], Any] = body
    if job.device == "cuda":
        graph, job.last = torch_nets.captured(body, job.optimizer)
        replay = graph.replay

    held = (body, rows, rates)

    def run(steps: int) -> int:
        assert held
        counter.zero_()
        turns = -(-steps // steps_a_graph)
        for _ in range(turns):
            result = replay()
        if job.device != "cuda":
            job.last = result
        job.wait()
        return turns * steps_a_graph

    return run
