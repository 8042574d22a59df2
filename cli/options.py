"""Options that several commands share, each declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from ..backends.cuda.cards import CARDS, USUAL
from ..configs.find import packaged_configs
from . import completion, console

Decorator = Callable[[Any], Any]
T = TypeVar("T")
VIEWS = ["none", "mirror", "mirror+translate"]
"""The names of TEST_TIME, whose module takes long to import."""


class Named(click.Path):
    """A path that must not be empty, as the unset variable of a script would make it."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the value is empty; give a path, or leave the option out", param, ctx)
        return super().convert(value, param, ctx)


class Share(click.FloatRange):
    """A number from 0 to 1, or the same in percent."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value).strip()
        try:
            found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            found = -1.0
        # Not for numbers that are none, which are not in the range either.
        if not 0 <= found <= 1:
            self.fail(f"expected a number from 0 to 1, or 0% to 100% (got '{value}')", param, ctx)
        return found


size = click.option(
    "--size",
    metavar="PIXELS",
    help="Scale pictures to this size, such as 64 or 48x64 (height x width), not to that of the "
    "training; for networks with global_avg_pool2d before the dense layers.",
)


def examples(*lines: str) -> str:
    """Return the end of a help text: example commands, one per line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def config(*, required: bool = True, more: Sequence[str] = ()) -> Decorator:
    """``more``: others of the package that the command takes, first."""
    return click.option(
        "--config",
        "-c",
        "reference",
        required=required,
        metavar="FILE",
        shell_complete=completion.configs,
        help="YAML file that describes the training; a bare name is looked up in this folder, then "
        f"among the configs of the package: {', '.join([*more, *packaged_configs()])}.",
    )


init_from = click.option(
    "--init-from",
    type=Named(),
    metavar="RUN|FILE|MODEL",
    shell_complete=completion.weights,
    help="Begin with the weights of this run, of this file (.safetensors, or .pth of PyTorch), or "
    "of this model of the Hugging Face hub, such as timm/resnet18.a1_in1k, as far as they fit by "
    "name and shape; see dnnstack help finetuning.",
)

overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    shell_complete=completion.keys,
    help="Change one key of the config, as in optimizer.lr=0.05 or layers.dense_1.units=64; "
    "repeatable.",
)


def all_of(*options: Decorator) -> Decorator:
    """All of these options, in this order."""
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


def device(default: str) -> Decorator:
    """``--device`` and ``--threads``; None if not given, which ``default`` describes."""
    return all_of(
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "numpy", "cuda"]),
            help="Where to compute: cpu is oneDNN, numpy the reference, auto the fastest "
            f"available; default: {default}.",
        ),
        click.option(
            "--threads",
            # As in the schema: with too many threads, the process crashes.
            type=click.IntRange(min=1, max=1024),
            metavar="N",
            help="CPU threads; default: run.threads of the config, else the cores that the process "
            "may use.",
        ),
    )


card = click.option(
    "--card",
    type=click.Choice(list(CARDS), case_sensitive=False),
    metavar="NAME",
    help="Show what becomes of the step on this GPU, which need not be there: nothing is measured. "
    f"One of {', '.join(CARDS)}; with --device cuda, and without a GPU, {USUAL}.",
)

same_samples = click.option(
    "--same-samples",
    is_flag=True,
    help="With --resume: if the data have changed, go on with what is left of the samples that the "
    "run was begun with, and leave out what is new.",
)

uncalibrated = click.option(
    "--uncalibrated",
    is_flag=True,
    help="Leave out the calibration that lies beside a checkpoint.",
)

plots_format = click.option(
    "--plots-format",
    type=click.Choice(["png", "svg", "pdf"]),
    envvar="DNNSTACK_PLOTS_FORMAT",
    expose_value=False,
    callback=lambda ctx, option, form: os.environ.update(DNNSTACK_PLOTS_FORMAT=form or "png"),
    help="How pictures are written; default: DNNSTACK_PLOTS_FORMAT of the environment, else png.",
)

