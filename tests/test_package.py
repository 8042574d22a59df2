"""The package as it is installed: what the wheel holds, where modules come from, what they load."""

from __future__ import annotations

import configparser
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from .support.ran import ran
from .support.stored import cases

ROOT = Path(__file__).resolve().parents[1]
PACKAGED = {
    ".py",
    ".typed",
    ".yaml",
    ".json",
    ".cu",
    ".cuh",
    ".safetensors",
    ".txt",
    ".js",
    ".c",
    ".html",
    ".css",
    ".md",
}
HEAVY = {"PIL", "cudnn", "cupy", "matplotlib", "numpy", "pydantic", "safetensors", "torch"}


def _setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def _folders() -> dict[str, str]:
    """Top-level package -> its folder in the checkout, as setup.cfg maps them."""
    lines = _setup_cfg()["options"]["package_dir"].split("\n")
    pairs = (line.split("=") for line in lines if line.strip())
    return {package.strip(): folder.strip() for package, folder in pairs}


def _packages() -> set[str]:
    return set(_setup_cfg()["options"]["packages"].split())


def _files(top: Path) -> dict[str, Path]:
    """Path inside the installed tree -> file under ``top``, for every file that has to ship."""
    found = {}
    for package, folder in _folders().items():
        inside = package.replace(".", "/")
        for path in sorted((top / folder).rglob("*")):
            if path.suffix in PACKAGED and "__pycache__" not in path.parts:
                found[f"{inside}/{path.relative_to(top / folder).as_posix()}"] = path
    return found


def _modules() -> list[str]:
    names = (name for name in _files(ROOT) if name.endswith(".py"))
    dotted = (
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names
    )
    return [name for name in dotted if not name.endswith(".__main__")]


