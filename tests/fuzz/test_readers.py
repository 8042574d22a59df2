"""Every place that reads a file is known: its files are fuzzed, or no stranger gives them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for typed in ROOT.glob("*/py.typed") for path in typed.parent.rglob("*.py"))
READS = {
    "open",
    "open_regular",
    "read_bytes",
    "read_regular",
    "read_typed",
    "read_whole",
    "read_text",
    "regular_lines",
}
SYSTEM = "of the system, or of this program"
_LIBRARIES = {"np.load", "json.load", "yaml.load", "zipfile.ZipFile"}
READERS = {
    "api/racing.py": "race",
    "api/several.py": SYSTEM,
    "backends/cuda/libraries/kept.py": "plan",
    "backends/cuda/libraries/kernels.py": SYSTEM,
    "backends/cuda/libraries/peers.py": SYSTEM,
    "backends/cuda/libraries/runtime.py": SYSTEM,
    "backends/cuda/tuned/__init__.py": SYSTEM,
    "backends/onednn/host_memory.py": SYSTEM,
    "backends/tuning.py": SYSTEM,
    "backends/tuning_cache.py": "tuning",
    "cli/bench.py": "bench",
    "cli/completion.py": "a search of a config for one word",
    "cli/early.py": "a search of a config for one word",
    "cli/importing.py": "names, one in each line, that a config then checks",
    "cli/main.py": SYSTEM,
    "cli/console.py": SYSTEM,
    "common/files.py": "the functions that others read with",
    "common/locks.py": "lock",
    "common/limits.py": SYSTEM,
    "common/machine.py": SYSTEM,
    "common/machine_load.py": SYSTEM,
    "configs/find.py": "config-changed",
    "configs/stages.py": "stages",
    "configs/load.py": "search",
    "datasets/array_files.py": "npz",
    "datasets/csv_file.py": "csv",
    "datasets/archive.py": "one file alone, of a known hash",
    "datasets/cifar.py": "cifar",
    "datasets/decoded.py": "decoded",
    "datasets/download.py": "data_files.py has what the downloaded files contain",
    "datasets/idx.py": "idx",
    "datasets/integer_pixels.py": "picture",
    "datasets/picture_kinds.py": "picture",
    "datasets/picture_files.py": "picture",
    "datasets/single_pictures.py": "archive",
    "datasets/strokes_tables.py": SYSTEM,
    "datasets/transfer.py": "writes alone",
    "exports/c_file.py": "templates of its own, and what it has just written",
    "exports/html_file.py": "what it has just written itself",
    "exports/numpy_file.py": "the same",
    "exports/torch_file.py": "the same",
    "imports/onnx_file.py": "onnx",
    "lab/child.py": "what lab/program.py has written for it",
    "lab/operations.py": "a table of its own",
    "lab/program.py": "code, which runs if the user names it",
    "plugins/loading.py": "code, which runs if the user allows it",
    "plugins/trust.py": "what the user has allowed, in a folder of his own",
    "reports/doctor_gpu.py": SYSTEM,
    "reports/loggers/wandb.py": "what it has written itself; a failure ends no training",
    "reports/manual.py": SYSTEM,
    "reports/new_tuned.py": SYSTEM,
    "reports/plots.py": "metrics",
    "reports/rate_curve.py": "metrics",
    "reports/run_page.py": "each section says by itself what it cannot read",
    "reports/runs_report.py": "log",
    "reports/sensitivity_report.py": "sensitivity",
    "reports/staleness.py": "staleness",
    "training/records/formats/dnnz.py": "compressed",
    "training/compressed/place.py": "compression",
    "many/journal.py": "trials",
    "many/trainings.py": SYSTEM,
    "training/ranks/team.py": SYSTEM,
    "training/ranks/watchdog.py": SYSTEM,
    "training/records/formats/checkpoint.py": "checkpoint",
    "datasets/mapped.py": "writes alone",
    "training/records/disk_space.py": "writes alone",
    "training/records/group.py": "group",
    "training/records/resume.py": "config-changed",
    "training/records/formats/record.py": "the functions that others read with",
    "training/records/formats/run_log.py": "log",
    "training/records/runs.py": "latest",
    "training/records/formats/samples.py": "samples",
    "training/records/formats/pytorch_file.py": "pytorch",
    "training/records/formats/weight_file.py": "weights",
    "training/weights/hub.py": "hub",
}


def _reads(source: str) -> Iterator[str]:
    """The calls in a source that open or read a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            name = called.rpartition(".")[2]
            if name in READS or called in _LIBRARIES:
                yield called


def test_every_reader_of_files_is_known():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if any(True for _ in _reads(path.read_text("utf-8")))
    }
    # It opens what is no file.
    found -= {"training/ranks/servers.py"}
    assert found - READERS.keys() == set(), "fuzz these readers, and name the target here"
    assert READERS.keys() - found == set(), "these read no file any more"


def test_what_readers_are_fuzzed_by_is_there():
    words = [target for target in READERS.values() if " " not in target]
    assert set(words) <= TARGETS.keys()
    assert len(set(words)) > 15


@pytest.mark.parametrize(
    "source", ["read_regular(path, 1)", "with path.open() as f: pass", "np.load(path)", "open(x)"]
)
def test_the_rule_finds_a_reader(source):
    assert len(list(_reads(source))) == 1
