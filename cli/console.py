"""What commands print besides their results: notes on stderr, and a progress bar on a terminal.

How much is printed is one setting of the process: ``--quiet`` leaves only errors and warnings,
``--verbose`` adds what the modules log. Whatever is printed passes through here, where nothing is
left in it that a terminal would obey, except for our own colours.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, ClassVar, TextIO

import click

from ..common.cells import asked_columns, columns, wrapped_lines
from ..common.errors import DatasetError, Warned
from ..common.files import cache_dir
from ..common.printable import encodable, printable, printable_lines

_HOUR = 3600.0
# The beginning of ``DISTURBED`` in backends/settling.py, which every start on a busy machine gives.
_SELDOM = "other programs kept this device busy"
# The settings by which libraries print on standard output, where JSON may be expected.
_TALK = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "NCCL_DEBUG", "UCX_LOG_LEVEL")
_COLOURED = ("xterm", "screen", "tmux", "rxvt", "linux", "ansi", "cygwin", "putty", "Eterm")
_quiet = False
_closed = False
lost: list[OSError] = []
"""Lines of a result that could not be written for want of space; told at the end."""
_elsewhere: Callable[[str], object] | None = None


class Coloured(str):
    """A text of ours with a colour, which printing leaves as it is."""


class _Spoken(logging.Handler):
    """Prints log records like other notes, and a warning once, however often its cause is met.

    It looks up stderr each time, because tests replace it.
    """

    warned: ClassVar[set[str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage())
        if record.levelno < logging.WARNING:
            _stderr(f"dnnstack: {text}")
        elif text not in self.warned:
            self.warned.add(text)
            _stderr(f"dnnstack: warning: {text}")


_SPOKEN = _Spoken()


def set_loudness(*, quiet: bool = False, verbose: bool = False) -> None:
    """Set how much this process prints; by default neither quiet nor verbose."""
    global _quiet
    _quiet = quiet
    _SPOKEN.warned.clear()
    logging.getLogger("dnnstack").setLevel(logging.INFO if verbose else logging.WARNING)
    if _SPOKEN not in logging.getLogger().handlers:
        logging.getLogger().addHandler(_SPOKEN)


def is_quiet() -> bool:
    """Whether ``--quiet`` was given."""
    return _quiet


def speak_through(heard: Callable[[str], object]) -> None:
    """From now on hand what would go to stderr to another process, which prints it."""
    global _elsewhere
    _elsewhere = heard


def relay(text: str) -> None:
    """Print on stderr what another process wanted to print there."""
    _stderr(text)


def note(text: str) -> None:
    """Print one line on stderr, apart from the results; with ``--quiet`` only what is Warned."""
    if isinstance(text, Warned):
        _stderr(f"dnnstack: warning: {printable(text)}")
    elif not _quiet and (text := seldom(text)):
        _stderr(f"dnnstack: {printable(text)}")


def seldom(text: str) -> str:
    """The text of a note; "" if it is about the machine, and was printed in the last hour."""
    return hourly("disturbed", text) if text.startswith(_SELDOM) else text


def hourly(name: str, text: str) -> str:
    """The text of a note; "" if it is empty, or was printed under this name in the last hour.

    A file in the cache says when; without a cache that can be written, the note comes every time.
    """
    if not text:
        return ""
    mark = cache_dir() / f"told-{name}"
    with suppress(OSError):
        if abs(time.time() - mark.stat().st_mtime) < _HOUR:
            return ""
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return text


class HeldNotes:
    """Notes about what comes next, which are told once it comes: not before an error instead."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._told = False

    def __call__(self, text: str) -> None:
        if self._told:
            note(text)
        else:
            self._held.append(text)

    def tell(self) -> None:
        """Print them, and the next ones at once."""
        held, self._held, self._told = self._held, [], True
        for text in held:
            note(text)

    @contextmanager
    def told_on_error(self) -> Iterator[None]:
        """An error in this block is one of those that the notes are about."""
        try:
            yield
        except Exception:
            self.tell()
            raise


def error(text: str) -> None:
    """Print an error on stderr; the command may continue or end.

    text: of a DnnstackError or a paragraph, whose line breaks are ours.
    """
    _stderr("dnnstack: ", coloured("error:", "red", sys.stderr), f" {text}")


def confirm(statement: str, question: str) -> bool:
    """Ask on the terminal; no answer, an empty one and any but yes mean no."""
    _stderr(f"dnnstack: {printable(statement)}")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    answer = ""
    try:
        answer = sys.stdin.readline()
    finally:
        if not answer.endswith("\n"):
            # At the end of the input, or at Ctrl-C, nobody has ended the line of the question.
            sys.stderr.write("\n")
    return answer.strip().lower() in ("y", "yes")


def help_text(text: str) -> None:
    """Print how a command is used, on stderr."""
    click.echo(clean([text]), err=True)


def keep_output_apart() -> None:
    """Let what libraries print on standard output, if asked to, go to stderr."""
    if not _closed and any(os.environ.get(name) for name in _TALK):
        own = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def output_is_closed() -> None:
    """From now on a result that is to be printed is an error: nobody would get it."""
    global _closed
    _closed = True


