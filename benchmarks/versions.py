"""Training steps of two versions of dnnstack, taking turns in one run.

    git worktree add ../before <commit>
    python3 benchmarks/versions.py ../before . --device cuda --rounds 15

Both are checkouts; each runs in processes of its own (gpu_worker.py of that checkout), with a cache
of its own. A round times each version once, first one ahead, then the other; the table has the
medians and the median over rounds of first / second, with the quartiles. TUNE=none takes the
libraries' choices in both, so that luck in timing them plays no part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from gpu_worker import NETS

VARIANTS = {"cuda": ("tf32", "bf16"), "cpu": ("fp32",)}


class Version:
    """A worker of a checkout for one network."""

    def __init__(self, checkout: Path, net: str, device: str, scratch: Path) -> None:
        package = scratch / "path" / "dnnstack"
        if not package.exists():
            package.mkdir(parents=True)
            for folder in checkout.iterdir():
                if (folder / "__init__.py").exists() and folder.name != "api":
                    (package / folder.name).symlink_to(folder)
            for file in (checkout / "api").glob("*.py"):
                (package / file.name).symlink_to(file)
            # Without it an installed package would be taken; earlier versions have none.
            (package / "__init__.py").touch()
        worker = [sys.executable, str(checkout / "benchmarks" / "gpu_worker.py")]
        environment = {"PYTHONPATH": str(package.parent), "DNNSTACK_CACHE": str(scratch / "cache")}
        self._process = subprocess.Popen(
            [*worker, "dnnstack", net, device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def ask(self, **request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in reply:
            raise SystemExit(reply["error"])
        return reply

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--device", choices=VARIANTS, default="cpu")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=["lenet-64", "mlp-256"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--milliseconds", type=float, default=200.0, help="of one timing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for net in options.nets:
            versions = [
                Version(path.resolve(), net, options.device, Path(scratch) / str(at))
                for at, path in enumerate((options.first, options.second))
            ]
            for variant in VARIANTS[options.device]:
                for version in versions:
                    version.ask(build=variant)
                trial = versions[0].ask(time=variant, steps=20)["us"]
                steps = max(1, int(1e3 * options.milliseconds / trial))
                times: list[list[float]] = [[], []]
                for at in range(options.rounds):
                    for which in (0, 1) if at % 2 else (1, 0):
                        spent = versions[which].ask(time=variant, steps=steps)["us"]
                        times[which].append(spent)
                ratios = [a / b for a, b in zip(*times, strict=True)]
                low, middle, high = quantiles(ratios, n=4)
                print(
                    f"{net:12} {variant:5} {median(times[0]):10.1f} us {median(times[1]):10.1f} us"
                    f"  first / second {middle:.3f} ({low:.3f} to {high:.3f})",
                    flush=True,
                )
            for version in versions:
                version.close()


if __name__ == "__main__":
    main()