no_graph = click.option(
    "--no-graph",
    is_flag=True,
    help="On a GPU, launch every call separately, not the whole step as one CUDA graph: "
    "slower, with the same bits; an error then names the call that failed.",
)

plugin = click.option(
    "--plugin",
    "plugin",
    type=Named(),
    multiple=True,
    metavar="FILE",
    shell_complete=completion.files,
    help="Python file that defines layers, losses and the like; its code runs. Repeatable.",
)

data_dir = all_of(
    click.option(
        "--data-dir",
        type=Named(),
        metavar="FOLDER",
        help="Folder of the data sets (MNIST is in FOLDER/mnist); default: $DNNSTACK_DATA, else "
        "data.root of the config, else the user's cache folder.",
    ),
    click.option(
        "--offline",
        is_flag=True,
        help="Download nothing; DNNSTACK_OFFLINE=1 does the same for every command.",
    ),
)
"""Where data sets are, and whether to download them."""


def runs_dir(default: str) -> Decorator:
    return click.option(
        "--runs-dir",
        type=Named(),
        metavar="FOLDER",
        help=f"Folder of the run folders; default: {default}.",
    )


def _either(ctx: click.Context, option: click.Parameter, value: T) -> T:
    """Refuse a second option that names a trained network."""
    if value is not None:
        first = ctx.meta.setdefault(f"{__name__}.trained", option.opts[0])
        if first != option.opts[0]:
            raise click.UsageError(f"{first} and {option.opts[0]} cannot be used together", ctx)
    return value


trained = all_of(
    click.option(
        "--run",
        metavar="RUN",
        shell_complete=completion.runs,
        callback=_either,
        help="Use the best checkpoint of this run, or the newest if it has no validation. RUN is "
        "its folder, or its name in the folder of the runs; default: the latest run.",
    ),
    click.option(
        "--checkpoint",
        type=Named(),
        metavar="FILE",
        callback=_either,
        help="Use this checkpoint, a .safetensors file of a run folder, or this compressed "
        "network, a .dnnz file; a run does as well.",
    ),
    runs_dir("runs"),
)
"""Which trained network to use."""


def evaluated(default: str) -> Decorator:
    """On which pictures to evaluate a trained network, and in which views.

    ``default``: whose data set is taken if none is named.
    """
    return all_of(
        click.option(
            "--data",
            "dataset",
            metavar="NAME",
            shell_complete=completion.datasets,
            help=f"Data set; default: that of {default}.",
        ),
        click.option(
            "--split",
            "part",
            type=click.Choice(["train", "validation", "test"]),
            default="test",
            show_default=True,
            help="The test set, or one of the two parts into which training divided the training "
            "set.",
        ),
        click.option(
            "--tta",
            type=click.Choice(VIEWS),
            help="Test-time augmentation: average over views of each picture; default: the "
            "config's.",
        ),
    )


def loudness() -> list[click.Option]:
    """``--quiet`` and ``--verbose``, which every command has; their callbacks apply them."""

    def decide(ctx: click.Context, option: click.Parameter, given: bool) -> None:
        wanted = ctx.meta.setdefault(__name__, set())
        wanted |= {option.name} if given else set()
        if len(wanted) > 1:
            raise click.UsageError("--quiet and --verbose cannot be used together", ctx)
        console.set_loudness(quiet="quiet" in wanted, verbose="verbose" in wanted)

    texts = {
        "quiet": "Print only results, warnings and errors.",
        "verbose": "Print more on standard error: where data came from, what was cached or chosen.",
    }
    return [
        click.Option(
            [f"-{name[0]}", f"--{name}"],
            is_flag=True,
            expose_value=False,
            callback=decide,
            help=text,
        )
        for name, text in texts.items()
    ]


def json_output(what: str) -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what}.")
