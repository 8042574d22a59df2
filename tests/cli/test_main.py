"""The entrance: help, usage errors, exit statuses, what is imported when."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from dnnstack import cli
from dnnstack.cli import main as entrance
from dnnstack.common.errors import ConfigError, UsageError

from ..support.picture_folders import paint
from ..support.ran import ran
from ..support.stored import beside, cases

Run = Callable[..., subprocess.CompletedProcess[str]]

COMMANDS = cases(__file__, "commands")

_HELP = beside(__file__, "main_help.txt")


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)])
def test_help_is_complete_and_imports_nothing_heavy(arguments, tmp_path):
    done = ran([sys.executable, "-c", _HELP, *arguments, "--help"], cwd=tmp_path)
    status, text, heavy = json.loads(done.stdout)
    assert (status, heavy, done.stderr) == (0, [], "")
    assert "Examples:\n    dnnstack " in text
    if arguments:
        for option in entrance.dnnstack.commands[arguments[0]].params:
            if isinstance(option, click.Option):
                assert option.help, option.name
                assert max(option.opts, key=len) in text
    else:
        listed = text.partition("Commands:")[2].partition("Examples:")[0].splitlines()
        assert [line.split()[0] for line in listed if line.strip()] == COMMANDS


@pytest.mark.parametrize(("arguments", "message"), cases(__file__, "wrong_usage_ends_with_2"))
def test_wrong_usage_ends_with_2(arguments, message, capsys):
    assert entrance.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("dnnstack: error: ") or not arguments


def _raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(entrance.dnnstack.commands, "fail", click.command("fail")(fail))


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ConfigError("a.yaml:1:2: no"), 1, "dnnstack: error: a.yaml:1:2: no\n"),
        (UsageError("not so"), 2, "dnnstack: error: not so\n"),
        (KeyboardInterrupt(), 130, "dnnstack: error: interrupted\n"),
    ],
)
def test_errors_become_one_message(error, status, message, monkeypatch, capsys):
    _raising(error, monkeypatch)
    assert entrance.main(["fail"]) == status
    out, err = capsys.readouterr()
    assert (out, err.lstrip("\n")) == ("", message)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), EOFError("a bug"), OSError("a bug")])
def test_a_bug_keeps_its_traceback(error, monkeypatch):
    _raising(error, monkeypatch)
    with pytest.raises(type(error), match="a bug"):
        entrance.main(["fail"])


def test_every_command_finds_what_it_needs(start_in, trained, tmp_path):
    """In a process of its own; other tests run commands where all modules are imported."""
    for number in range(8):
        paint(tmp_path / "pictures" / "ab"[number % 2] / f"{number}.png", number)
    config, run = str(trained / "tiny.yaml"), str(trained / "runs" / "tiny")
    source = ("--config", config)
    for words in (
        ("train", *source, "--device", "numpy", "--set", "train.max_steps=1"),
        ("eval", "--run", run, "--plots-dir", "plots"),
        ("predict", "--run", run, "--save-input", "seen", "pictures/a/0.png"),
        ("new", "pictures"),
        ("runs",),
        ("weights", "tiny"),
        ("data", *source, "--save", "sheet.png"),
        ("summary", *source),
        ("explain", *source),
        ("config", *source),
        ("doctor", "--data-dir", "pictures"),
    ):
        done = start_in(tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout, words


def test_a_reader_that_goes_away_is_no_error(command, environment, tmp_path):
    with subprocess.Popen(
        [*command, "config", "--schema"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # The schema is larger than that, so its rest meets the closed end.
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    # That of a program which SIGPIPE ends, and none that a message should explain.
    assert process.returncode == 141


def test_streams_that_are_closed_lead_nowhere(run, tmp_path, command, environment):
    run("config", "--config", "tiny.yaml")
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    for words, status in (
        (("train", "--config", "tiny.yaml", "--device", "numpy"), 0),
        # Its result is lost, that of a training is in its folder.
        (("runs",), 1),
        (("predict", "-"), 2),
    ):
        done = subprocess.run([*closed, *words], cwd=tmp_path, env=environment, timeout=120)
        assert done.returncode == status, words
    assert run("eval", "--device", "numpy", "--no-plots").returncode == 0


def test_a_closed_output_is_an_error(run, tmp_path, command, environment):
    for words in (
        ("runs",),
        ("runs", "--json"),
        ("config", "--config", "mlp.yaml"),
        ("--version",),
    ):
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *command, *words],
            cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 1, words
        assert done.stderr == (
            "dnnstack: error: standard output: cannot be written: it is closed; the output is "
            "incomplete\n"
        )


def test_an_interrupt_counts_from_the_first_import_on(monkeypatch, capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(entrance, "main", interrupted)
    assert cli.run() == 130
    assert capsys.readouterr().err == "dnnstack: error: interrupted\n"


def test_version(capsys):
    assert entrance.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("dnnstack ")


def test_blas_is_calmed_before_numpy_unless_the_user_has_a_wish(environment, tmp_path):
    program = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'numpy':\n"
        "            print('numpy with', os.environ.get('OPENBLAS_NUM_THREADS'))\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from dnnstack.cli.main import main\n"
        "main(['config', '--config', 'digits.yaml'])\n"
    )
    for wish, found in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")):
        done = ran([sys.executable, "-c", program], cwd=tmp_path, env={**environment, **wish})
        assert f"numpy with {found}" in done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("error", "detail"), [(MemoryError("9 GiB"), " (9 GiB)"), (MemoryError(), "")]
)
def test_memory_that_runs_out_is_said(error, detail, monkeypatch, capsys):
    _raising(error, monkeypatch)
    assert entrance.main(["fail"]) == 1
    said = f"dnnstack: error: out of memory{detail}; lower data.batch_size"
    assert capsys.readouterr().err.startswith(said)


_AT_IMPORT = """
import os, signal, sys
class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Presses())
from dnnstack.cli import run
sys.exit(run())
"""


@pytest.mark.parametrize("name", ["early", "main", "console", "weights"])
def test_ctrl_c_during_the_imports_of_a_start_is_no_traceback(environment, name):
    done = ran(
        [sys.executable, "-c", _AT_IMPORT.format(name=f"dnnstack.cli.{name}"), "--version"],
        env=environment,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "dnnstack: error: interrupted\n"
