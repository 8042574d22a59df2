"""Make the objects of training from a config: network, preprocessing, optimizer, data.

Nothing here touches a device, and only ``load_data`` reads data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..common.errors import ConfigError, DatasetError, ShapeError
from ..common.targets import MEASURES, METRICS, Kind, named
from ..configs import RunConfig
from ..configs.places import layer_place
from ..configs.schema.layers import NESTED
from ..configs.schema.optimizer import GroupConfig
from ..configs.suggest import did_you_mean
from ..datasets import (
    DataFile,
    DatasetInfo,
    Downloads,
    ImageSet,
    Split,
    data_root,
    describe,
    files,
    load,
)
from ..datasets.columns import Columns
from ..datasets.integer_pixels import Depth
from ..datasets.label_file import relabelled
from ..graph.augmentations import AUGMENTATIONS
from ..graph.graph import Shape, Tensor
from ..graph.mixing import Mixing
from ..layers.build import LayerSpec, build_layers
from ..layers.freezing import freeze_layers
from ..layers.initializers import Initializer
from ..layers.layer import Layer
from ..layers.losses import LOSSES
from ..layers.losses.loss import Loss
from ..layers.whitening import Dirac, Whiten
from ..optimizers import RULES
from ..optimizers.groups import RATES, Assigned, Group, assign
from ..optimizers.muon import Muon, rest_table
from ..optimizers.pruning import Cut, cuts, settings_of
from ..optimizers.rules import Rule
from .network import Network
from .normalization import preprocessing
from .rate_tables import RateTable, rate_tables
from .records.formats.provenance import Provenance

# The largest input of a data set that needs no normalization.
_NEAR_1 = 0.02, 100


def data_folder(
    config: RunConfig, flag: Path | None = None, root: str | None = None, trained_on: str = ""
) -> Path:
    """The data folder of a config; root: its ``data.root``, if that may be used. See data_root."""
    return data_root(flag, root, trained_on, *config.data.dataset.files.get("train", ())[:1])


def describe_data(
    config: RunConfig, root: Path | None = None, known: Depth | Columns | None = None
) -> DatasetInfo:
    """Describe the config's data set without reading it; root: the data folder.

    known: see ``load_data``; without it, the training rows of a table in a file are read. Raises
    DatasetError.
    """
    folder = root or data_folder(config, root=config.data.root)
    return describe(config.data.dataset.type, options=_options(config, known), root=folder)


def load_data(
    config: RunConfig,
    split: Split,
    root: Path,
    downloads: Downloads | None = None,
    known: Depth | Columns | None = None,
    size: tuple[int, int] | None = None,
) -> ImageSet:
    """Load a split of the config's data set; root: the data folder, which receives missing files.

    known: what a checkpoint says of own data: the depth of integer pixels, or the columns of a
    table. size: of own pictures, (height, width) instead of the config's. Raises DatasetError.
    """
    options = _options(config, known, size)
    chosen = config.data.dataset.type
    found = load(chosen, split, root=root, options=options, downloads=downloads)
    found = relabelled(found, config.data.labels, split, root)
    if chosen != "npz" or split != "train":
        return found
    return replace(found, doubts=range_doubts(config, describe_data(config, root), found))


def range_doubts(config: RunConfig, info: DatasetInfo, images: ImageSet) -> tuple[str, ...]:
    """A text if inputs are far from 1 as the network sees them, which is hardly meant."""
    if config.data.normalize.measured:
        return ()
    pixels = images.images
    ends = [pixels.min((0, 2, 3), keepdims=True), pixels.max((0, 2, 3), keepdims=True)]
    largest = float(np.abs(preprocessing(config, info)(np.concatenate(ends))).max())
    if _NEAR_1[0] <= largest <= _NEAR_1[1]:
        return ()
    return (
        f"the largest input is {largest:.4g} as the network sees it; networks learn from numbers "
        "near 1 (bytes are divided by 255, floats are taken as they are): data.normalize: measured",
    )


def is_of_pictures(config: RunConfig) -> bool:
    """Whether samples are pictures, not the numbers of a table or of sequences."""
    chosen = config.data.dataset
    return chosen.type not in ("csv", "series", "table") or bool(chosen.options().get("picture"))


def _options(
    config: RunConfig, known: Depth | Columns | None, size: tuple[int, int] | None = None
) -> dict[str, Any]:
    chosen = config.data.dataset
    options = chosen.options()
    if chosen.type == "image_folder":
        return options | {"bits": known, "size": size or options["size"]}
    if chosen.type == "csv":
        own = "columns" if options["picture"] is None else "bits"
        options |= {own: known, "size": size or options["size"] or 0}
    return options


Load: TypeAlias = (
    "Callable[[RunConfig, Split, Path, Downloads | None, Depth | Columns | None], ImageSet]"
)
"""Loads a split as ``load_data`` does."""


def data_files(config: RunConfig, root: Path) -> tuple[DataFile, ...]:
    """The files of the config's data set in the data folder ``root``, checked."""
    chosen = config.data.dataset
    return files(chosen.type, root, chosen.options())


