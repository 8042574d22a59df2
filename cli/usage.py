"""Wrong usage: what was probably meant, and how to type it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..common.printable import paragraph, printable

_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)")
# One at which no line is broken.
_HYPHEN = "\N{NON-BREAKING HYPHEN}"

_COMMANDS_ELSEWHERE = {
    "train": "fit",
    "train --resume": "resume continue",
    "eval": "test evaluate validate",
    "predict": "infer classify recognise recognize",
    "runs": "list ls status",
    "compress": "prune quantize quantise",
    "bench": "benchmark time timeit",
    "data": "dataset datasets",
    "summary": "model",
    "explain --measure": "profile",
    "config --schema": "schema",
    "doctor": "check info",
    "help": "docs man manual",
    "--version": "version",
}
"""Our commands, and the names that other tools have for them."""

_TWO = "name two runs or checkpoints, as in dnnstack compare digits digits-2"
_NUMBERS = (
    (re.compile(r"(\S+) is not in the range x>=(\S+)$"), r"expected at least \2 (got \1)"),
    (
        re.compile(r"(\S+) is not in the range (\S+)<=x<=(\S+)$"),
        r"expected a number from \2 to \3 (got \1)",
    ),
    (
        re.compile(r"('[^']*') is not a valid integer(?: range)?$"),
        r"expected a whole number (got \1)",
    ),
    (re.compile(r"('[^']*') is not a valid float(?: range)?$"), r"expected a number (got \1)"),
)

_ARGUMENTS = {
    "compare first": _TWO,
    "compare second": _TWO,
    "import file": "name a file, as in dnnstack import resnet18.onnx",
    "lab action": "name new, run or grade, as in dnnstack lab new conv2d",
    "lab name": "name an operation, a file or a folder, as in dnnstack lab new conv2d",
    "new folder": "name a folder with a folder for each class, as in dnnstack new flowers",
    "predict paths": "name pictures, as in dnnstack predict 5.png",
    "weights source": "name a run or a file, as in dnnstack weights digits",
}
"""What to type for the arguments that commands cannot do without."""

_OPTIONS_ELSEWHERE = {
    "--gpu": "--device cuda",
    "--cuda": "--device cuda",
    "--cpu": "--device cpu",
    "--model": "--checkpoint FILE",
    "--weights": "--checkpoint FILE",
    "--data-root": "--data-dir FOLDER",
    "--debug": "--verbose",
    "--silent": "--quiet",
}

KEYS = {
    "--epochs": "train.epochs=5",
    "--max-steps": "train.max_steps=1000",
    "--steps": "train.max_steps=1000",
    "--patience": "train.patience=3",
    "--lr": "optimizer.lr=0.05",
    "--learning-rate": "optimizer.lr=0.05",
    "--momentum": "optimizer.momentum=0.9",
    "--weight-decay": "optimizer.weight_decay=5e-4",
    "--batch-size": "data.batch_size=128",
    "--validation": "data.validation=5000",
    "--dataset": "data.dataset=mnist",
    "--seed": "seed=2",
    "--name": "name=second",
    "--precision": "run.precision=fp32",
}
"""Options that other trainers have, and the ``--set`` that does the same."""


class ReaderGone(Exception):
    """The reader of standard output has closed it."""


@contextmanager
def _read() -> Iterator[None]:
    """Let click see no closed pipe: its answer is 1, the status of errors with a message."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None