def _check_output() -> None:
    if _closed:
        raise OSError(errno.EBADF, "it is closed")


def say(*parts: str) -> None:
    """Print a result on standard output: one text in parts, whose line breaks are ours."""
    _check_output()
    click.echo(clean(parts))


def page(text: str) -> None:
    """Print a long text: on a terminal by a pager, if it has more lines than that."""
    shown = wrapped_lines(clean([text]), columns(sys.stdout))
    if sys.stdout.isatty() and shown.count("\n") >= get_terminal_size().lines:
        click.echo_via_pager(shown)
    else:
        tell(text.rstrip("\n"))


def show(found: Any, as_json: bool, text: Callable[[], str], indent: int | None = None) -> None:
    """Print a result: its ``to_json()``, or the ``text`` that people read."""
    if as_json:
        say(json.dumps(found.to_json(), indent=indent))
    else:
        tell(text())


def write(line: str) -> None:
    """Write a line of a file format to standard output: UTF-8, with bytes of paths unchanged.

    On a terminal, what it would obey or cannot show is escaped.
    """
    _check_output()
    if sys.stdout.isatty():
        click.echo(clean([line]))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.flush()


def tell(*parts: str) -> None:
    """The same for text that people read: lines too long for a terminal are broken at spaces."""
    _check_output()
    click.echo(wrapped_lines(clean(parts), columns(sys.stdout)))


def width() -> int | None:
    """The columns of standard output if that is a terminal; what goes elsewhere has no limit."""
    return columns(sys.stdout)


def asked_width() -> int | None:
    """The same; elsewhere than on a terminal, what COLUMNS says, if that is set."""
    return width() or asked_columns() or None


def quote_foreign_text() -> None:
    """Make printable what Python itself prints: warnings, and the tracebacks of bugs."""

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        return f"{printable(filename)}:{lineno}: {category.__name__}: {printable(message)}\n"

    def crashed(*raised: Any) -> None:
        for part in traceback.format_exception(*raised):
            _stderr(part.rstrip("\n"))

    warnings.formatwarning = shown
    sys.excepthook = crashed


def drop_output() -> None:
    """Discard what standard output has buffered, or Python would try to write it again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def colours(stream: TextIO) -> int:
    """How many colours ``stream`` shows: 0 if it is no terminal, or may not use them."""
    if not _has_colours(stream):
        return 0
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    term = os.environ["TERM"]
    return 256 if "256color" in term else 16 * term.startswith(_COLOURED)


def coloured(text: str, colour: str, stream: TextIO) -> Coloured:
    """Colour the text if ``stream`` is a terminal, unless NO_COLOR or TERM=dumb is set."""
    return Coloured(click.style(text, fg=colour) if _has_colours(stream) else text)


def _has_colours(stream: TextIO) -> bool:
    # https://no-color.org: any value but the empty one.
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return not plain and stream.isatty()


def clean(parts: Iterable[str]) -> str:
    """The parts as one text, printable except for our own colours and line breaks."""
    return "".join(
        encodable(part if isinstance(part, Coloured) else printable_lines(part)) for part in parts
    )


def _stderr(*parts: str) -> None:
    if _elsewhere is not None:
        _elsewhere(clean(parts))
        return
    line = wrapped_lines(clean(parts), columns(sys.stderr))
    # If the terminal was closed, notes are lost and the work continues.
    with suppress(OSError):
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            # Above a bar, if there is one.
            tqdm.write(line, file=sys.stderr)
            sys.stderr.flush()
        else:
            click.echo(line, err=True)


def tqdm_bar(stream: TextIO, free: int = 0, **given: Any) -> Any:
    """A progress bar, if ``stream`` is a terminal, that leaves ``free`` columns."""
    from tqdm import tqdm

    # tqdm itself shows nothing on a terminal that does not report its size.
    size = get_terminal_size()
    disable = True if _quiet else None
    if "desc" in given:
        given["desc"] = clean([given["desc"]])
    room = size.columns - free
    return tqdm(file=stream, disable=disable, leave=False, ncols=room, nrows=size.lines, **given)


@contextmanager
def bar(total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on stderr, if that is a terminal, from the first second to the end.

    Yields the function that advances it.
    """
    with tqdm_bar(sys.stderr, total=total, unit=unit, delay=1.0) as shown:
        yield shown.update


def draw(
    folder: Path,
    as_json: bool,
    drawn: Callable[[], Iterable[Path]],
    *,
    kind: str = "pictures",
    margin: int = 10,
) -> None:
    """Draw into a folder and print the names, with JSON on stderr; a failure is only noted.

    ``margin``: columns of the word before each name.
    """
    try:
        written = [*drawn()]
    except (OSError, ImportError, DatasetError) as error:
        reason = f"{folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        note(Warned(f"the {kind} were not drawn: {reason}"))
        return
    for path in written:
        if as_json:
            note(f"drawn: {path}")
        else:
            tell(f"{'drawn':{margin}}{printable(path)}")
