"""A step by the calls of a lecture beside the fastest, as one captured graph and call by call.

    python3 benchmarks/lecture_calls.py

Prints a table for docs/gpu.md: microseconds of a step, the median of timings in turn.
"""

from __future__ import annotations

import time
from statistics import median

import gpu_worker
from gpu_worker import NETS, WARM_UP, Built, ours

# The slides know no momentum and no decay.
gpu_worker.MOMENTUM = gpu_worker.DECAY = 0.0

WAYS = {
    "the fastest calls, tf32": "tf32/",
    "the same, fp32": "fp32/",
    "`run.fusion: false`, fp32": "fp32/plain",
    "`run.calls: lecture`": "fp32/lecture",
    "the same, every batch copied": "fp32/lecture,copied",
}
COLUMNS = [(net, end) for net in ("mlp-256", "lenet-64") for end in ("", ",calls")]
STEPS, ROUNDS = 400, 7


def microseconds(built: Built) -> float:
    built.run(WARM_UP)
    begin = time.perf_counter()
    done = built.run(STEPS)
    return 1e6 * (time.perf_counter() - begin) / done


def main() -> None:
    rows = {name: [ours(NETS[net], way + end, "cuda") for net, end in COLUMNS]
            for name, way in WAYS.items()}  # fmt: skip
    turns = [{name: [*map(microseconds, row)] for name, row in rows.items()} for _ in range(ROUNDS)]
    print(rows["the same, fp32"][0].versions)
    titles = (f"{net}, {'call by call' if end else 'one graph'}" for net, end in COLUMNS)
    print(f"| us | {' | '.join(titles)} |\n{'| --- ' * (1 + len(COLUMNS))}|")
    for name in rows:
        each = map(median, zip(*(turn[name] for turn in turns), strict=True))
        print(f"| {name} | {' | '.join(f'{us:.1f}' for us in each)} |")


if __name__ == "__main__":
    main()
