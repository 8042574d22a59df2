"""Wrong usage: what was probably meant is named; and what the tab key offers."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.cli import console, usage
from dnnstack.cli import main as entrance
from dnnstack.configs import load_config
from dnnstack.configs.find import packaged_configs

from ..support.ran import ran
from ..support.stored import stored
from .conftest import TINY

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        *stored(__file__, "usage.txt"),
        ("frobnicate", "No such command 'frobnicate'\n"),
        ("train --frobnicate", "No such option '--frobnicate'\n"),
        ("summary", "name a YAML file, as in dnnstack summary --config digits.yaml\n"),
        ("config", "name a YAML file, as in dnnstack config --config digits.yaml\n"),
        ("sweep", "name a YAML file, as in dnnstack sweep --config lenet-search.yaml\n"),
        ("summary lenet", "name a run or a checkpoint with --checkpoint\n"),
        ("runs lenet", "with --runs-dir, a group of runs with --group\n"),
        ("compress lenet other", "Got unexpected extra argument (other)\n"),
        ("train --config lenet.yaml --device gpu", "'cuda'; did you mean 'cuda'?\n"),
    ],
)
def test_what_was_meant_is_named(line, hint, capsys, tmp_path):
    assert entrance.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert hint in err
    assert err.splitlines()[-1].startswith("See 'dnnstack ")
    assert err.splitlines()[-1].endswith(" --help'.")


@pytest.mark.parametrize("columns", [70, 80, 100])
def test_help_breaks_no_name(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in ("train", "sweep", "predict"):
        assert entrance.main([command, "--help"]) == 0
        text = capsys.readouterr().out
        assert not [line for line in text.splitlines() if line.endswith("-")]
        assert text.isascii()
    entrance.main(["train", "--help"])
    words = capsys.readouterr().out.split()
    assert {f"{name}," for name in packaged_configs()[:-1]} <= set(words)


def test_an_example_fits_a_terminal(capsys):
    """Each is a line to copy; one that the terminal breaks is two commands to a shell."""
    assert entrance.main(["--help"]) == 0
    listed = capsys.readouterr().out.split("Commands:\n")[1].split("\n\n")[0]
    names = [line.split()[0] for line in listed.splitlines()]
    assert len(names) > 10
    assert "..." not in listed
    for name in names:
        assert entrance.main([name, "--help"]) == 0
        text = capsys.readouterr().out
        wide = [line for line in text.splitlines() if line.startswith("    dnnstack")]
        assert [line for line in wide if len(line) > 80] == [], name
        if "Examples:" in text:
            assert wide, name


def test_the_end_of_the_input_ends_the_line_of_a_question(capsys, monkeypatch):
    for answer, allowed in (("", False), ("y", True), ("y\n", True)):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert console.confirm("A plugin.", "May it run?") == allowed
        asked = capsys.readouterr().err.splitlines(keepends=True)[-1]
        # A terminal shows the end of the line that is typed.
        assert asked == "May it run? [y/N] " + "\n" * (answer != "y\n")


def test_a_picture_in_the_place_of_a_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("5.png").touch()
    assert entrance.main(["5.png"]) == 2
    assert "did you mean 'dnnstack predict 5.png'?" in capsys.readouterr().err


@pytest.mark.parametrize("option", sorted(usage.KEYS))
def test_the_keys_named_for_options_are_keys(option):
    load_config("digits.yaml", [usage.KEYS[option]])


Complete = Callable[..., list[str]]


def test_the_question_ends_its_line_at_ctrl_c(monkeypatch, capsys):
    class Interrupted:
        def readline(self) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        console.confirm("A plugin.", "May it run?")
    assert capsys.readouterr().err.endswith("May it run? [y/N] \n")


@pytest.fixture
def complete(commands, environment, trained):
    """What bash is offered for the last word, in a folder with ``tiny.yaml`` and its run."""

    def offered(*words: str) -> list[str]:
        asked = {
            "COMP_WORDS": " ".join(("dnnstack", *words)),
            "COMP_CWORD": str(len(words)),
            "_DNNSTACK_COMPLETE": "bash_complete",
        }
        done = commands.run(trained, (), environment | asked)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        *stored(__file__, "tab_key.txt"),
        ("train --resume ", "plain,auto plain,tiny"),
        ("train --set run.fusion = ", "plain,false plain,true"),
    ],
)
def test_the_tab_key(complete, words, offered):
    assert complete(*words.split(" ")) == offered.split(" ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_produced(shell, command, environment, tmp_path):
    if shell == "bash":
        version = ran(
            ["bash", "-c", "echo $((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1]))"],
            env=dict(os.environ),
        )
        if version.returncode or int(version.stdout) < 404:
            pytest.skip("completion needs bash 4.4 or later")
    done = ran(command, cwd=tmp_path, env={**environment, "_DNNSTACK_COMPLETE": f"{shell}_source"})
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_DNNSTACK_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize("option", ["--data-dir", "--runs-dir"])
def test_an_empty_folder_is_none(run, tmp_path, option):
    done = run("train", "--config", "tiny.yaml", option, "", status=2)
    assert f"'{option}': the value is empty; give a path, or leave the option out" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_an_empty_config_is_none(run):
    done = run("train", "--config", "")
    assert (done.returncode, done.stderr) == (
        1,
        "dnnstack: error: --config is empty; name a YAML file\n",
    )


def test_standard_input_is_a_file(run):
    done = run("train", "--config", "-")
    assert "-: no such file; a config is not read from standard input by this name" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        *("eval --run", "eval --checkpoint", "eval --ensemble", "train --config"),
        *("report", "new", "weights", "runs --runs-dir", "runs --group"),
        *("summary --checkpoint", "train --config tiny.yaml --resume", "compress --config"),
    ],
)
def test_a_name_that_is_too_long_is_told(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    assert entrance.main([*line.split(), "a" * 300]) == 1
    told, *more = capsys.readouterr().err.splitlines()
    assert not more
    assert told.startswith("dnnstack: error: ")
    assert "aaaa" in told


def test_an_empty_name_of_a_group(run):
    assert "an empty name: no such group of runs" in run("runs", "--group", "").stderr
