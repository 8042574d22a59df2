"""Faults in what a training begins with, and in layers that stay as they are."""

from __future__ import annotations

from .mutant import Mutant

_FILE = "training/records/formats/test_weight_file.py"
_EXPORT = "training/weights/test_export.py"
_START = "training/weights/test_start.py"
_INIT = "training/weights/test_init_from.py"
_FREEZING = "training/test_freezing.py"

WEIGHTS = (
    Mutant(
        "weights: pickles are told by their names alone",
        "training/records/formats/weight_file.py",
        "    if data.startswith(_MARKS):\n",
        "    if False:\n",
        (f"{_FILE}::test_pickles_are_refused_by_name_and_by_content",),
    ),
    Mutant(
        "weights: bfloat16 is read as the lower half",
        "training/records/formats/weight_file.py",
        "(stored.astype(np.uint32) << 16)",
        "stored.astype(np.uint32)",
        (f"{_FILE}::test_other_widths_become_float32",),
    ),
    Mutant(
        "weights: arrays may lie anywhere in a file",
        "training/records/formats/weight_file.py",
        "if begin != end or (stop",
        "if (stop",
        (f"{_FILE}::test_what_is_wrong_is_refused",),
    ),
    Mutant(
        "weights: bytes behind the last array are ignored",
        "training/records/formats/weight_file.py",
        "    if end != len(numbers):\n",
        "    if end > len(numbers):\n",
        (f"{_FILE}::test_what_is_wrong_is_refused",),
    ),
    Mutant(
        "weights: convolution and batch norm of a shortcut are exchanged",
        "training/records/formats/pytorch_names.py",
        '"0": "downsample.conv", "1": "downsample.bn"',
        '"1": "downsample.conv", "0": "downsample.bn"',
        (f"{_START}::test_names_of_pytorch",),
    ),
    Mutant(
        "weights: PyTorch's name comes before the network's own",
        "training/weights/start.py",
        'if source.layout == "pytorch" and theirs not in shapes:',
        'if source.layout == "pytorch":',
        (f"{_START}::test_a_name_of_the_network_itself_comes_first",),
    ),
    Mutant(
        "weights: another shape of the same size will do",
        "training/weights/start.py",
        "    return theirs == ours\n",
        "    return prod(theirs) == prod(ours)\n",
        (f"{_START}::test_only_the_same_shape_fits",),
    ),
    Mutant(
        "weights: numbers that are not finite are taken",
        "training/weights/start.py",
        "    if not np.isfinite(array).all():\n",
        "    if False:\n",
        (f"{_START}::test_values_that_no_network_has",),
    ),
    Mutant(
        "weights: variances below 0 are taken",
        "training/weights/start.py",
        '.endswith("running_var")',
        '.endswith("running_variance")',
        (f"{_START}::test_values_that_no_network_has",),
    ),
    Mutant(
        "weights: init_from.skip is ignored",
        "training/weights/start.py",
        "if fnmatchcase(name, pattern)]:",
        "if fnmatchcase(name, pattern) and not source]:",
        (f"{_START}::test_what_is_skipped_is_initialised",),
    ),
    Mutant(
        "weights: averages begin with 0",
        "training/setup.py",
        "for kind in KINDS for name",
        "for kind in () for name",
        (f"{_INIT}::test_a_run_gives_what_it_learned_and_the_rest_is_as_from_scratch",),
    ),
    Mutant(
        "weights: a resume reads the file again",
        "training/trainer.py",
        "_start(config, network, heard) if checkpoint is None else None",
        "_start(config, network, heard)",
        (f"{_INIT}::test_a_resume_does_not_read_the_file_again",),
    ),
    Mutant(
        "weights: a resume forgets where the run began",
        "training/trainer.py",
        "            begun = checkpoint.provenance.begun_from\n",
        "            begun = None\n",
        (f"{_INIT}::test_a_resume_does_not_read_the_file_again",),
    ),
    Mutant(
        "weights: a run that begins again does so without them",
        "training/records/resume.py",
        'config.model_copy(update={"init_from": begun.init_from})',
        "config",
        (f"{_INIT}::test_a_run_without_checkpoint_begins_again_from_the_same_source",),
    ),
    Mutant(
        "weights: the trained weights are taken, not their averages",
        "training/records/formats/checkpoint.py",
        "self._evaluated(name) for name in names",
        "self.arrays[name] for name in names",
        (f"{_INIT}::test_averages_are_taken_where_there_are_some",),
    ),
    Mutant(
        "weights: a resume says nothing of another source",
        "training/records/resume.py",
        "    if wanted is not None and wanted != begun.init_from:\n",
        "    if False:\n",
        (f"{_INIT}::test_another_source_is_not_read_by_a_resume",),
    ),
    Mutant(
        "weights: every network gets the names of torchvision's VGG",
        "training/records/formats/pytorch_names.py",
        'any(name.startswith("conv1_1.") for name in ours)',
        "True",
        (f"{_EXPORT}::test_names_of_other_networks_stay",),
    ),
    Mutant(
        "weights: what is saved replaces its source",
        "training/weights/export.py",
        "    if _is_same(path, source.path):\n",
        "    if False:\n",
        (f"{_EXPORT}::test_the_source_is_not_overwritten",),
    ),
    Mutant(
        "freeze: a frozen batch norm takes the statistics of the batch",
        "layers/batch_norm.py",
        "        if not graph.training or self.frozen:\n",
        "        if not graph.training:\n",
        (f"{_FREEZING}::test_nothing_of_a_frozen_layer_moves",),
    ),
    Mutant(
        "freeze: the gradient through a frozen batch norm lacks its factor",
        "backends/reference/norm.py",
        "_affine(dy, 1.0 / np.sqrt(running_var + op.eps), weight, None)",
        "_affine(dy, 1.0 / np.sqrt(running_var + op.eps), None, None)",
        ("layers/test_gradients.py::test_frozen_batch_norm",),
    ),
    Mutant(
        "freeze: averages of frozen statistics are kept",
        "training/network.py",
        "for each in self.running_statistics() if not each.frozen)",
        "for each in self.running_statistics())",
        (f"{_FREEZING}::test_frozen_layers_have_no_optimizer_state",),
    ),
    Mutant(
        "freeze: the layers inside a frozen one go on",
        "layers/layer.py",
        "        for layer in self.children:\n            layer.freeze()\n",
        "",
        (f"{_FREEZING}::test_nothing_of_a_frozen_layer_moves",),
    ),
)
