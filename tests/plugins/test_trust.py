"""No code runs that the user has not allowed: not by a config, a run, a checkpoint or a record."""

from __future__ import annotations

import errno
import os
import pty
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dnnstack.plugins.loading import read_plugin
from dnnstack.plugins.trust import is_trusted, remember, state_dir

from ..support.plugin_files import CONFIG, TRAP

COMMAND = ("config", "--config", "mine.yaml")
NAMED = ("--plugin", "trap.py")


def ran(folder: Path) -> bool:
    """Whether the plugin ran since the last call."""
    there = (folder / "ran").exists()
    (folder / "ran").unlink(missing_ok=True)
    return there


@pytest.mark.parametrize("command", ["train", "summary", "explain", "config", "data"])
def test_a_config_in_a_script_runs_no_plugin_that_is_not_named(folder, run, command):
    line = [command, "--config", "mine.yaml", *(["--no-sheet"] if command == "data" else [])]
    # What is piped in is no answer.
    done = run(folder, *line, typed="y\n" * 9)
    assert done.returncode == 1
    assert "the config names this plugin, whose code would run with your rights" in done.stderr
    assert not ran(folder)
    done = run(folder, *line, *NAMED)
    assert done.returncode == 0, done.stderr
    assert ran(folder)


def test_naming_it_is_not_remembered(folder, run):
    assert run(folder, *COMMAND, *NAMED).returncode == 0
    assert run(folder, *COMMAND).returncode == 1


@pytest.mark.parametrize("answer", ["", "n", "no", "sure", "Y E S"])
def test_any_answer_but_yes_runs_nothing(folder, run, answer):
    done = run(folder, *COMMAND, answer=answer)
    assert done.returncode == 1
    assert "the plugin was not allowed, so nothing was run" in done.stderr
    assert not ran(folder)
    assert not state_dir().exists()


def test_yes_is_asked_for_once_and_only_for_this_file(folder, run, tmp_path):
    done = run(folder, *COMMAND, answer="y")
    assert done.returncode == 0
    sha = read_plugin(folder / "trap.py").sha256
    assert f"{folder / 'trap.py'} ({TRAP.count(chr(10))} lines, SHA-256 {sha})" in done.stderr
    assert ran(folder)
    # Not again, neither here nor in a script.
    done = run(folder, *COMMAND, answer="n")
    assert (done.returncode, done.stderr) == (0, "")
    assert run(folder, *COMMAND).returncode == 0
    # But for other bytes, and for another folder.
    other = shutil.copytree(folder, tmp_path / "other")
    ran(other)
    assert run(other, *COMMAND).returncode == 1
    assert not ran(other)
    (folder / "trap.py").write_text(TRAP + "\n", encoding="utf-8")
    ran(folder)
    assert run(folder, *COMMAND).returncode == 1
    assert not ran(folder)


def test_on_a_terminal(folder):
    """The question is on the error output; without an answer nothing runs."""
    for typed, status in ((b"\x04", 1), (b"yes\n", 0)):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "dnnstack.cli", *COMMAND],
            cwd=folder,
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,
        )
        os.close(slave)
        seen = b""
        while b"[y/N] " not in seen:
            seen += os.read(master, 4096)
        os.write(master, typed)
        out, _ = process.communicate(timeout=120)
        os.close(master)
        assert process.returncode == status
        assert (b"schedule: flat" in out) == ran(folder) == (status == 0)


def test_an_answer_that_cannot_be_remembered_holds_for_this_time(folder, run):
    state_dir().parent.write_text("in the way")
    done = run(folder, *COMMAND, answer="yes")
    assert done.returncode == 0
    assert "the answer cannot be remembered: Not a directory" in done.stderr
    assert ran(folder)


