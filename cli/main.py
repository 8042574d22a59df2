"""The command ``dnnstack``, and the one place where errors become messages and exit statuses.

0: success. 1: an error that the message explains. 2: wrong usage. 3: trained, but without reaching
the config's goal; or less was done than was asked for. 130, 143, 129 and others: stopped by a
signal, see training/signals.py. 141: the reader of standard output has closed it, as ``head`` does;
SIGPIPE ends most programs then, without a word. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
from click.exceptions import NoArgsIsHelpError

from ..common.errors import UsageError, is_of_output, told
from ..common.printable import printable, set_output_encoding
from . import console, early, options, usage
from .bench import bench
from .check import check
from .compare import compare
from .compress import compress
from .config import config
from .data import data
from .doctor import doctor
from .evaluate import evaluate
from .explain import explain
from .export import export
from .graph import graph
from .importing import import_
from .lab import lab
from .look import look, why
from .lr_find import lr_find
from .manual import help_
from .new import new
from .predict import predict
from .race import race
from .report import report
from .runs import runs
from .serve import serve
from .step import step
from .summary import summary
from .suspects import suspects
from .sweep import sweep
from .train import train
from .weights import weights

_INTERRUPTED, _UNREAD = 130, 141


@click.group(
    cls=usage.Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=options.examples(
        "dnnstack train --config digits.yaml",
        "dnnstack eval",
        "dnnstack predict 5.png",
        "dnnstack train --config digits.yaml --resume",
    ),
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, option, wanted: _version(ctx) if wanted else None,
    help="Show the version and exit.",
)
def dnnstack() -> None:
    """Train image classifiers directly on oneDNN, cuDNN and cuBLAS.

    A YAML file describes a stack of layers; the commands train it, evaluate it, classify pictures
    with it and show which library call each layer became.
    """
    # Raises where the folder is gone: what a command finds there, nothing, would mislead.
    os.getcwd()
    # The idle workers of NumPy's OpenBLAS spin after each product and slow oneDNN down threefold.
    # The setting must precede the import of NumPy; the numpy backend raises it again.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


for command in (
    *(train, sweep, report, evaluate, compare, predict, look, why, compress, export, serve),
    *(new, runs, suspects, weights, data, import_, summary, graph, explain, step, check),
    *(lr_find, bench, race, lab, config, doctor, help_),
):
    command.params.extend(options.loudness())
    command.context_class = usage.Context
    dnnstack.add_command(command)


def _version(ctx: click.Context) -> None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("dnnstack")
    except PackageNotFoundError:
        found = "of a source tree that is not installed"
    console.say(f"dnnstack {found}")
    ctx.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, ``sys.argv`` by default, and return its exit status."""
    _open_streams()
    if arguments is None:
        console.keep_output_apart()
    early.without_settings_beside()
    set_output_encoding(sys.stdout.encoding)
    console.quote_foreign_text()
    console.set_loudness()
    try:
        status = dnnstack.main(arguments, prog_name="dnnstack", standalone_mode=False)
        if console.lost:
            raise console.lost.pop()
        return status if isinstance(status, int) else 0
    except usage.ReaderGone:
        console.drop_output()
        return _UNREAD
    except NoArgsIsHelpError as error:
        console.help_text(error.format_message())
        return 2
    except click.UsageError as error:
        given = sys.argv[1:] if arguments is None else arguments
        return _complain(usage.explained(error, given), 2)
    except click.ClickException as error:
        return _complain(printable(error.format_message()), 1)
    except click.Abort as error:
        if isinstance(error.__cause__, EOFError):
            raise error.__cause__ from None
        return _complain("interrupted", _INTERRUPTED)
    except UsageError as error:
        return _complain(str(error), 2)
    except Exception as error:
        if (text := told(error)) is None:
            raise
        if is_of_output(error):
            console.drop_output()
        return _complain(text, 1)


def _open_streams() -> None:
    """Open /dev/null for each standard stream that the parent process closed.

    Otherwise the next opened file would get that stream's number, and receive what is written to
    it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        if name == "stdout":
            console.output_is_closed()
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _complain(message: str, status: int) -> int:
    console.error(message)
    return status