def build_network(config: RunConfig, info: DatasetInfo, file: Path | None = None) -> Network:
    """Build the config's layers and loss for the pictures of ``info``, with all shapes.

    Raises ShapeError or ConfigError that names the layer and its place in the file, or the file.
    """
    where = f"{file}: " if file else ""
    try:
        layers = _built(_layer_specs(config.layers), info.shape)
    except (ShapeError, ConfigError) as error:
        # The messages of layers that were read from a file have their place already.
        placed = bool(config.layers[0].place)
        raise error.after("" if placed else where) from None
    freeze_layers(layers, config.freeze or ())
    loss = _loss(config, info.kind, info.name)
    place = config.layers[_giving(layers)].place
    try:
        loss.check(layers[-1].output_shape, len(info.classes))
        place = ""
        network = Network(layers, loss, info.shape, len(info.classes), info.floats)
    except (ShapeError, ConfigError) as error:
        wanted = (len(info.classes) + len(info.left_out),)
        if info.left_out and layers[-1].output_shape == wanted:
            raise DatasetError(
                f"{info.left_out[0]}: no picture in this folder, so it is no class, and the "
                f"network has outputs for {wanted[0]} classes; put pictures "
                "there, or leave its output out and remove the folder"
            ) from None
        place = place or layer_place(config.layers, str(error))
        raise error.after(f"{place}: " if place else where) from None
    pruned(config, network)
    shared_bits(config, network)
    return network


def data_of(origin: Provenance) -> DatasetInfo:
    """What a checkpoint says of the data set of its training."""
    channels, height, width = origin.input_shape
    facts = (origin.dataset, (channels, height, width), origin.classes, None, None)
    return DatasetInfo(*facts, floats=origin.floats, kind=origin.kind)


def _loss(config: RunConfig, kind: Kind, dataset: str) -> Loss:
    """The loss for targets of this kind. Raises ConfigError if it is for others."""
    # The weights of classes may need their names, or the pictures of each: see class_weights.
    options = {k: v for k, v in config.loss.options().items() if k != "class_weights"}
    loss = LOSSES[config.loss.type](**options, target=kind)
    if kind not in loss.kinds:
        raise ConfigError(
            f"loss.type: '{loss.kind}' is not for {named(kind)}, which are the targets of "
            f"'{dataset}'; use {_losses_for(kind)}"
        )
    for place, each in enumerate(config.data.augment):
        if not issubclass(AUGMENTATIONS[each.type], Mixing):
            continue
        where = f"data.augment.{place}.{each.type}"
        if kind not in ("class", "distribution"):
            raise ConfigError(
                f"{where}: mixes classes, but the targets are {named(kind)}; remove it"
            )
        if "distribution" not in loss.kinds:
            raise ConfigError(
                f"{where}: makes shares of classes, which loss '{loss.kind}' does not take; remove "
                f"it, or use {_losses_for('distribution')}"
            )
    return loss


def _losses_for(kind: Kind) -> str:
    return " or ".join(f"'{name}'" for name, each in sorted(LOSSES.items()) if kind in each.kinds)


def check_declared(config: RunConfig) -> None:
    """Check loss and last layer against the targets that the config itself declares, if it does.

    And that the batch size is known. Nothing is read. Raises ShapeError, ConfigError.
    """
    if not config.data.batch_size:
        raise ConfigError(
            "data.batch_size: auto is chosen when a training begins; here it has to be a number, "
            "such as 64"
        )
    chosen, last = config.data.dataset, config.layers[-1]
    options = chosen.options()
    if (kind := options.get("kind")) is None:
        return
    loss, units = _loss(config, kind, chosen.type), last.options().get("units")
    if chosen.type == "csv" and kind != "class" and units is not None:
        try:
            loss.check((units,), len(options["targets"]))
        except ShapeError as error:
            raise error.after(f"{last.place}: " if last.place else "") from None


def _built(specs: list[LayerSpec], shape: Shape) -> list[Layer]:
    """The layers for samples of this shape; a row (C, 1, 1) may enter a dense layer as it is."""
    try:
        return build_layers(specs, shape)
    except ShapeError:
        if shape[1:] == (1, 1):
            with suppress(ShapeError):
                return build_layers(specs, shape[:1])
        raise