def _python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter away from the checkout, whose folders would be on its path otherwise."""
    return ran([sys.executable, *arguments], cwd=cwd)


def test_every_code_folder_is_a_listed_typed_package():
    folders = {name.rpartition("/")[0] for name in _files(ROOT) if name.endswith(".py")}
    assert {folder.replace("/", ".") for folder in folders} == _packages() - {"dnnstack.docs"}
    for folder in folders:
        assert f"{folder}/__init__.py" in _files(ROOT)
        assert f"{folder}/py.typed" in _files(ROOT)


def test_no_folder_of_the_checkout_shadows_the_package():
    assert _folders()["dnnstack"] == "api"
    assert all(package.partition(".")[0] == "dnnstack" for package in _folders())
    assert not (ROOT / "dnnstack").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Names in a wheel built from a copy of the sources alone, plus one CUDA source.

    Building in the checkout itself would add whatever an older ``build/`` still holds.
    """
    top = tmp_path_factory.mktemp("export")
    for name in ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, top)
    for folder in (*_folders().values(), "release"):
        shutil.copytree(ROOT / folder, top / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (top / "backends" / "probe.cu").write_text("// a kernel\n", encoding="utf-8")
    (top / "dist").mkdir()
    build = "import sys; sys.path.insert(0, 'release'); import build_backend as b"
    built = _python("-c", f"{build}; b.build_wheel('dist')", cwd=top)
    assert built.returncode == 0, built.stderr
    (path,) = (top / "dist").glob("dnnstack-*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_wheel_holds_exactly_the_sources(wheel):
    shipped = {name for name in wheel if ".dist-info/" not in name}
    assert shipped == {*_files(ROOT), "dnnstack/backends/probe.cu"}


@pytest.mark.parametrize("name", ["digits", "lenet", "lenet5", "mlp"])
def test_wheel_holds_the_configs_that_users_start_from(wheel, name):
    assert f"dnnstack/configs/{name}.yaml" in wheel


def test_wheel_holds_the_licence_and_the_json_schema(wheel):
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)
    assert any(re.fullmatch(r"dnnstack/configs/.*schema\.json", name) for name in wheel)


# A circle of imports that works from one entrance only is found by its other entrances: each
# module of a circle is imported with none of ours loaded, as if it were the first. All modules are
# imported in both orders besides, for what one needs and does not import.
_IMPORT_EACH = """
import builtins, importlib, importlib.util, json, sys
names = json.load(sys.stdin)
places, needed, real = {}, {name: set() for name in names}, builtins.__import__

def forget():
    for loaded in [m for m in sys.modules if m.partition(".")[0] == "dnnstack"]:
        del sys.modules[loaded]

def load(name):
    try:
        places[name] = importlib.import_module(name).__file__
    except ModuleNotFoundError as error:
        gpu_only = name.startswith("dnnstack.backends.cuda.")
        if not (gpu_only and error.name in ("cudnn", "cupy", "cupy_backends")):
            raise

def noted(name, globals=None, locals=None, fromlist=(), level=0):
    user = (globals or {}).get("__name__")
    if user in needed:
        package = globals["__package__"]
        whole = importlib.util.resolve_name("." * level + name, package) if level else name
        needed[user].update((whole, *(f"{whole}.{each}" for each in fromlist or ())))
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = noted
for name in names:
    load(name)
builtins.__import__ = real
forget()
for name in reversed(names):
    load(name)
for name, others in needed.items():
    # A package is loaded before what is in it.
    others.add(name.rpartition(".")[0])
    others.intersection_update(needed)

def reached(name):
    found, left = set(), [name]
    while left:
        new = needed[left.pop()] - found
        found |= new
        left += new
    return found

circles = [name for name in names if name in reached(name)]
for name in circles:
    forget()
    load(name)
json.dump([places, circles], sys.stdout)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Module -> file that a fresh interpreter loads for it, and the modules in circles."""
    done = ran(
        [sys.executable, "-W", "error", "-c", _IMPORT_EACH],
        input=json.dumps(_modules()),
        cwd=tmp_path_factory.mktemp("elsewhere"),
    )
    assert done.returncode == 0, done.stderr
    places, circles = json.loads(done.stdout)
    return places, circles


@pytest.fixture(scope="module")
def places(imported):
    return imported[0]


def test_every_module_imports_first(imported):
    places, circles = imported
    missing = set(_modules()) - set(places)
    assert all(name.startswith("dnnstack.backends.cuda.") for name in missing)
    # A package and what it is made of: were none found, the search for circles would not work.
    assert {"dnnstack.graph.ops", "dnnstack.graph.ops.losses"} <= set(circles)


@pytest.mark.skipif(
    os.environ.get("DNNSTACK_EXPECT_INSTALLED") != "1",
    reason="DNNSTACK_EXPECT_INSTALLED=1 is not set: dnnstack may be an editable install",
)
def test_modules_come_from_the_installed_package(places):
    inside = [name for name, file in places.items() if ROOT in Path(file).resolve().parents]
    assert inside == []
    here = [
        name
        for name, module in sys.modules.items()
        if name.startswith("dnnstack.") and ROOT in Path(str(module.__file__)).resolve().parents
    ]
    assert here == []
    (script,) = importlib.metadata.distribution("dnnstack").entry_points
    assert (script.group, script.name) == ("console_scripts", "dnnstack")
    assert callable(script.load())


def test_help_loads_nothing_heavy(tmp_path):
    done = _python("-X", "importtime", "-m", "dnnstack.cli", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "train" in done.stdout
    lines = (line.split("|") for line in done.stderr.splitlines() if line.count("|") == 2)
    loaded = {fields[2].strip().partition(".")[0] for fields in lines}
    assert "click" in loaded
    assert loaded & HEAVY == set()


def test_the_package_itself_loads_nothing(tmp_path):
    code = "import sys; old = set(sys.modules); import dnnstack; print(*set(sys.modules) - old)"
    done = _python("-c", code, cwd=tmp_path)
    assert set(done.stdout.split()) <= {"dnnstack", "__future__"}, done.stderr


def test_the_module_is_the_command(tmp_path):
    version = importlib.metadata.version("dnnstack")
    done = _python("-m", "dnnstack", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"dnnstack {version}\n")
    done = _python("-c", "import dnnstack; print(dnnstack.__version__)", cwd=tmp_path)
    assert done.stdout == f"{version}\n"
    wrong = _python("-m", "dnnstack", "tarin", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "did you mean 'dnnstack train'" in wrong.stderr


@pytest.mark.parametrize(
    ("module", "package"), cases(__file__, "a_missing_package_of_the_installation_is_one_line")
)
def test_a_missing_package_of_the_installation_is_one_line(tmp_path, module, package):
    hidden = f"import sys; sys.modules[{module!r}] = None; "
    code = f"{hidden}from dnnstack.cli import run; sys.exit(run())"
    train = ("train", "--config", "digits.yaml", "--device", "numpy", "--set", "train.max_steps=1")
    tiny = "data.dataset={strokes: {train_count: 200, test_count: 20}}"
    arguments = (*train, "--set", tiny, "--set", "data.validation=20")
    done = _python("-c", code, *arguments, cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith(f"dnnstack: error: the Python package {module}, which dnnstack needs, ")
    assert re.search(rf"install it: \S+ -m pip install '(?i:{package})[<>=][^']+'$", line)


def test_a_missing_module_of_ours_keeps_its_traceback(tmp_path):
    hidden = "import sys; sys.modules['dnnstack.cli.main'] = None; "
    done = _python("-c", f"{hidden}from dnnstack.cli import run; run()", cwd=tmp_path)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m pip install . && dnnstack train --config digits.yaml",
        "python3 -m pip install '.[test]' && pytest",
    ],
)
def test_readme_and_ci_set_up_by_the_same_words(command):
    for name in ("README.md", ".ci/run"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert command in {line.strip() for line in lines}, f"{name} lacks the line: {command}"