def test_a_run_and_its_checkpoints_run_nothing(folder, run, tmp_path):
    """A stranger's folder, with the plugin everywhere that it could be looked for."""
    done = run(folder, "train", "--config", "mine.yaml", *NAMED)
    assert done.returncode == 0, done.stderr
    stranger = tmp_path / "stranger"
    shutil.copytree(folder / "runs", stranger / "runs", symlinks=True)
    at = stranger / "runs" / "mine"
    places = (stranger, at, at / "checkpoints", stranger / "runs")
    for place in places:
        shutil.copy(folder / "trap.py", place)
    file, config = "runs/mine/checkpoints/step-4.safetensors", "runs/mine/config.yaml"
    for line in (
        ("eval",),
        ("eval", "--run", "mine"),
        ("eval", "--checkpoint", file),
        ("predict", "p.png"),
        ("predict", "--checkpoint", file, "p.png"),
        ("train", "--config", config, "--resume"),
        ("train", "--config", config, "--resume", file),
        ("train", "--config", "digits.yaml", "--device", "numpy", "--resume", "runs/mine"),
        ("config", "--config", config),
        ("runs",),
    ):
        done = run(stranger, *line, answer="y")
        assert "[y/N]" not in done.stderr, line
        assert done.returncode == (0 if line == ("runs",) else 1), done.stderr
        assert not any(map(ran, places)), line
        if line[0] in ("eval", "predict"):
            assert "needs the plugin trap.py (SHA-256 " in done.stderr
            assert "give the file with --plugin trap.py" in done.stderr


@pytest.mark.parametrize(
    "name", ["../trap.py", "/tmp/trap.py", "a/trap.py", "trap", "trap.py\\n", "~/trap.py", ".py"]
)
def test_a_config_names_files_of_its_own_folder_alone(folder, run, name):
    (folder / "mine.yaml").write_text(CONFIG.replace("trap.py", f'"{name}"'), encoding="utf-8")
    shutil.copy(folder / "trap.py", folder.parent)
    done = run(folder, *COMMAND, answer="y")
    assert done.returncode == 1
    assert "expected the name of a Python file in the config's folder" in done.stderr
    assert not ran(folder)
    assert not ran(folder.parent)


def test_a_key_on_the_command_line_names_no_plugin(folder, run):
    for assignment in ("plugins=trap.py", " plugins = [trap.py]", "plugins.0.file=trap.py"):
        done = run(folder, "config", "--config", "lenet.yaml", "--set", assignment, answer="y")
        assert done.returncode == 1
        assert "--set plugins: name the file with --plugin instead" in done.stderr
    assert not ran(folder)


def test_a_hash_in_the_config_must_be_right(folder, run):
    sha, wrong = read_plugin(folder / "trap.py").sha256, "ab" * 32
    remember(read_plugin(folder / "trap.py"))
    text = CONFIG.replace("trap.py", f"{{file: trap.py, sha256: {sha}}}")
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    assert run(folder, *COMMAND).returncode == 0
    (folder / "mine.yaml").write_text(text.replace(sha, wrong), encoding="utf-8")
    ran(folder)
    done = run(folder, *COMMAND)
    assert done.returncode == 1
    assert f"has the SHA-256 {sha}, the config asks for {wrong}" in done.stderr
    assert not ran(folder)


@pytest.mark.parametrize("bit", [0o020, 0o002])
@pytest.mark.parametrize("mode", ["folder", "file", "link"])
def test_a_record_that_others_could_have_written_is_not_used(folder, mode, bit):
    code = read_plugin(folder / "trap.py")
    remember(code)
    assert is_trusted(code)
    record = state_dir() / "trusted-plugins"
    # What others may read or run is no danger.
    state_dir().chmod(0o755)
    record.chmod(0o644)
    assert is_trusted(code)
    if mode == "folder":
        state_dir().chmod(0o755 | bit)
    elif mode == "file":
        record.chmod(0o644 | bit)
    else:
        shutil.move(record, folder / "theirs")
        record.symlink_to(folder / "theirs")
    assert not is_trusted(code)


