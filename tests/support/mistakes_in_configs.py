"""Mistakes in the config, about the machine, and on the command line."""

from __future__ import annotations

from .machines import cuda_as, disk_full, no_devices, without_bfloat16, without_cupy
from .mistakes import TINY, TRAIN, USAGE, Mistake, changed, config

CHECKPOINT = "runs/tiny/checkpoints/step-26.safetensors"
SEVERAL_CONFIGS = "(configs in the package: "


BLOCK = """\
data: {dataset: strokes}
blocks:
  basic:
    parameters: {filters: }
    layers:
      - residual: {body: [{conv2d: {filters: $filters, kernel_size: 1}}]}
      - relu
layers:
  - basic: {filters: 4}
  - flatten
  - dense: {units: 10}
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""

CONFIGS = [
    Mistake(
        "typo in a key",
        "config --config tiny.yaml",
        ("tiny.yaml:3:3: data.batchsize: unknown key; did you mean 'batch_size'?",),
        prepare=changed("batch_size", "batchsize"),
    ),
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
        "wrong type",
        "summary --config tiny.yaml",
        (
            "tiny.yaml:6:23: layer 1 'conv2d_1' (conv2d): "
            "filters: expected a whole number (got 'four')",
        ),
        prepare=changed("filters: 4", "filters: four"),
    ),
    Mistake(
        "a number out of range",
        f"{TRAIN} --set optimizer.lr=-0.1",
        ("--set optimizer.lr=-0.1: optimizer.lr: expected a number above 0 (got -0.1)",),
    ),
    Mistake(
        "unknown layer",
        TRAIN,
        ("tiny.yaml:8:5: layer 3: unknown layer 'maxpool'; did you mean 'max_pool2d'?",),
        prepare=changed("max_pool2d", "maxpool"),
    ),
    Mistake(
        "unknown optimizer",
        f"{TRAIN} --set optimizer.type=adma",
        ("optimizer.type: unknown optimizer 'adma'; did you mean 'adam'?",),
    ),
    Mistake(
        "unknown data set",
        f"{TRAIN} --set data.dataset=mnits",
        ("unknown dataset 'mnits'; did you mean 'mnist'?",),
    ),
    Mistake(
        "missing key",
        "config --config tiny.yaml",
        ("tiny.yaml:1:1: train: required key is missing (How long to train.)",),
        prepare=changed("train: {epochs: 2}\n", ""),
    ),
    Mistake(
        "epochs and max_steps",
        TRAIN,
        ("tiny.yaml:13:", "train.max_steps: give either epochs or max_steps, not both"),
        prepare=changed("epochs: 2", "epochs: 2, max_steps: 10"),
    ),
    Mistake(
        "nesterov without momentum",
        TRAIN,
        ("tiny.yaml:12:", "optimizer.nesterov: nesterov needs a momentum above 0, such as 0.9"),
        prepare=changed("momentum: 0.9", "nesterov: true"),
    ),
    Mistake(
        "key written twice",
        "config --config tiny.yaml",
        ("tiny.yaml:14:1: train: the key appears twice, first in line 13; keep one",),
        prepare=config(TINY + "train: {epochs: 3}\n"),
    ),
    Mistake(
        "tab in YAML",
        "config --config tiny.yaml",
        ("tiny.yaml:3:1: ", "found a tab; indent YAML with spaces"),
        prepare=changed("  batch_size", "\tbatch_size"),
    ),
    Mistake(
        "alias in YAML",
        "config --config tiny.yaml",
        (
            "anchor '&d': anchors are not supported; remove it",
            "alias '*d': aliases are not supported",
        ),
        prepare=config("data: &d {dataset: strokes}\ntrain: *d\n"),
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
        "a checkpoint as config",
        f"config --config {CHECKPOINT}",
        ("is not text; --config needs a YAML file",),
    ),
    Mistake("a folder as config", "config --config .", (".: is a folder; --config needs a YAML",)),
    Mistake(
        "unknown config",
        "train --config digit",
        ("digit: no such file; did you mean 'digits.yaml'?", SEVERAL_CONFIGS),
    ),
    Mistake(
        "a --set that sets nothing",
        f"{TRAIN} --set optimizer.lr",
        ("--set optimizer.lr: expected key.path=value, as in optimizer.lr=0.05",),
    ),
    Mistake(
        "a --set of an unknown key",
        f"{TRAIN} --set optimizer.learning_rate=1",
        ("--set optimizer.learning_rate=1", "unknown key; did you mean 'lr'?"),
    ),
    # Blocks; more of them in tests/configs/test_blocks.py.
    Mistake(
        "a misspelt parameter of a block",
        "summary --config tiny.yaml",
        ("tiny.yaml:9:13: layer 1 (basic): filtres: block 'basic' has no parameter 'filtres'; ",),
        prepare=config(BLOCK.replace("{filters: 4}", "{filtres: 4}")),
    ),
    Mistake(
        "a wrong value for a parameter",
        "train --config tiny.yaml --device numpy",
        (
            "tiny.yaml:9:22: layer 1 (basic): filters: expected a whole number (got 'four') "
            "(for $filters in block 'basic')",
        ),
        prepare=config(BLOCK.replace("{filters: 4}", "{filters: four}")),
    ),
    Mistake(
        "a mistake inside a block",
        "config --config tiny.yaml",
        (
            "tiny.yaml:6:56: blocks.basic: layer 1.body.1 (conv2d): kernelsize: unknown key; "
            "did you mean 'kernel_size'? (in block 'basic', used at tiny.yaml:9:5)",
        ),
        prepare=config(BLOCK.replace("kernel_size", "kernelsize")),
    ),
    Mistake(
        "a block that uses itself",
        "config --config tiny.yaml",
        (
            "tiny.yaml:7:9: blocks.basic: layer 2 (basic): "
            "a block cannot use itself (basic -> basic)",
        ),
        prepare=config(BLOCK.replace("- relu", "- basic: {filters: 1}")),
    ),
    Mistake(
        "shapes that do not fit inside a block",
        "explain --config tiny.yaml --device numpy",
        (
            "tiny.yaml:6:9 (in block 'basic', used at tiny.yaml:9:5): layer 1 'residual_1' "
            "(residual): the body gives (4, 28, 28), the shortcut (1, 28, 28)",
            "use 'shortcut: projection'",
        ),
        prepare=config(BLOCK),
    ),
    Mistake(
        "a window that does not fit inside a block",
        "train --config tiny.yaml --device numpy",
        (
            "tiny.yaml:6:27 (in block 'basic', used at tiny.yaml:9:5): layer 1.body.1 "
            "'residual_1.conv2d_1' (conv2d): a window of 99x99 does not fit",
        ),
        prepare=config(BLOCK.replace("kernel_size: 1", "kernel_size: 99")),
    ),
    # The network and the schedule.
    Mistake(
        "missing flatten",
        TRAIN,
        ("tiny.yaml:9:5: layer 4 'dense_1' (dense): ", "(4, 6, 6); insert 'flatten' before it"),
        prepare=changed("  - flatten\n", ""),
    ),
    Mistake(
        "kernel larger than the picture",
        "explain --config tiny.yaml --device numpy",
        (
            "tiny.yaml:6:5: layer 1 'conv2d_1' (conv2d): a window of 29x29 does not fit",
            "use a smaller kernel, 'padding: same'",
        ),
        prepare=changed("kernel_size: 5", "kernel_size: 29"),
    ),
    Mistake(
        "too few units at the end",
        "summary --config tiny.yaml",
        ("tiny.yaml:10:5: the last layer gives (12,)", "end the stack with 'dense: {units: 10}'"),
        prepare=changed("units: 10", "units: 12"),
    ),
    Mistake(
        "other units at the end on the command line",
        "summary --config tiny.yaml --set layers.dense_1.units=9",
        (
            "tiny.yaml:10:5 (changed by --set layers.dense_1.units=9): the last layer gives (9,), "
            "the data has 10 classes",
        ),
    ),
    Mistake(
        "another optimizer with the keys of the file",
        "summary --config tiny.yaml --set optimizer.type=adam",
        ("optimizer.momentum: unknown key", "of the file: --set 'optimizer={type: adam, lr: ...}'"),
    ),
    Mistake(
        "wrong values on the command line alone",
        f"{TRAIN} --set optimizer.lr=fast --set train.epochs=two",
        ("--set: 2 errors", "--set optimizer.lr=fast: optimizer.lr: expected"),
    ),
    Mistake(
        "a training where stages are needed",
        "compress --config tiny.yaml",
        ("tiny.yaml: describes a training, with layers; dnnstack compress takes a file with st",),
    ),
    Mistake(
        "a comment as a value",
        f"{TRAIN} --set 'optimizer.lr=# later'",
        ("optimizer.lr: expected a value, not a comment",),
    ),
    Mistake(
        "an empty file where stages are needed",
        "compress --config tiny.yaml",
        ("tiny.yaml:1:1: the file is empty; dnnstack compress needs stages, as in lenet.yaml",),
        prepare=config(""),
    ),
    Mistake(
        "a packaged training where stages are needed",
        "compress --config digits.yaml",
        ("digits.yaml: describes a training, for dnnstack train; here another is needed, such as",),
    ),
    Mistake(
        "stages where a training is needed",
        "train --config int8.yaml",
        ("int8.yaml: has the stages of dnnstack compress; here another is needed, such as alex",),
    ),
    Mistake(
        "no such search",
        "sweep --config sweep.yaml",
        ("sweep.yaml: no such file (configs for this command in the package: lenet-search.yaml)",),
    ),
    Mistake(
        "a search and its config with a mistake each",
        "sweep --config tiny.yaml",
        ("search.trils: unknown key", "train.epohcs: unknown key"),
        prepare=changed(
            "train: {epochs: 2}",
            "train: {epohcs: 2}\nsearch: {keys: {seed: [1, 2]}, sampler: grid, trils: 1}",
        ),
    ),
    Mistake(
        "a file without --config",
        "train tiny.yaml",
        ("did you mean 'dnnstack train --config tiny.yaml'?",),
        USAGE,
    ),
    Mistake(
        "groups that do not divide",
        f"{TRAIN} --set layers.conv2d_1.groups=2",
        ("layer 1 'conv2d_1' (conv2d): ", "2 does not divide 1 channels"),
    ),
    Mistake(
        "connections to maps that are not there",
        f"{TRAIN} --set 'layers.conv2d_1.connections=[[0], [0], [1], [0]]'",
        ("layer 1 'conv2d_1' (conv2d): connections of filter 2: [1] names a map", "maps 0 to 0"),
    ),
    Mistake(
        "connections that are none",
        f"{TRAIN} --set layers.conv2d_1.connections=lenet",
        ("conv2d_1.connections=lenet: ", "expected lenet5, or for each filter the list of"),
    ),
    Mistake(
        "a threshold with a gradient's loss",
        TRAIN,
        ("tiny.yaml:7:5: layer 'heaviside_1' (heaviside) has no gradient", "use 'sigmoid'"),
        prepare=changed("- relu", "- heaviside"),
    ),
    Mistake(
        "the perceptron rule without a threshold",
        f"{TRAIN} --set loss=perceptron",
        ("tiny.yaml: the loss 'perceptron' needs 'heaviside' as the last layer",),
    ),
    Mistake(
        "RBF units over the wrong number of inputs",
        TRAIN,
        ("layer 6 'rbf_1' (rbf): expects 84 inputs", "put 'dense: {units: 84}' before it"),
        prepare=changed("- softmax", "- rbf"),
    ),
    Mistake(
        "a goal of nothing",
        f"{TRAIN} --set train.goal={{}}",
        ("train.goal: required: accuracy or loss",),
    ),
    Mistake(
        "a goal that cannot be measured",
        f"{TRAIN} --set data.validation=0 --set train.log_every=3 --set 'train.goal={{loss: 0}}'",
        ("train.goal: without validation samples it is measured over the lines of the log",),
    ),
    Mistake(
        "as many factors as milestones",
        f"{TRAIN} --set 'schedule={{type: multistep, milestones: [1, 2], gamma: [1, 1, 1]}}'",
        ("schedule.gamma: expected one number, or 2 numbers, one for each milestone (got [",),
    ),
    Mistake(
        "milestones beyond the end",
        f"{TRAIN} --set 'schedule={{type: multistep, milestones: [10, 5000]}}'",
        ("schedule.milestones: step 5000 is never reached", "26 steps", "train longer"),
    ),
    Mistake(
        "batch larger than the data",
        f"{TRAIN} --set data.batch_size=1000",
        ("data.batch_size: 1000 is more than the 416 training samples", "set it to 416 or less"),
    ),
    Mistake(
        "validation that leaves nothing",
        f"{TRAIN} --set data.validation=480",
        ("data.validation: 480 of 480 training samples leaves 0", "from 0 to 479"),
    ),
    # The machine.
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
        "tf32 on the CPU",
        "train --config tiny.yaml --device cpu --threads 1 --set run.precision=tf32",
        (
            "precision 'tf32': oneDNN computes in fp32 or bf16",
            "set run.precision to auto, fp32 or bf16",
        ),
    ),
    Mistake(
        "bf16 in NumPy",
        f"{TRAIN} --set run.precision=bf16",
        ("precision 'bf16': the numpy backend", "set run.precision to auto or fp32"),
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
        "a file in the place of the folder",
        f"{TRAIN} --runs-dir tiny.yaml",
        ("tiny.yaml: is not a folder; choose another folder with --runs-dir",),
    ),
    Mistake(
        "no room for checkpoints",
        TRAIN,
        ("runs: has 41.0 kB free, but the checkpoints need 1.", "free some space, keep fewer"),
        prepare=disk_full,
    ),
    # The command line; more of it in test_usage.py.
    Mistake("unknown command", "trian", ("'trian'; did you mean 'dnnstack train'?",), USAGE),
    Mistake("unknown option", "train --confg x", ("'--confg'; did you mean '--config'?",), USAGE),
    Mistake(
        "no class to name",
        "predict 5.png --top 0",
        ("'--top': expected at least 1 (got 0)",),
        USAGE,
    ),
    Mistake("no thread", f"{TRAIN} --threads 0", ("'--threads': expected a number from 1",), USAGE),
    Mistake("absurd threads", f"{TRAIN} --threads 100000", ("from 1 to 1024 (got 100000)",), USAGE),
    Mistake("unknown split", "eval --split tset", ("'tset' is not one of 'train', ",), USAGE),
    Mistake("a run as argument", "eval runs/tiny", ("name a run with --run",), USAGE),
]
