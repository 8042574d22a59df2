"""Run the cases with PyTorch in float32 and write errors.json: how far it is from float64.

Needs torch and is never run by the suite: ``python -m tests.support.precision.make_errors``. Real
MNIST is read from $DNNSTACK_DATA.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from .hard import errors, exact, outputs, rounded_up
from .precision_cases import CASES
from .torch_ops import run

HERE = Path(__file__).parent


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {}
    for name, make in CASES.items():
        draft = make()
        want, got = exact(draft), run(draft)
        found[name] = {
            tensor.name: [rounded_up(e) for e in errors(draft, tensor, got[tensor], want)]
            for tensor in outputs(draft)
        }
    text = {"torch": torch.__version__, "errors": found}
    (HERE / "errors.json").write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