def test_a_record_that_cannot_be_read_allows_nothing_and_is_not_replaced(
    folder, tmp_path, monkeypatch
):
    def failing(path: Path) -> os.stat_result:
        raise OSError(errno.EIO, "a bad sector")

    other = shutil.copytree(folder, tmp_path / "other")
    code, another = (read_plugin(path / "trap.py") for path in (folder, other))
    remember(code)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "lstat", failing)
        assert not is_trusted(code)
        with pytest.raises(OSError, match="a bad sector"):
            remember(another)
    assert is_trusted(code)
    assert not is_trusted(another)


def test_a_record_is_private_and_has_a_line_for_a_file(folder):
    odd = folder / "a\nb"
    odd.mkdir()
    shutil.copy(folder / "trap.py", odd)
    for path in (folder / "trap.py", odd / "trap.py"):
        remember(read_plugin(path))
        remember(read_plugin(path))
        assert is_trusted(read_plugin(path))
    # A file that has changed takes the place of what it was, and of nothing else.
    changed = folder / "trap.py"
    changed.write_text(TRAP + "\n# changed\n", encoding="utf-8")
    remember(read_plugin(changed))
    assert is_trusted(read_plugin(changed))
    assert is_trusted(read_plugin(odd / "trap.py"))
    lines = (state_dir() / "trusted-plugins").read_text("ascii").splitlines()
    assert len(lines) == 2
    assert state_dir().stat().st_mode & 0o777 == 0o700


def test_the_record_keeps_the_newest_and_is_never_too_long_to_be_read(folder):
    code = read_plugin(folder / "trap.py")
    remember(code)
    record = state_dir() / "trusted-plugins"
    record.write_text("".join(f"{code.sha256} '/{n}.py'\n" for n in range(1000)), "ascii")
    assert is_trusted(replace(code, path=Path("/0.py")))
    remember(code)
    known = [*map(Path, ("/0.py", "/1.py", "/999.py")), code.path]
    trusted = [is_trusted(replace(code, path=path)) for path in known]
    assert trusted == [False, True, True, True]
    # Of a thousand names of the usual length.
    record.write_text(record.read_text("ascii").replace("'/", f"'/{'x' * 900}/"), "ascii")
    assert 1 << 19 < record.stat().st_size < 1 << 20
    assert is_trusted(replace(code, path=Path(f"/{'x' * 900}/999.py")))
    with record.open("a") as file:
        file.write("x" * (1 << 20))
    assert not is_trusted(code)


def test_a_relative_state_folder_is_ignored(folder, monkeypatch):
    """As the XDG specification says: it would be another one in every folder."""
    monkeypatch.setenv("HOME", str(folder))
    for value in ("state", ""):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert state_dir() == folder / ".local" / "state" / "dnnstack"


@pytest.mark.parametrize("marker", ["checkpoints", "log.jsonl"])
def test_either_file_of_a_run_tells_its_folder(folder, run, marker):
    """Where only one of them is left, or was ever written."""
    remember(read_plugin(folder / "trap.py"))
    assert run(folder, *COMMAND).returncode == 0
    assert ran(folder)
    (folder / marker).touch()
    done = run(folder, *COMMAND, answer="y")
    assert done.returncode == 1
    assert "plugins are not taken from the folder of a run" in done.stderr
    assert not ran(folder)


@pytest.mark.parametrize("terminal", ["stdin", "stderr"])
def test_one_stream_on_a_terminal_is_not_enough_to_ask(folder, run, terminal):
    """Nobody would see the question, or what is typed comes from a file."""
    done = run(folder, *COMMAND, answer="y", terminals=[terminal])
    assert done.returncode == 1
    assert "[y/N]" not in done.stderr
    assert not ran(folder)


def test_a_name_with_a_forged_line_stays_on_its_line(folder, run):
    odd = folder / "x\ndnnstack: forged\x1b[2J"
    odd.mkdir()
    for name in ("mine.yaml", "trap.py"):
        shutil.copy(folder / name, odd)
    done = run(odd, *COMMAND, answer="n")
    assert done.returncode == 1
    assert "\x1b[2J" not in done.stderr
    assert "\ndnnstack: forged" not in done.stderr
