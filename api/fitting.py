"""Training a network from a program."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from .arguments import assigned, path_or_none, path_text
from .arguments import kind as type_of
from .backends.select import Device, open_backend
from .common.errors import Interrupted, Warned
from .common.printable import printable_lines
from .common.targets import Kind
from .configs import LoadedConfig, RunConfig, load_mapping
from .configs import load_config as load_file
from .datasets import Downloads
from .datasets.arrays import Axes
from .given import Pair, given_arrays
from .reports.callbacks import Callback, Logs, Told, as_callbacks
from .reports.history import History
from .reports.loggers import Logged
from .reports.plots import draw_curves
from .reports.training_text import summary
from .training.fitting import find_resume, fit, open_device
from .training.records.runs import LATEST
from .wording import as_arguments, in_python, log_notice

if TYPE_CHECKING:
    from .reports.network_graph import NetworkGraph

Config: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | RunConfig"
Overrides: TypeAlias = "Mapping[str, Any] | Sequence[str]"


@in_python
def load_config(config: Config, overrides: Overrides = ()) -> RunConfig:
    """A config, checked, with every default.

    config: a file, the name of a packaged one, or a mapping with the same keys. overrides: values
    by dotted key, ``{"optimizer.lr": 0.05}``, or the texts of ``--set``. ``model_dump()`` of the
    result is a dict to change and to give to ``train``. Raises ConfigError with every problem.
    """
    return read_config(config, overrides).config


@in_python
def network_graph(
    config: Config, overrides: Overrides = (), *, operations: bool = False, device: Device = "auto"
) -> NetworkGraph:
    """A network as boxes and edges, which a notebook draws and ``print`` tells.

    operations: those of a training step as ``device`` runs them, not the layers. The result has
    ``as_text()``, ``as_svg()``, ``as_dot()`` and ``to_json()``. Raises DnnstackError.
    """
    from .reports.network_graph import layer_graph, operation_graph

    loaded = read_config(config, overrides)
    what = loaded.config, loaded.path, loaded.title
    return operation_graph(*what, open_backend(device)) if operations else layer_graph(*what, None)


@in_python
def train(
    config: Config,
    *,
    data: Pair | None = None,
    validation: Pair | None = None,
    kind: Kind | None = None,
    classes: Sequence[str] | None = None,
    axes: Axes | None = None,
    overrides: Overrides = (),
    callbacks: Sequence[Callback | Callable[[Logs], object]] = (),
    resume: bool | str | os.PathLike[str] = False,
    same_samples: bool = False,
    device: Device | None = None,
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    verbose: bool = False,
) -> History:
    """Train the network of a config, as ``dnnstack train`` does, in a run folder of its own.

    config, overrides: see ``load_config``. callbacks: objects with the methods of ``Callback``, or
    functions that get the logs of every line. resume: True for the config's latest run, "auto" for
    the same if there is one, or a run or checkpoint; same_samples: go on with what is left of its
    samples, if the data have changed. The other arguments are those of the command. Nothing is
    printed unless ``verbose``.

    data: arrays (x, y) of N samples and their targets, in the place of the config's data set;
    validation: others to validate on, in the place of ``data.validation``. x: (N, columns), bytes
    (N, H, W), or (N, C, H, W), else ``axes`` says what it is; float32 and bytes are not copied. y:
    (N,) whole numbers or names of classes, or (N, K) numbers; ``kind`` says what they are if not
    their type, ``classes`` names the classes or numbers. A run that is resumed needs its arrays.

    In the main thread, if Python's own handler of Ctrl-C is in place, Ctrl-C ends the training
    after the current step; it saves, and KeyboardInterrupt is raised. Raises DnnstackError.
    """
    folder = path_or_none("data_dir", data_dir)
    wanted = LATEST if resume is True else path_text("resume", resume) if resume else None
    settings, load = given_arrays(data, validation, kind, classes, axes)
    changes = changed(overrides, device, threads, runs_dir)
    # What the arrays are like is no override to repeat.
    loaded = replace(read_config(config, [*changes, *settings]), overrides=(*changes,))
    say = teller(verbose)
    backend = open_device(loaded, resume is not False, True, say)
    resumed = find_resume(wanted, loaded, say)
    heard = Logged(Told(as_callbacks(callbacks), say, print_text if verbose else None))
    with interrupts() as interrupted, closing(heard):
        try:
            done = fit(
                loaded,
                backend,
                resumed,
                listener=heard,
                stop_requested=interrupted.is_set,
                data_dir=folder,
                downloads=Downloads(offline=True) if offline else None,
                load=load,
                same_samples=same_samples,
            )
        except Interrupted as error:
            if interrupted.is_set():
                raise KeyboardInterrupt(str(error)) from None
            raise
    draw_curves(done.run, say)
    if verbose:
        print_text(summary(done))
    if interrupted.is_set():
        raise KeyboardInterrupt(
            f"training was interrupted at step {done.step} and saved; continue with "
            f"resume={str(done.run)!r}"
        )
    return History.of(done)


def read_config(config: Config | LoadedConfig, overrides: Overrides) -> LoadedConfig:
    changes = assignments(overrides)
    if isinstance(config, LoadedConfig):
        return load_file(config, changes)
    if isinstance(config, RunConfig):
        config = config.model_dump()
    if isinstance(config, Mapping):
        return load_mapping(config, changes)
    if not isinstance(config, (str, os.PathLike)):
        raise TypeError(
            "config: expected a file, the name of a packaged config, a dict, or what load_config "
            f"returns; got {type_of(config)}"
        )
    return load_file(os.fspath(config), changes)


def plain(config: Config) -> Any:
    """A config as text or a dict, which JSON can hold. Raises TypeError for what cannot be one."""
    if isinstance(config, RunConfig):
        return config.model_dump(mode="json")
    if isinstance(config, Mapping):
        return json.loads(json.dumps(dict(config), default=_plain))
    return path_text("config", config)


def assignments(overrides: Overrides) -> list[str]:
    """The texts of ``--set``. Raises TypeError for what has none."""
    assigned(overrides)
    if not isinstance(overrides, Mapping):
        return [*overrides]
    found = []
    for key, value in overrides.items():
        try:
            found.append(f"{key}={_written(value)}")
        except TypeError as error:
            raise TypeError(f"overrides: {key}: {error}") from None
    return found


def _written(value: Any) -> str:
    """The value as YAML; JSON has no word for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' * (value < 0)}.inf"
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    """What NumPy holds as numbers, a path as text. Raises TypeError for anything else."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"expected a number, a str, a list or a dict, got {type_of(value)}")


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Inside the block the first Ctrl-C only sets the event, and the second raises as usual.

    Nothing is changed outside the main thread, or where the program has a handler of its own, as an
    event loop does.
    """
    event = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        event.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield event
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def changed(
    overrides: Overrides,
    device: Device | None,
    threads: int | None,
    runs_dir: str | os.PathLike[str] | None,
) -> list[str]:
    """The overrides of a config, as texts, with those that arguments of their own stand for."""
    own = {
        "run.device": device,
        "run.threads": threads,
        "run.dir": None if runs_dir is None else path_text("runs_dir", runs_dir),
    }
    given = {key: value for key, value in own.items() if value is not None}
    return [*assignments(overrides), *assignments(given)]


def teller(verbose: bool) -> Callable[[str], None]:
    """A function that prints a note, or logs it, with arguments named instead of options."""

    def tell(text: str) -> None:
        shown = as_arguments(text)
        print_text(f"warning: {shown}" if isinstance(text, Warned) else shown)

    return tell if verbose else log_notice


def print_text(text: str) -> None:
    """Print lines whose foreign parts are printable already, or are made so."""
    print(printable_lines(text))  # noqa: T201
