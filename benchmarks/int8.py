"""A forward pass on a CPU in fp32, bf16 and 8-bit integers: accuracy and time.

    dnnstack train --config lenet.yaml
    python3 benchmarks/int8.py lenet --data-dir DATA
    python3 benchmarks/int8.py --untrained cifar10-resnet20.yaml resnet18.yaml

Networks of runs are quantized as ``dnnstack compress --config int8.yaml`` does it, and evaluated on
the test set. Untrained ones have random weights, and one scale for all inputs: they are only timed.
A round passes a batch through each of the three in turn; printed are medians of milliseconds, and
medians of the ratios within a round (above 1: integers are faster).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.configs import load_config
from dnnstack.configs.schema.compression import QuantizeConfig
from dnnstack.configs.write import effective_yaml
from dnnstack.datasets import data_root
from dnnstack.graph.ops import Quantization
from dnnstack.graph.quantization import products
from dnnstack.training.assemble import build_network, describe_data, preprocessing
from dnnstack.training.compressed.quantization import on_grid, quantized_checkpoint
from dnnstack.training.evaluate import evaluate, load_part
from dnnstack.training.forward import Forward
from dnnstack.training.records.checkpoint import Checkpoint
from dnnstack.training.records.provenance import Provenance
from dnnstack.training.records.state import START
from dnnstack.training.records.trained import Trained, find_trained

SLICE = 0.05


def in_precision(trained: Trained, precision: str) -> Trained:
    run = trained.config.run.model_copy(update={"precision": precision})
    return replace(trained, config=trained.config.model_copy(update={"run": run}))


def seconds(forward: Forward, pictures: np.ndarray) -> float:
    count, begin = 0, perf_counter()
    while (taken := perf_counter() - begin) < SLICE:
        forward(pictures)
        count += 1
    return taken / count


def times(every: list[Trained], backend: OneDnnBackend, batch: int, rounds: int) -> str:
    forwards = [Forward(each, backend) for each in every]
    shape = (batch, *every[0].input_shape)
    pictures = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    for forward in forwards * 2:
        forward(pictures)
    found = [[seconds(forward, pictures) for forward in forwards] for _ in range(rounds)]
    columns = [f"{1e3 * median(column):.2f}" for column in zip(*found, strict=True)]
    ratios = [f"{median(row[at] / row[-1] for row in found):.2f}" for at in range(len(every) - 1)]
    return " | ".join((*columns, *ratios))


def untrained(reference: str) -> tuple[Trained, Checkpoint]:
    """A network of random weights, and the same on a grid."""
    config = load_config(reference).config
    info = describe_data(config, None)
    network = build_network(config, info)
    arrays = {t.name: value for t, value in network.initial_values(1).items()}
    scaling = preprocessing(config, info, None)
    said = (info.name, info.shape, info.classes, scaling, Tuning(""), {})
    origin = Provenance(1, effective_yaml(config), *said)
    checkpoint = Checkpoint(Path(reference), START, origin, arrays)
    layers = products(network.infer_graph(1))
    scales = {name: Quantization(0.02, at == 0) for at, name in enumerate(layers)}
    small = {weight.name: on_grid(arrays[weight.name]) for _, weight in layers.values()}
    quantized = replace(checkpoint, arrays={**arrays, **small}, quantization=scales)
    return Trained.of(checkpoint), quantized


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--untrained", nargs="*", default=[], metavar="CONFIG")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    backend, root = OneDnnBackend(options.threads), data_root(options.data_dir, None)
    kinds = ["fp32", "bf16"]
    try:
        backend.precision("bf16")
    except BackendUnavailableError:
        kinds.remove("bf16")
    heads = ["network", *(f"error, {kind}" for kind in (*kinds, "int8")), "batch"]
    heads += [f"{kind}, ms" for kind in (*kinds, "int8")] + [f"{kind} / int8" for kind in kinds]
    print(f"| {' | '.join(heads)} |\n{'| --- ' * len(heads)}|")
    for name in (*options.runs, *options.untrained):
        if name in options.runs:
            whole = find_trained(name, None, options.runs_dir, lambda text: None)
            part = load_part(whole, "train", root)
            quantized = quantized_checkpoint(whole, backend, *part, QuantizeConfig())
        else:
            whole, quantized = untrained(name)
        every = [*(in_precision(whole, kind) for kind in kinds), Trained.of(quantized)]
        errors = ["-"] * len(every)
        if name in options.runs:
            test = load_part(whole, "test", root)
            accuracies = [evaluate(each, backend, *test, "test").accuracy for each in every]
            errors = [f"{1 - accuracy:.2%}" for accuracy in accuracies]
        for batch in options.batches:
            told = times(every, backend, batch, options.rounds)
            print(f"| {name} | {' | '.join(errors)} | {batch} | {told} |", flush=True)


if __name__ == "__main__":
    main()
