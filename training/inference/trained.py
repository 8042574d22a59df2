"""A trained network, loaded from its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ...backends.base import Backend, Executable, Options, Residency
from ...backends.select import precision_or_fp32
from ...common.errors import BackendUnavailableError, CheckpointError, ShapeError, Warned
from ...common.locks import is_locked
from ...common.printable import printable
from ...common.records import dataclass
from ...common.text import shape_text
from ...configs import RunConfig, parse_config
from ...configs.plugins import changed_plugins
from ...datasets import DatasetInfo
from ...graph.graph import Graph
from ...graph.quantization import products, quantized
from ..assemble import build_network, data_folder, data_of, is_of_pictures
from ..network import Network
from ..records.formats.calibration import Trust, read_trust, trust_path
from ..records.formats.checkpoint import Checkpoint
from ..records.formats.dnnz import SUFFIX, is_compressed, read_compressed
from ..records.formats.store import FOLDER, best_checkpoint, checkpoint_steps, named_checkpoint
from ..records.runs import LOCK, find_run, is_in_own_folder, list_runs


@dataclass(frozen=True, repr=False)
class Trained:
    """The network of a checkpoint with its config and trained values."""

    checkpoint: Checkpoint
    config: RunConfig
    network: Network
    trust: Trust | None = None

    def __repr__(self) -> str:
        picture, classes = shape_text(self.input_shape), len(self.classes)
        return f"<Trained network of {str(self.path)!r}: {picture} -> {classes} classes>"

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Trained:
        """Raises CheckpointError or ConfigError if the parts do not fit each other."""
        origin = checkpoint.provenance
        config = parse_config(origin.config, f"{checkpoint.path} (its config)")
        return cls(checkpoint, config, build_network(config, data_of(origin), checkpoint.path))

    def trusted(self, notice: Callable[[str], None]) -> Trained:
        """The same network with the calibration that lies beside its checkpoint, if one does, else
        with the temperature inside it.

        ``notice`` is warned of one that cannot be used.
        """
        plain = replace(self, network=self.network.judged(self.checkpoint.temperature, False))
        if not os.path.lexists(trust_path(self.path)):
            return plain
        shown = self.network.judged(1.0, True).infer_graph(1)["features"].shape[1]
        try:
            trust = read_trust(self.path, self.checkpoint.sha256, len(self.classes), shown)
        except CheckpointError as error:
            told = f"{error}; it is not used: calibrate again with dnnstack eval --calibrate"
            notice(Warned(told))
            return plain
        return self.calibrated(trust)

    def calibrated(self, trust: Trust | None) -> Trained:
        """The same network with this calibration, or with none."""
        how = (trust.calibration.temperature, bool(trust.arrays)) if trust else (1.0, False)
        return replace(self, network=self.network.judged(*how), trust=trust)

    @property
    def path(self) -> Path:
        return self.checkpoint.path

    @property
    def data(self) -> DatasetInfo:
        """What the checkpoint says of the data set of its training."""
        return data_of(self.checkpoint.provenance)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.checkpoint.provenance.classes

    @property
    def reject(self) -> int | None:
        """The class whose samples are of none of the others, if the config names one."""
        name = self.config.data.dataset.options().get("reject")
        return self.classes.index(name) if name in self.classes else None

    @property
    def takes_pictures(self) -> bool:
        """Whether its samples are pictures of bytes, not the numbers of a table or of sequences."""
        return is_of_pictures(self.config) and not self.network.floats

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        return _picture(self.network.input_shape)

    def at_size(self, size: tuple[int, int] | None) -> Trained:
        """The same network for pictures of another (height, width), None for its own.

        Raises ShapeError, which names the layer that fixes the size.
        """
        if size in (None, self.input_shape[1:]):
            return self
        own, shape = self.network, (self.input_shape[0], *(size or ()))
        try:
            network = build_network(self.config, replace(self.data, shape=_picture(shape)))
            network = network.judged(own.temperature, own.featured)
        except ShapeError as error:
            raise ShapeError(f"{error} (for pictures of {shape_text(shape)})") from None
        for layer, other in zip(own.every_layer(), network.every_layer(), strict=True):
            if not layer.children and layer.parameters() != other.parameters():
                given, wanted = map(shape_text, (other.input_shape, layer.input_shape))
                raise ShapeError(
                    f"{self.path}: cannot take pictures of {shape_text(shape)}: layer "
                    f"'{layer.name}' ({layer.kind}) has weights for {wanted} inputs, and would get "
                    f"{given}; a network with global_avg_pool2d before its dense layers takes any "
                    "size"
                )
        return replace(self, network=network)

    def compile(
        self, backend: Backend, graph: Graph, residency: Residency | None = None
    ) -> Executable:
        """Compile the single section ``graph``, with the checkpoint's parameters and statistics.

        ``residency``: that of ``Options``, by default the config's. If the device does not have the
        precision of the training, it computes in fp32.
        """
        run = self.config.run
        residency = residency or self.config.data.residency
        precision = precision_or_fp32(backend, run.precision)
        if self.checkpoint.quantization:
            graph, precision = self._quantized(backend, graph), "fp32"
        options = Options(precision, run.fusion, run.deterministic, residency=residency)
        learned = self.network.learned()
        values = self.checkpoint.parameters({t.name: t.shape for t in learned})
        executable = backend.compile({graph.name: graph}, options)
        for tensor in learned:
            executable.write(tensor, values[tensor.name])
        return executable

    def _quantized(self, backend: Backend, graph: Graph) -> Graph:
        """The section with products of 8-bit integers, where the checkpoint has them."""
        if backend.name == "cuda":
            raise BackendUnavailableError(
                f"{self.path}: computes with 8-bit integers, which dnnstack does on a CPU alone; "
                "use --device cpu"
            )
        own = self.checkpoint.quantization
        unknown = [name for name in own if name not in products(graph)]
        if unknown:
            raise CheckpointError(
                f"{self.path}: says that '{printable(unknown[0])}' computes with 8-bit integers, "
                "but its network has no such layer with weights of its own"
            )
        return quantized(graph, own)


def data_folder_of(checkpoint: Checkpoint, notice: Callable[[str], None]) -> str:
    """The data folder that a checkpoint names, if the file lies in the folder of its run.

    Anybody may have written another file: its folder is only shown, to ``notice``, and "" returned.
    """
    named = checkpoint.provenance.data_folder
    if is_in_own_folder(checkpoint.path) or not named:
        return named
    notice(
        f"{checkpoint.path} is not in the folder of a run, so the data folder that it names, "
        f"{named!r}, is not used; to use it, give it with --data-dir"
    )
    return ""


def data_root_of(trained: Trained, flag: Path | None, notice: Callable[[str], None]) -> Path:
    """The data folder for a network; ``flag``: the one that the user names. See ``data_root``."""
    trained_on = data_folder_of(trained.checkpoint, notice)
    own = trained.config.data.root if is_in_own_folder(trained.path) else None
    return data_folder(trained.config, flag, own, trained_on)


def check_folders(checkpoint: Checkpoint, config: RunConfig) -> None:
    """Raise CheckpointError for folders outside the data folder in a file that anybody may have
    written."""
    if is_in_own_folder(checkpoint.path):
        return
    for value in chain(*config.data.dataset.files.values(), [config.data.labels or ""]):
        path = Path(value)
        if path.is_absolute() or ".." in path.parts or value.startswith("~"):
            raise CheckpointError(
                f"{checkpoint.path}: names samples in {value!r}, but is not in the folder of a "
                "run, so they are not read; copy it into a run's folder with config.yaml if you "
                "know where it comes from"
            )


def _picture(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width


def find_trained(
    run: str | None, checkpoint: Path | None, runs_dir: Path, notice: Callable[[str], None]
) -> Trained:
    """The network of a checkpoint file, else of a run's best checkpoint, else of the latest run's.

    ``checkpoint`` may name a run, too. If the latest run has no checkpoint, that of the newest run
    that has one. ``notice`` is told which one is used unless it was named. Raises CheckpointError.
    """
    found = _found(run, checkpoint, runs_dir, notice).trusted(notice)
    for plugin, sha256 in changed_plugins(found.config):
        told = (
            f"the plugin {plugin.path} was changed: {found.path} was trained with the file of "
            f"SHA-256 {sha256}, now it is {plugin.sha256}; the answers may differ"
        )
        notice(Warned(told))
    return found


def _found(
    run: str | None, checkpoint: Path | None, runs_dir: Path, notice: Callable[[str], None]
) -> Trained:
    if checkpoint is not None and is_file(checkpoint):
        if is_compressed(checkpoint):
            return Trained.of(read_compressed(checkpoint).checkpoint)
        return Trained.of(named_checkpoint(checkpoint))
    folder = find_run(run, runs_dir) if checkpoint is None else _run_at(checkpoint, runs_dir)
    latest = ", the latest run" if run is None and checkpoint is None else ""
    if latest and not checkpoint_steps(folder / FOLDER):
        earlier = _newest_with_checkpoint(folder.parent)
        if earlier is not None:
            latest = f", since {folder}, the latest run, has no checkpoint"
            folder = earlier
    passed_over = False

    def tell(text: str) -> None:
        nonlocal passed_over
        passed_over |= isinstance(text, Warned)
        notice(text)

    found = best_checkpoint(folder / FOLDER, tell, lambda: is_locked(folder / LOCK))
    best = found.state.best
    why = "the newest that can be used" if passed_over else "the newest"
    if best is not None and best.step == found.state.step:
        why = "best on validation"
    notice(f"using {folder}{latest}: {found.path.name} ({why})")
    return Trained.of(found)


def is_file(named: Path) -> bool:
    """Whether this names a file, if there is one, and not a run."""
    suffixes = (".safetensors", SUFFIX)
    return not os.path.isdir(named) and (os.path.exists(named) or named.suffix in suffixes)


def _run_at(named: Path, runs_dir: Path) -> Path:
    """The folder of the run that is named where a file may be. Raises CheckpointError."""
    try:
        return find_run(named, runs_dir, "file or run")
    except CheckpointError as error:
        if named.is_dir() and str(error).startswith(f"{named}: no such"):
            raise CheckpointError(
                f"{named}: is a folder, but not that of a run; name a run or a .safetensors file"
            ) from None
        raise


def _newest_with_checkpoint(runs_dir: Path) -> Path | None:
    """The run that saved a checkpoint last, by the clock; None if no run has one."""
    saved = []
    for name in list_runs(runs_dir):
        folder = runs_dir / name / FOLDER
        with suppress(OSError):
            manifests = (folder / f"step-{step}.json" for step in checkpoint_steps(folder))
            saved += [(path.stat().st_mtime_ns, name) for path in manifests]
    return runs_dir / max(saved)[1] if saved else None
