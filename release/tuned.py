"""Writes the tables of choices that ship with the package, on a machine with the card.

    python3 release/tuned.py [--config lenet.yaml ...] [--precision tf32 ...] [--thorough]
                             [--missing] [--seconds 500] [--renew]

Compiles every packaged config that can be trained, with its batch, in each precision, as ``dnnstack
explain`` does, and writes what was chosen to backends/cuda/tuned/, in a file for this card and
these libraries; what the file has of other networks stays. Choices of the machine's cache are taken
as they are, so that searches made before, with ``run.tune: true`` say, count; what ships already
does not. With ``--missing`` those that the file has a table for are passed over, and with
``--seconds`` none begins after this time, so that several calls can share the work. Let nothing
else use the GPU.

``--renew`` needs no GPU: it marks every table with what its config's graph is now. For changes that
gave an operation a field, or another name to one, and left alone what is computed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

from dnnstack.backends import compiling
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.cards import CARDS
from dnnstack.backends.cuda.dry_backend import DryBackend
from dnnstack.backends.cuda.tuned import CARD, Card, Shipped, file_name, portable
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import DnnstackError
from dnnstack.common.typed_json import from_json
from dnnstack.configs import load_config, packaged_configs, placed
from dnnstack.reports.explain import explain

FOLDER = Path(__file__).parents[1] / "backends/cuda/tuned"
PRECISIONS = ("tf32", "bf16", "fp32")
# What is made unless others are asked for: those that trainings choose for their speed.
USUAL = ("tf32", "bf16")


class Noting:
    """A backend that notes the choices that it compiles with, and what they are for.

    ``wanted``: the mark of all graphs that share them, and the environment. ``plans``: the names of
    cuDNN's plans among them.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.wanted = Tuning("")
        self.choices: Mapping[str, str] = {}
        self.plans: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compile(self, sections: Any, options: Any = None) -> Any:
        settle = compiling.settle

        def noted(present: Tuning, *given: Any, alike: str, shipped: Any, **how: Any) -> Any:
            self.wanted = replace(present, graph=alike)
            # What ships is no result of this machine's.
            return settle(present, *given, alike=alike, shipped=lambda sought: None, **how)

        compiling.settle = noted
        try:
            made = self._backend.compile(sections, options)
        finally:
            compiling.settle = settle
        self.choices = made.tuning.choices
        for binder in made.binders():
            for name, graph in binder.convolutions.items():
                if name in self.choices:
                    self.plans[name] = graph.plan_name
        return made


def table_of(
    reference: str, precision: str, backend: Any, thorough: bool
) -> tuple[Shipped, Tuning]:
    """The choices for a packaged config, and the environment that they were made in.

    Raises DnnstackError.
    """
    changes = [f"run.precision={precision}", *["run.tune=true"] * thorough]
    loaded, noting = load_config(reference, changes), Noting(backend)
    with placed(loaded):
        explain(loaded.config, loaded.path, noting, False, lambda text: print(f"  {text}"))
    graph = noting.wanted.graph
    table = Shipped(reference, precision, graph, dict(noting.choices), dict(noting.plans))
    return table, noting.wanted


def merged(before: Iterable[Shipped], new: Sequence[Shipped]) -> tuple[Shipped, ...]:
    """The tables with the new ones in place of those of the same network or name, sorted."""
    names = {(each.config, each.precision) for each in new}
    kept = [each for each in before if (each.config, each.precision) not in names]
    tables = {(table.graph, table.precision): table for table in (*kept, *new)}
    return tuple(sorted(tables.values(), key=lambda each: (each.config, each.precision)))


def wanted(
    configs: Sequence[str], precisions: Sequence[str], there: Sequence[Shipped]
) -> list[tuple[str, str]]:
    """The configs in each precision, without those that are there."""
    names = {(each.config, each.precision) for each in there}
    every = [(config, precision) for precision in precisions for config in configs]
    return [each for each in every if each not in names]


def present(environment: Mapping[str, str], folder: Path) -> tuple[Shipped, ...]:
    """What the file of this environment has."""
    path = folder / file_name(portable(environment))
    return from_json(path.read_bytes(), Card).tables if path.exists() else ()


def written(found: Sequence[tuple[Shipped, Tuning]], folder: Path) -> Path:
    """Write the file of this environment, with what it had of other networks."""
    environment = portable(found[0][1].environment)
    path, before = folder / file_name(environment), present(environment, folder)
    card = Card(environment, merged(before, [table for table, _ in found]))
    path.write_text(json.dumps(asdict(card), indent=1) + "\n", encoding="utf-8")
    return path


def renewed(path: Path) -> None:
    """Write the marks of a file's tables anew."""
    card = from_json(path.read_bytes(), Card)
    known = next(each for each in CARDS.values() if each.name == card.environment[CARD])
    tables = []
    for table in card.tables:
        loaded, backend = load_config(table.config), DryBackend(known)
        with placed(loaded):
            explain(loaded.config, loaded.path, backend, False, lambda text: None)
        tables.append(replace(table, graph=backend.mark))
    path.write_text(json.dumps(asdict(Card(card.environment, tuple(tables))), indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", action="append", choices=packaged_configs())
    parser.add_argument(
        "--precision", action="append", choices=PRECISIONS, help=f"default: {' and '.join(USUAL)}"
    )
    parser.add_argument("--thorough", action="store_true", help="search without a time limit")
    parser.add_argument("--missing", action="store_true", help="pass over what the file has")
    parser.add_argument("--seconds", type=float, default=inf, help="begin none after this time")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--renew", action="store_true", help="only write the marks anew")
    options = parser.parse_args()
    if options.renew:
        for path in options.folder.glob("*.json"):
            renewed(path)
        return
    backend, found, begin = CudaBackend(), [], time.perf_counter()
    there = present(backend.versions(), options.folder) if options.missing else ()
    for reference, precision in wanted(
        options.config or packaged_configs(), options.precision or USUAL, there
    ):
        if time.perf_counter() - begin > options.seconds:
            print(f"{reference}, {precision}: left for another call, with --missing")
            continue
        try:
            table, made = table_of(reference, precision, backend, options.thorough)
        except DnnstackError as error:
            print(f"{reference}, {precision}: left out: {error}")
            continue
        if not table.graph:
            print(f"{reference}, {precision}: left out: nothing trains")
            continue
        found.append((table, made))
        print(f"{reference}, {precision}: {len(table.choices)} choices", flush=True)
        # After each: what was found stays if the rest is stopped.
        path = written(found, options.folder)
    if found:
        print(f"{len(found)} tables in {path}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
