"""A training step of PyTorch for a config, beside which ours is timed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.base import Backend
from ..common.errors import BackendUnavailableError, ExportError
from ..layers.composite import walk
from ..training.session import Session
from ..training.timing import Series
from .torch_file import Writer, is_written
from .torch_modules import SOURCES

_RULES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
_OPTIONS = ("momentum", "nesterov", "betas", "eps", "weight_decay")
# Their network is ours, their loss and rule are PyTorch's own; samples lie ready on the device.
_PROGRAM = """
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import nn

{classes}

def steps(state, x, y, loss, rule, options, device, threads, precision, compiled):
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    net = {net}
    net.load_state_dict({{name: torch.from_numpy(array) for name, array in state.items()}})
    x, y = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    net = net.to(device)
    if device == "cuda" and x.dim() == 4:
        net, x = (each.to(memory_format=torch.channels_last) for each in (net, x))
    optimizer = getattr(torch.optim, rule)(net.parameters(), lr=0.0, fused=True, **options)

    def forward():
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            return F.cross_entropy(net(x), y, **loss)

    found = torch.compile(forward) if compiled else forward

    def run(count):
        begin = perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            found().backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return (perf_counter() - begin) / count

    run(2)
    return run
"""


def torch_steps() -> Callable[[Session, Backend, Callable[[str], None]], dict[str, Series]]:
    """What makes PyTorch's steps of a session. Raises BackendUnavailableError without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        raise BackendUnavailableError(
            "PyTorch is not installed, so there is nothing to compare with: "
            "python3 -m pip install torch"
        )
    return _steps


def _steps(session: Session, backend: Backend, notice: Callable[[str], None]) -> dict[str, Series]:
    """From the same weights: ``torch``, as it is called, and ``torch.compile``; one that fails is
    left out, which ``notice`` is told.

    They have neither augmentation nor groups, clipping and averages, and a rate of zero. Raises
    ExportError for what has no translation.
    """
    config, network = session.setup.config, session.network
    layers = network.scoring()
    kinds = [("layer", each.kind) for each in walk(layers) if not is_written(each)]
    kinds += [("loss", network.loss.kind)] * (network.loss.kind != "cross_entropy")
    kinds += [("optimizer", config.optimizer.type)] * (config.optimizer.type not in _RULES)
    for what, kind in kinds[:1]:
        raise ExportError(
            f"{what} '{kind}': is not translated to PyTorch; compare with layers of the package, "
            f"the loss cross_entropy and an optimizer of {', '.join(_RULES)}"
        )
    arrays = {t.name: array for t, array in network.initial_values(config.seed).items()}
    net = Writer(layers, arrays).net
    program: dict[str, Any] = {"__name__": "compared"}
    text = _PROGRAM.format(
        classes="\n".join(SOURCES.values()), net=net.text.replace("\n", "\n    ")
    )
    drawn, size, loss = np.random.default_rng(1), session.plan.batch_size, config.loss.options()
    targets: Any = drawn.integers(0, network.classes, size)
    if network.loss.target != "class":
        targets = np.eye(network.classes, dtype=np.float32)[targets]
    given = (
        {name: np.array(array) for name, array in net.state.items()},
        drawn.standard_normal((size, *network.input_shape), np.float32),
        targets,
        {key: loss[key] for key in ("label_smoothing", "reduction")},
        _RULES[config.optimizer.type],
        {k: v for k, v in config.optimizer.rule_options().items() if k in _OPTIONS},
        "cuda" if backend.name == "cuda" else "cpu",
        max(backend.waiting_threads, 1),
        backend.precision(config.run.precision),
    )
    found: dict[str, Series] = {}
    for name in ("torch", "torch.compile"):
        try:
            exec(compile(text, "compared", "exec"), program)
            found[name] = program["steps"](*given, name != "torch")
        # Whatever it is that PyTorch, or a compiler, lacks.
        except Exception as error:
            why = str(error).strip().partition("\n")[0]
            notice(f"{name} fails, so it is left out: {type(error).__name__}: {why}")
        else:
            notice(f"beside {name} of PyTorch {program['torch'].__version__}")
    return found
