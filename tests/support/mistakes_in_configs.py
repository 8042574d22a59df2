"""Mistakes in the config, about the machine, and on the command line."""

from __future__ import annotations

from .machines import cuda_as, disk_full, no_devices, without_bfloat16, without_cupy
from .mistakes import TINY, TRAIN, USAGE, Mistake, changed, config, stored_mistakes
from .stored import beside

CHECKPOINT = "runs/tiny/checkpoints/step-26.safetensors"
SEVERAL_CONFIGS = "(configs in the package: "


BLOCK = beside(__file__, "mistakes_in_configs_block.yaml")

CONFIGS = [
    *stored_mistakes("mistakes_in_configs.txt"),
    Mistake(
        "several errors come at once, in order",
        "explain --config tiny.yaml",
        (
            "tiny.yaml: 2 errors\ntiny.yaml:6:14: layer 1 'conv2d_1' (conv2d): "
            "filter: unknown key; ",
            "tiny.yaml:12:28: optimizer.lr: expected a number (got 'fast')",
        ),
        prepare=config(TINY.replace("filters", "filter").replace("lr: 0.1", "lr: fast")),
    ),
    Mistake(
        "missing key",
        "config --config tiny.yaml",
        ("tiny.yaml:1:1: train: required key is missing (How long to train.)",),
        prepare=changed("train: {epochs: 2}\n", ""),
    ),
    Mistake(
        "tab in YAML",
        "config --config tiny.yaml",
        ("tiny.yaml:3:1: ", "found a tab; indent YAML with spaces"),
        prepare=changed("  batch_size", "\tbatch_size"),
    ),
    Mistake(
        "not UTF-8",
        "config --config tiny.yaml",
        ("tiny.yaml:1:10: not UTF-8 text; save the file as UTF-8",),
        prepare=config(b"name: caf\xe9\n"),
    ),
    Mistake(
        "empty config",
        "config --config tiny.yaml",
        ("tiny.yaml:1:1: the file is empty; a config needs data, layers, optimizer and train",),
        prepare=config(""),
    ),
    Mistake(
        "unknown config",
        "train --config digit",
        ("digit: no such file; did you mean 'digits.yaml'?", SEVERAL_CONFIGS),
    ),
    Mistake(
        "a misspelt parameter of a block",
        "summary --config tiny.yaml",
        ("tiny.yaml:9:13: layer 1 (basic): filtres: block 'basic' has no parameter 'filtres'; ",),
        prepare=config(BLOCK.replace("{filters: 4}", "{filtres: 4}")),
    ),
    Mistake(
        "missing flatten",
        TRAIN,
        ("tiny.yaml:9:5: layer 4 'dense_1' (dense): ", "(4, 6, 6); insert 'flatten' before it"),
        prepare=changed("  - flatten\n", ""),
    ),
    Mistake(
        "an empty file where stages are needed",
        "compress --config tiny.yaml",
        ("tiny.yaml:1:1: the file is empty; dnnstack compress needs stages, as in lenet.yaml",),
        prepare=config(""),
    ),
    Mistake(
        "groups that do not divide",
        f"{TRAIN} --set layers.conv2d_1.groups=2",
        ("layer 1 'conv2d_1' (conv2d): ", "2 does not divide 1 channels"),
    ),
    Mistake(
        "connections that are none",
        f"{TRAIN} --set layers.conv2d_1.connections=lenet",
        ("conv2d_1.connections=lenet: ", "expected lenet5, or for each filter the list of"),
    ),
    Mistake(
        "bf16 on a CPU without it",
        "train --config tiny.yaml --device cpu --threads 1 --set run.precision=bf16",
        (
            "precision 'bf16': this processor has neither AVX512_BF16 nor AMX (oneDNN uses avx",
            "set run.precision to auto or fp32",
        ),
        prepare=without_bfloat16,
    ),
    Mistake(
        "cuda without CuPy",
        "eval --device cuda",
        ("device 'cuda': CuPy cannot be imported", "pip install 'dnnstack[cuda", "--device cpu"),
        prepare=without_cupy,
    ),
    Mistake(
        "no GPU",
        "train --config tiny.yaml --device cuda",
        ("device 'cuda': this machine has no GPU; use --device cpu",),
        prepare=cuda_as(no_devices),
    ),
    Mistake(
        "a folder that cannot be written",
        f"{TRAIN} --runs-dir /sys/dnnstack",
        ("/sys/dnnstack: no run can be written there: ", "choose another folder with --runs-dir"),
    ),
    Mistake(
        "no room for checkpoints",
        TRAIN,
        ("runs: has 41.0 kB free, but the checkpoints need 1.", "free some space, keep fewer"),
        prepare=disk_full,
    ),
    Mistake("unknown split", "eval --split tset", ("'tset' is not one of 'train', ",), USAGE),
]
