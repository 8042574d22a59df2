"""``dnnstack data``: what a config trains on."""

from __future__ import annotations

from pathlib import Path

import click

from . import console, options, plugins


@click.command(
    short_help="Show the data of a config, and samples of it.",
    epilog=options.examples(
        "dnnstack data --config lenet.yaml --data-dir ~/data",
        "dnnstack data --config digits.yaml --save digits.png",
        "dnnstack data --config lenet.yaml --json --no-sheet > data.json",
    ),
)
@options.config()
@options.overrides
@options.plugin
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File of the contact sheet, .png, .svg or .pdf: samples of every class as the network "
    "sees them, also augmented; default: NAME-samples.png in this folder, where NAME is the name "
    "of the config.",
)
@click.option("--no-sheet", is_flag=True, help="Draw no contact sheet.")
@options.json_output("one JSON object")
@options.data_dir
def data(
    reference: str,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    save: Path | None,
    no_sheet: bool,
    as_json: bool,
    data_dir: Path | None,
    offline: bool,
) -> int:
    """Show the data of a config: files, class counts, mean and deviation, and samples.

    The samples are drawn as a picture, a contact sheet. The pictures of each class are counted for
    training, validation and test. Missing files are downloaded first.
    """
    from ..common.errors import DatasetError
    from ..configs import load_config, placed
    from ..reports.contact_sheet import ELSEWHERE, check_png
    from ..reports.data_report import report
    from ..reports.data_samples import save_samples
    from ..reports.data_text import as_text
    from ..training.assemble import data_folder, is_of_pictures
    from . import downloading

    if save is not None and no_sheet:
        raise click.UsageError("--save and --no-sheet contradict each other; give one of them")
    if save is not None:
        check_png(save, (".svg", ".pdf"))
    loaded = load_config(reference, overrides, plugins.opened(plugin))
    config = loaded.config
    sheet = save or Path(f"{config.name}-samples.png")
    with placed(loaded):
        root = data_folder(config, data_dir, config.data.root)
        found = report(config, root, downloading.policy(offline))
    console.show(found, as_json, lambda: as_text(found, console.width()), indent=1)
    if no_sheet or (save is None and not is_of_pictures(config)):
        return 0
    try:
        save_samples(found, config.seed, sheet)
    except DatasetError as error:
        if save is not None:
            raise
        # The user did not choose the file that cannot be written.
        reason = str(error).removesuffix(f"; {ELSEWHERE}")
        console.error(f"{reason}; --save FILE chooses another file, --no-sheet draws none")
        return 1
    console.note(f"contact sheet written to {sheet}")
    return 0