def check_data(config: RunConfig, info: DatasetInfo) -> None:
    """Raise ConfigError for what cannot be asked of samples or targets of this kind."""
    data, goal = config.data, config.train.goal
    if data.balance and data.shuffle is False:
        raise ConfigError("data.shuffle: data.balance draws another order; remove one of the two")
    whole = info.kind == "class"
    given = (
        ("data.balance", data.balance and not whole),
        ("data.labels", data.labels and not whole),
        ("data.stratified", data.stratified and not whole),
        ("data.fold.stratified", data.fold is not None and data.fold.stratified and not whole),
        ("evaluate.tta_share", config.evaluate.tta_share is not None and not whole),
        ("evaluate.calibrate", config.evaluate.calibrate and info.kind == "numbers"),
    )
    for key, wrong in given:
        if wrong:
            raise ConfigError(f"{key}: the targets are {named(info.kind)}, not a class; remove it")
    reject = data.dataset.options().get("reject")
    if reject is not None and not (whole and reject in info.classes):
        found = did_you_mean(reject, info.classes if whole else (), "name a class, or remove it")
        raise ConfigError(
            f"data.dataset.{data.dataset.type}.reject: no class is called {reject!r}; {found}"
        )
    if data.augment and info.floats:
        raise ConfigError(
            f"data.augment: changes pictures of bytes, but the samples of '{info.name}' are "
            "float32; remove it"
        )
    asked, known = config.checkpoint.best_by, METRICS[info.kind]
    if asked not in (None, "accuracy", "loss", *known):
        raise ConfigError(
            f"checkpoint.best_by: '{asked}' is not measured of {named(info.kind)}; use "
            f"{', '.join(known)} or loss"
        )
    measure = MEASURES[info.kind]
    other = "r2" if measure == "accuracy" else "accuracy"
    if goal is not None and getattr(goal, other) is not None:
        raise ConfigError(
            f"train.goal.{other}: the targets are {named(info.kind)}; use {measure} or loss"
        )


def _giving(layers: Sequence[Layer]) -> int:
    """The index of the layer that gives the output its shape: those after it leave it as it is."""
    last = len(layers) - 1
    while last > 0 and layers[last - 1].output_shape == layers[last].output_shape:
        last -= 1
    return last


def pruned(config: RunConfig, network: Network) -> dict[Tensor, Cut]:
    """How each parameter is pruned. Raises ConfigError."""
    if config.prune is None:
        return {}
    by = config.prune
    return cuts(by.keep or {}, by.sensitivity or {}, network.parameters())


def shared_bits(config: RunConfig, network: Network) -> dict[Tensor, int]:
    """The bits of each parameter whose weights share their values. Raises ConfigError."""
    if config.share is None:
        return {}
    averages = [key for key in ("ema", "lookahead", "swa") if getattr(config.optimizer, key)]
    for key in averages[:1]:
        raise ConfigError(
            f"optimizer.{key}: averages of weights that share their values do not share them; "
            "remove it, or share"
        )
    return settings_of("share.bits", config.share.bits, network.parameters())


def rule_of(config: RunConfig) -> Rule:
    """The rule of the config's optimizer; the learning rates are in the plan."""
    chosen = config.optimizer
    if chosen.rest_rule is None:
        return RULES[chosen.type](**chosen.rule_options())
    tables = rate_tables(config)
    rest = RULES[chosen.rest_rule.type](**chosen.rest_rule.rule_options())
    return Muon(
        **{**chosen.rule_options(), "rest": rest},
        rest_factor=chosen.rest_rule.lr / chosen.lr,
        rest_tables=frozenset(name for name in tables if rest_table(name) in tables),
    )


def groups_of(config: RunConfig) -> tuple[Group, ...]:
    """The groups of parameters of the config's optimizer."""
    tables = rate_tables(config)
    return tuple(_group(g, index, tables) for index, g in enumerate(config.optimizer.groups or ()))


def assigned(config: RunConfig, network: Network) -> tuple[Assigned, ...]:
    """The network's parameters that are trained at some time, each with its rule and group.

    Raises ConfigError for a group that is left without parameters.
    """
    decay = config.optimizer.layer_decay
    return assign(rule_of(config), groups_of(config), network.parameters(), decay)


def _group(group: GroupConfig, index: int, tables: Mapping[str, RateTable]) -> Group:
    own = f"{RATES}.{index}"
    rates = own if own in tables else RATES
    factor = group.lr_factor if group.lr is None else group.lr / tables[rates].lr
    return Group(
        names=group.parameters or (),
        kinds=group.kind or (),
        lr_factor=factor,
        weight_decay=group.weight_decay,
        freeze_until=group.freeze_until_epoch or 0.0,
        freeze_after=0.0 if group.frozen else group.freeze_after_epoch,
        rates=rates,
    )


def _layer_specs(layers: Sequence[Any]) -> list[LayerSpec]:
    """Specifications of layers, composites with those of the layers that they are made of."""
    specs = []
    for layer in layers:
        options = layer.options()
        name, parallel = options.pop("name", None) or "", options.pop("parallel", None)
        for key, value in options.items():
            if key.endswith("_initializer"):
                options[key] = _initializer(value)
            elif key in NESTED.get(layer.type, ()) and not isinstance(value, str):
                nested = any(isinstance(item, tuple) for item in value)
                options[key] = [_layer_specs(v) for v in value] if nested else _layer_specs(value)
        specs.append(LayerSpec(layer.type, name, options, layer.place, parallel))
    return specs


def _initializer(config: Any) -> Initializer:
    options = config.options()
    if config.type == "dirac":
        return Dirac(base=Initializer(config.base))
    if config.type == "whiten":
        return Whiten(samples=config.samples, eps=config.eps)
    mean = options.pop("mean", 0.0)
    # std, limit or value: each kind has one number.
    value = next(iter(options.values()), 0.0)
    return Initializer(vars(config)["type"], value, mean)