class Help(click.HelpFormatter):
    """Breaks lines between words only: a name such as lenet-300-100.yaml is to be copied."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], *given: Any, **more: Any) -> None:
        whole = [(first, second.replace("-", _HYPHEN)) for first, second in rows]
        super().write_dl(whole, *given, **more)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


class Context(click.Context):
    formatter_class = Help


class Commands(click.Group):
    """Lists its commands in the order in which they were added: that of a typical session."""

    context_class = Context

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        with _read():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _read():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            hint = _command_hint(name, self.commands)
            ctx.fail(f"No such command '{name}'" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


def explained(error: click.UsageError, given: Sequence[str]) -> str:
    """The message for wrong usage: what is wrong, what was probably meant, where to find help.

    given: the words of the command line.
    """
    message = _plainer(error.format_message().rstrip("."))
    if isinstance(error, click.NoSuchOption):
        message = f"No such option '{error.option_name}'"
    hint = _hint(error, given)
    message += f"; {hint}" if hint else ""
    if error.ctx is None:
        return printable(message)
    return paragraph(
        [
            message,
            *error.ctx.get_usage().splitlines(),
            f"See '{error.ctx.command_path} --help'.",
        ]
    )


def _plainer(message: str) -> str:
    """What click says of numbers, in the words of a config's messages."""
    for found, said in _NUMBERS:
        message = found.sub(said, message)
    return message


def _hint(error: click.UsageError, given: Sequence[str]) -> str:
    ctx = error.ctx
    if ctx is None:
        return ""
    if isinstance(error, click.NoSuchOption):
        return _option_hint(error.option_name, ctx)
    if extra := _EXTRA.match(error.format_message()):
        return _extra_hint(extra[1].split(), ctx)
    if error.message.startswith("'gpu' is not one of"):
        return "did you mean 'cuda'?"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        if error.param.name == "reference":
            if files := _yaml_files(given):
                return f"did you mean '{ctx.command_path} --config {files[0]}'?"
            example = "lenet-search.yaml" if ctx.info_name == "sweep" else "digits.yaml"
            return f"name a YAML file, as in {ctx.command_path} --config {example}"
        return _ARGUMENTS.get(f"{ctx.info_name} {error.param.name}", "")
    return ""


def _extra_hint(extra: Sequence[str], ctx: click.Context) -> str:
    """What was probably meant by words of which a command takes none."""
    own, files = _options(ctx.command), _yaml_files(extra)
    if files and "--config" in own:
        return f"did you mean '{ctx.command_path} --config {files[0]}'?"
    if "--run" in own:
        return "name a run with --run, a checkpoint with --checkpoint"
    takes_none = not any(isinstance(each, click.Argument) for each in ctx.command.params)
    if "--checkpoint" in own and takes_none:
        return "name a run or a checkpoint with --checkpoint"
    if "--group" in own:
        return "name a folder of runs with --runs-dir, a group of runs with --group"
    return ""


def _yaml_files(words: Iterable[str]) -> list[str]:
    return [word for word in words if Path(word).suffix in (".yaml", ".yml")]


def _command_hint(name: str, known: Iterable[str]) -> str:
    if Path(name).suffix in (".yaml", ".yml"):
        return f"did you mean 'dnnstack train --config {name}'?"
    if Path(name).suffix:
        return f"did you mean 'dnnstack predict {name}'?" if Path(name).is_file() else ""
    elsewhere = [own for own, words in _COMMANDS_ELSEWHERE.items() if name.lower() in words.split()]
    found = elsewhere or difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean 'dnnstack {found[0]}'?" if found else ""


def _option_hint(name: str, ctx: click.Context) -> str:
    own = _options(ctx.command)
    elsewhere = _OPTIONS_ELSEWHERE.get(name, "")
    if elsewhere.partition(" ")[0] in own:
        return f"did you mean '{elsewhere}'?"
    if name in KEYS and "--set" in own:
        return f"it is a key of the config: --set {KEYS[name]}"
    group = ctx.find_root().command
    commands = group.commands if isinstance(group, click.Group) else {}
    others = [other for other, command in commands.items() if name in _options(command)]
    if others and ctx.command is group:
        return f"it comes after the command, as in 'dnnstack {others[0]} {name}'"
    close = difflib.get_close_matches(name, own, n=1, cutoff=0.7)
    if close:
        return f"did you mean '{close[0]}'?"
    if name == "--config" and "--checkpoint" in own:
        return "a trained network contains its config: name the network with --run or --checkpoint"
    return f"it is an option of {', '.join(others)}" if others else ""


def _options(command: click.Command) -> list[str]:
    """The long names of a command's options."""
    names = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
    return [name for name in [*names, "--help"] if name.startswith("--")]
