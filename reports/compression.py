"""What a compression has found: its stages, the arrays of its file, sensitive layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..common.errors import CheckpointError, DatasetError
from ..common.files import make_folder
from ..common.printable import paragraph
from ..common.records import dataclass
from ..configs.schema.stages import PaperConfig
from ..training.compressed.place import Record, is_compression, read_record
from ..training.compressed.sensitivity import Sensitivity
from ..training.inference.trained import Trained, find_trained
from ..training.records.formats.dnnz import read_compressed
from ..training.records.runs import run_of_checkpoint
from . import sensitivity_report
from .compress_plots import draw_mask, draw_plots
from .compress_report import CompressedReport, measured_json, stages_text

Notice = Callable[[str], None]


@dataclass(frozen=True)
class CompressionReport:
    """A compression by its folder, or a compressed network by its file.

    ``record``: of the folder; None for a file that is in no such folder. ``table``: of the file;
    None while the compression is under way. ``original``: the network before, if it is still there.
    """

    folder: Path
    record: Record | None
    table: CompressedReport | None
    sensitivity: Sensitivity | None
    original: Trained | None

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on: those of ``compress --json``, and three more."""
        found: dict[str, Any] = {
            "folder": str(self.folder),
            "finished": self.table is not None,
            "sensitivity": None if self.sensitivity is None else self.sensitivity.to_json(),
        }
        if self.table is not None:
            return found | self.table.to_json()
        return found | ({} if self.record is None else measured_json(self.record))

    def as_text(self, width: int | None = None) -> str:
        """The table of the file, or the stages that are done; then the sensitivity, if known."""
        lines: list[str] = []
        if self.table is not None:
            path = self.table.compressed.checkpoint.path
            lines += [*self.table.as_text(width).splitlines(), "", f"file        {path}"]
        elif self.record is not None:
            lines += [*stages_text(self.record), ""]
            words = "dnnstack compress --config STAGES --resume"
            lines.append(f"not finished; go on with: {words} {self.folder}")
        if self.sensitivity is not None:
            lines += ["", *sensitivity_report.as_text(self.sensitivity).splitlines(), ""]
        return paragraph(lines)

    def draw(self, folder: Path, notice: Notice) -> list[Path]:
        """Draw what can be drawn into a folder, made if need be. Raises OSError, ImportError."""
        written: list[Path] = []
        make_folder(folder)
        if self.table is not None:
            small = self.table.compressed.checkpoint.learned()
            try:
                if self.original is not None:
                    written += draw_plots(self.original.checkpoint.learned(), small, folder)
                else:
                    written += draw_mask(small, folder)
            except DatasetError as error:
                notice(f"some pictures were not drawn: {error}")
        if self.sensitivity is not None:
            written.append(sensitivity_report.draw(self.sensitivity, folder))
        return written


def report_compression(path: Path, notice: Notice) -> CompressionReport:
    """The report of a compression's folder, or of a ``.dnnz`` file.

    ``notice`` is told what is missing or damaged beside them. Raises CheckpointError.
    """
    folder = path if path.is_dir() else path.parent
    record = None
    if path.is_dir():
        record = read_record(path)
        file = path / record.file if record.file else None
    else:
        file = path
        if is_compression(folder):
            record = _record_of(path, notice)
    original = None if record is None else _original(record, notice)
    table = None
    if file is not None:
        small = read_compressed(file)
        network = Trained.of(small.checkpoint).network
        whole = None if original is None else original.network
        table = CompressedReport(small, network, record, _paper(record), whole)
    return CompressionReport(folder, record, table, _sensitivity(folder, record, notice), original)


def _record_of(file: Path, notice: Notice) -> Record | None:
    """What the folder says of a file that it has made; None for another file."""
    try:
        record = read_record(file.parent)
    except CheckpointError as error:
        notice(str(error))
        return None
    return record if record.file == file.name else None


def _original(record: Record, notice: Notice) -> Trained | None:
    """The network before, unless it is gone or another one has taken its place."""
    path = Path(record.source)
    try:
        found = find_trained(None, path, path.parent, notice)
    except CheckpointError as error:
        reason = str(error).splitlines()[0].removeprefix(f"{path}: ")
        notice(f"the network before compression cannot be read: {path}: {reason}")
        return None
    if found.checkpoint.sha256 == record.sha256:
        return found
    notice(f"{path}: is no longer the network that was compressed")
    return None


def _paper(record: Record | None) -> PaperConfig | None:
    if record is None or not record.paper:
        return None
    try:
        return PaperConfig.model_validate_json(record.paper)
    except ValueError:
        # Written by another version, or by hand; the figures are others' in any case.
        return None


def _sensitivity(folder: Path, record: Record | None, notice: Notice) -> Sensitivity | None:
    """That of the file, else that of the network before."""
    folders = [folder]
    if record is not None:
        source = Path(record.source)
        folders.append(run_of_checkpoint(source) or source.parent)
    for each in folders:
        try:
            return sensitivity_report.read(each)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            notice(
                f"{each / sensitivity_report.DATA}: cannot be read: {reason}; measure it again "
                "with dnnstack compress --sensitivity"
            )
    return None
