"""A run with a plugin: what is noted of it, and what needs it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.plugins.loading import read_plugin
from dnnstack.plugins.trust import remember

from ..support.plugin_files import CONFIG, TRAP
from .conftest import Done, Run

NAMED = ("--plugin", "trap.py")


@pytest.fixture
def trained(folder, run):
    done = run(folder, "train", "--config", "mine.yaml", *NAMED)
    assert done.returncode == 0, done.stderr
    assert "next        dnnstack eval --plugin trap.py\n" in done.stdout
    return folder


def longer(run: Run, folder: Path, *more: str) -> Done:
    change = ("--set", "train.max_steps=6")
    return run(folder, "train", "--config", "mine.yaml", *change, "--resume", *more)


def test_the_run_knows_the_file_and_its_hash(trained):
    sha = read_plugin(trained / "trap.py").sha256
    config = (trained / "runs/mine/config.yaml").read_text("utf-8")
    assert f"plugins: {{file: trap.py, sha256: {sha}}}\n" in config
    assert not list((trained / "runs").rglob("*.py"))


def test_the_same_file_under_the_same_name_goes_without_a_word(trained, run):
    for done in (longer(run, trained, *NAMED), run(trained, "eval", "--no-plots", *NAMED)):
        assert done.returncode == 0, done.stderr
        assert "plugin" not in done.stderr


def test_the_next_command_of_a_group_names_the_plugin(folder, run):
    done = run(folder, "train", "--config", "mine.yaml", *NAMED, "--seeds", "2")
    assert done.returncode == 0, done.stderr
    words = "eval --ensemble runs/mine-seeds --plugin trap.py"
    assert f"next        dnnstack {words}\n" in done.stdout
    done = run(folder, *words.split(), "--no-plots")
    assert done.returncode == 0, done.stderr


def test_a_file_may_be_named_twice(trained, run):
    done = run(trained, "eval", "--no-plots", *NAMED, "--plugin", "./trap.py")
    assert done.returncode == 0, done.stderr


def test_a_changed_file_is_refused_or_named(trained, run):
    """Both hashes are told; whoever names the file has decided."""
    old = read_plugin(trained / "trap.py").sha256
    (trained / "trap.py").write_text(TRAP + "\n# changed\n", encoding="utf-8")
    new = read_plugin(trained / "trap.py").sha256
    said = f"was trained with the file of SHA-256 {old}, now it is {new}"
    done = run(trained, "eval", "--no-plots", "-q", *NAMED)
    assert done.returncode == 0
    assert f"{said}; the answers may differ" in done.stderr
    done = longer(run, trained, *NAMED)
    assert done.returncode == 0, done.stderr
    assert f"{said}; the training continues with the changed file" in done.stderr


def test_a_changed_file_that_the_config_names_is_refused(trained, run):
    (trained / "trap.py").write_text(TRAP + "\n# changed\n", encoding="utf-8")
    remember(read_plugin(trained / "trap.py"))
    done = longer(run, trained)
    assert done.returncode == 1
    assert "put the file back, or continue with the changed one" in done.stderr
    assert f"--plugin {trained / 'trap.py'}" in done.stderr


def test_a_packaged_config_with_a_plugin(folder, run):
    done = run(
        folder, *("config", "--config", "digits.yaml", *NAMED, "--set", "schedule={type: flat}")
    )
    assert done.returncode == 0, done.stderr
    assert "plugins: {file: trap.py, sha256: " in done.stdout
    assert "schedule: flat\n" in done.stdout


def test_the_schema_has_its_kinds(folder, run):
    done = run(folder, "config", "--schema", *NAMED)
    assert done.returncode == 0, done.stderr
    assert '"flat"' in done.stdout
    assert '"flat"' not in run(folder, "config", "--schema").stdout


def test_a_fault_of_the_plugin_is_a_line_with_its_place(folder, run):
    code = TRAP.replace("return lr + 0 * length.t", "return lr / nothing")
    (folder / "trap.py").write_text(code, encoding="utf-8")
    done = run(folder, "train", "--config", "mine.yaml", *NAMED)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"dnnstack: error: {folder / 'trap.py'}:9: rates failed: NameError: name 'nothing' is not "
        "defined; this is the plugin's code, not dnnstack's"
    )


def test_resuming_by_the_hint_after_a_change_of_the_config(trained, run):
    (trained / "mine.yaml").write_text(CONFIG, encoding="utf-8")
    done = run(
        trained,
        *("train", "--config", "runs/mine/config.yaml", *NAMED, "--set", "train.max_steps=6"),
        *("--resume", "runs/mine"),
    )
    assert done.returncode == 0, done.stderr
