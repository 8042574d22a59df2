"""TensorBoard: the folder ``tensorboard`` of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.files import refuse_link
from ...common.targets import EVERY_METRIC, MEASURES
from ...common.text import shape_text
from ...configs import effective_yaml
from ...training.records.formats.run_log import LOG, log_lines
from ..callbacks import Logs
from ..history import History
from . import logger

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_SCALARS = {
    "train": {"epoch", "loss", "accuracy", "r2", "learning_rate"},
    "validation": {"epoch", "loss", "accuracy", "r2", *EVERY_METRIC},
}


class Logger(logger.Logger):
    """Writes scalars by step, pictures, hyperparameters, and the layers and the config as text.

    Where a training goes on, or back, the file is written anew from the log, which has each step
    once.
    """

    _writer: Any = None

    def on_train_begin(self, logs: Logs) -> None:
        from tensorboardX import SummaryWriter
        from tensorboardX.summary import hparams

        self.close()
        folder, config = self.run / "tensorboard", self.setup.config
        refuse_link(folder)
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder))
        measure = f"validation/{MEASURES[self.setup.data.kind]}"
        *begun, self._end = hparams(dict(_flat("", config.model_dump())), {measure: 0.0})
        for summary in begun:
            self._writer.file_writer.add_summary(summary)
        self._text("config", effective_yaml(config))
        layers = self.setup.network.every_layer()
        rows = (f"{each.name}  {each.kind}  {shape_text(each.output_shape)}" for each in layers)
        self._text("layers", "\n".join(rows))
        self._last = dict.fromkeys(_SCALARS, 0)
        for line in log_lines(self.run / LOG, dict[str, Any]):
            if line is not None and line.get("event") in _SCALARS:
                self._write(line["event"], line)
        self._writer.flush()

    def on_log(self, logs: Logs) -> None:
        self._add("train", logs)

    def on_validation_end(self, logs: Logs) -> None:
        self._add("validation", {key.removeprefix("val_"): value for key, value in logs.items()})

    def on_picture(self, name: str, picture: PilImage, step: int) -> None:
        pixels = np.asarray(picture.convert("RGB"))
        self._writer.add_image(name, pixels, step, dataformats="HWC")
        self._writer.flush()

    def on_train_end(self, history: History) -> None:
        self._writer.file_writer.add_summary(self._end)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _add(self, split: str, values: Logs) -> None:
        if values["step"] <= self._last[split]:
            # The training has gone back, and with it the log, which has this line already.
            self.on_train_begin({})
        else:
            self._write(split, values)
            self._writer.flush()

    def _write(self, split: str, values: Logs) -> None:
        self._last[split] = step = values["step"]
        for name in sorted(_SCALARS[split] & values.keys()):
            if values[name] is not None:
                self._writer.add_scalar(f"{split}/{name}", values[name], step)

    def _text(self, name: str, text: str) -> None:
        # Markdown shows what is indented as it is.
        self._writer.add_text(name, "\n".join(f"    {line}" for line in text.splitlines()), 0)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values of a config by dotted key, but for the layers, which have a text of their own."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "layers":
                yield from _flat(f"{prefix}.{key}" if prefix else key, inner)
    elif value is not None:
        yield prefix, value if isinstance(value, (bool, int, float)) else str(value)
