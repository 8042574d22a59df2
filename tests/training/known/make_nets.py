"""Makes ``losses.json``: the first losses of ``nets.py`` in PyTorch, in float64.

From the root of the sources, with dnnstack installed: python3 -m tests.training.known.make_nets.
"""

from __future__ import annotations

import json

import numpy as np
import torch

from .nets import HERE, NETS, STEPS, net


def losses(name: str) -> list[float]:
    config, network, data, scaling = net(name)
    drawn = network.initial_values(config.seed)
    start = {tensor.name: torch.tensor(v, dtype=torch.float64) for tensor, v in drawn.items()}
    x, y = (np.asarray(each, np.float64) for each in (data.images[:, :, 0, 0], data.labels))
    x = torch.tensor(x * np.array(scaling.scale) + np.array(scaling.shift))
    for value in start.values():
        value.requires_grad_()
    rule, targets = config.optimizer, torch.tensor(y)
    # Tables of rates are float32.
    lr, momentum = float(np.float32(rule.lr)), rule.rule_options()["momentum"]
    sgd = torch.optim.SGD(start.values(), lr, momentum, weight_decay=rule.weight_decay)
    total = config.loss.reduction == "sum"
    kinds = {
        "mse": lambda a, b: 0.5 * torch.nn.functional.mse_loss(a, b),
        "mae": torch.nn.functional.l1_loss,
        "huber": lambda a, b: torch.nn.functional.huber_loss(
            a, b, delta=config.loss.options()["delta"]
        ),
    }
    batch, found = config.data.batch_size, []
    for step in range(STEPS):
        at = step % (len(x) // batch) * batch
        hidden = torch.tanh(x[at : at + batch] @ start["dense_1.weight"].T + start["dense_1.bias"])
        answers = hidden @ start["dense_2.weight"].T + start["dense_2.bias"]
        loss = kinds[config.loss.type](answers, targets[at : at + batch])
        sgd.zero_grad()
        (loss * (batch if total else 1)).backward()
        sgd.step()
        found.append(loss.item())
    return found


if __name__ == "__main__":
    table = {name: losses(name) for name in NETS}
    (HERE / "losses.json").write_text(json.dumps(table, indent=1) + "\n")
