"""Nothing that the program reads can make it run code, or speak to anyone but the mirrors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support.rows import rows
from .support.stored import cases

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for typed in ROOT.glob("*/py.typed")
    for path in typed.parent.rglob("*.py")
)
CODE = {"dill", "joblib", "marshal", "pickle", "runpy", "shelve", "torch"}
NETWORK = {"http", "requests", "urllib", "ftplib", "smtplib", "socketserver"}
# Who may speak to the network, start a program, or import by name; and what for.
EXCEPTIONS = {
    ("api/__init__.py", "import_module"),  # the modules of the package
    ("backends/cuda/libraries/runtime.py", "import_module"),  # CuPy and cuDNN
    ("backends/cuda/operations/__init__.py", "import_module"),  # the modules of its own folder
    ("common/locks.py", "socket"),  # the machine's name
    ("common/options.py", "import_module"),  # the modules of a folder of ours
    ("backends/reference/__init__.py", "import_module"),  # the modules of its own folder
    ("configs/__init__.py", "import_module"),  # the modules of its own folder
    ("training/ranks/team.py", "socket"),  # the machine's name
    ("training/ranks/local.py", "socket"),  # pairs that ranks inherit
    ("training/ranks/local.py", "subprocess"),  # ranks, by this Python
    ("exports/c_file.py", "subprocess"),  # the system's compiler, on what it has just written
    ("exports/numpy_file.py", "exec"),  # what it has just written itself
    ("exports/torch_file.py", "exec"),  # the same
    ("exports/torch_step.py", "exec"),  # the same
    ("exports/listening.py", "socket"),  # what the user asks serve to listen on
    ("lab/child.py", "exec"),  # a kernel in Python that the user has named
    ("lab/program.py", "subprocess"),  # the system's compiler, and lab/child.py, by this Python
    ("plugins/loading.py", "exec"),  # a file that the user has named, or allowed when asked
    ("datasets/transfer.py", "http"),
    ("datasets/transfer.py", "socket"),
    ("datasets/transfer.py", "urllib"),
    ("reports/doctor_gpu.py", "subprocess"),  # nvidia-smi
    ("api/several.py", "subprocess"),  # itself, by this Python
    ("reports/loggers/__init__.py", "import_module"),  # the modules of its own folder
    ("reports/loggers/wandb.py", "import_module"),  # wandb and Trackio
    ("reports/drawings.py", "subprocess"),  # itself, by this Python
    ("backends/cuda/libraries/compilers.py", "subprocess"),  # nvrtc.py beside it, by this Python
}
BY_NAME = {"exec", "eval", "__import__", "import_module"}


def _found(source: str, path: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module).partition(".")[0]]
        elif isinstance(node, ast.Call):
            names = list(_called(node))
        else:
            continue
        refused = CODE | NETWORK | BY_NAME | {"socket", "subprocess", "system", "popen", "np.load"}
        for name in names:
            if name in refused and (path, name) not in EXCEPTIONS:
                yield f"{path}:{node.lineno}: {name}"


def _called(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    if name in ("np.load", "numpy.load"):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if keywords.get("allow_pickle") != "False":
            yield "np.load"
    elif name in BY_NAME or name in ("importlib.import_module", "os.system", "os.popen"):
        yield name.rpartition(".")[2]
    elif name.startswith("yaml.") and "load" in name:
        yield "eval"


@rows("path", SOURCES)
def test_no_module_runs_what_it_reads(path):
    assert list(_found((ROOT / path).read_text(encoding="utf-8"), path)) == []


@pytest.mark.parametrize("source", cases(__file__, "the_rule_finds_a_violation"))
def test_the_rule_finds_a_violation(source):
    assert len(list(_found(source, "training/x.py"))) == 1
