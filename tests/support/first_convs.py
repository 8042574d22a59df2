"""First convolutions of grey pictures with a max-pool behind: any geometry, and their section."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
from dnnstack.backends.cuda.fused import first_conv
from dnnstack.graph import ops
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor

from .op_draft import Draft


class Drawn:
    """A geometry with anything odd: ``values`` is what its kernels are compiled with."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.bf16, self.n = seed % 2 > 0, dice.randint(1, 5)
        kernel = (dice.choice([1, 2, 3, 5]), dice.choice([1, 3, 4, 5]))
        border = dice.randint(0, min(kernel) - 1)
        height, width = (dice.randint(size + 1, 15) for size in kernel)
        self.window = Window(kernel, padding=(border,) * 4)
        rows, columns = self.window.output(height, width)
        filters = dice.randint(1, 40)
        self.stored = -(-filters // 4) * 4 + dice.choice([0, 4])
        self.relu = dice.random() < 0.5
        ends = {"x": (self.n, 1, height, width), "w": (filters, 1, *kernel)}
        tensors = {name: SimpleNamespace(shape=shape) for name, shape in ends.items()}
        activation = "relu" if self.relu else None
        self.conv = SimpleNamespace(**tensors, window=self.window, activation=activation)
        shape = (self.n, filters, rows // 2, columns // 2)
        self.pool = SimpleNamespace(y=SimpleNamespace(shape=shape))
        self.values = first_conv._tensor_numbers(self.conv, self.pool, self.stored)

    def section(self) -> tuple[Draft, list[Tensor]]:
        """Convolution, ReLU and max-pool and their gradients, on values that bfloat16 holds; what
        they are to be."""
        draft, halves = Draft(np.random.default_rng(self.n), "normal"), Window((2, 2), (2, 2))
        graph, small = draft.graph, self.pool.y.shape
        filters, rows, columns = small[1], *self.window.output(*self.conv.x.shape[2:])
        kind = "relu" if self.relu else None
        x, w = draft.floats("x", *self.conv.x.shape), draft.floats("w", *self.conv.w.shape)
        b = draft.floats("b", filters)
        y, p = graph.tensor("y", (self.n, filters, rows, columns)), draft.out("p", *small)
        graph.add(ops.Conv2d(x=x, w=w, y=y, window=self.window, bias=b, activation=kind))
        graph.add(ops.Pool2d(x=y, y=p, window=halves, kind="max"))
        dp = draft.floats("dp", *small)
        if self.relu:
            masked = graph.tensor("masked", small)
            graph.add(ops.ActivationBackward(value=p, dy=dp, dx=masked, kind="relu"))
            dp = masked
        dy, dw = graph.tensor("dy", y.shape), draft.gradient("w", *w.shape)
        db = draft.gradient("b", filters)
        graph.add(ops.Pool2dBackward(x=y, y=p, dy=dp, dx=dy, window=halves, kind="max"))
        graph.add(ops.Conv2dBackwardFilter(x=x, dy=dy, dw=dw, window=self.window, bias_grad=db))
        for value in draft.values.values():
            value.view(np.uint32)[...] &= 0xFFFF0000
        return draft, [p, dw, db]
