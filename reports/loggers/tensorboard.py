"""TensorBoard: the folder ``tensorboard`` of a run."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent
from typing import Any

import numpy as np

from ...common.targets import EVERY_METRIC, MEASURES
from ...common.text import shape_text
from ...configs import effective_yaml
from ...training.records.formats.run_log import LOG, log_lines
from ..callbacks import Logs
from . import Logger as Base
from . import Pictures

_SCALARS = {
    "train": {"epoch", "loss", "accuracy", "r2", "learning_rate"},
    "validation": {"epoch", "loss", "accuracy", "r2", *EVERY_METRIC},
}


class Logger(Base):
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
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(folder))
        settings = {
            f"{group}.{key}": value
            for group, values in config.model_dump().items()
            for key, value in (values.items() if isinstance(values, dict) else ())
            if isinstance(value, (bool, int, float, str))
        }
        for summary in hparams(settings, {f"validation/{MEASURES[self.setup.data.kind]}": 0.0}):
            self._writer.file_writer.add_summary(summary)
        layers = self.setup.network.every_layer()
        rows = (f"{each.name}  {each.kind}  {shape_text(each.output_shape)}\n" for each in layers)
        for name, text in (("config", effective_yaml(config)), ("layers", "".join(rows))):
            # Markdown shows what is indented as it is.
            self._writer.add_text(name, indent(text, "    "), 0)
        self._last: dict[str, int] = {}
        for line in log_lines(self.run / LOG, dict[str, Any]):
            if line is not None and line.get("event") in _SCALARS:
                self.write(line["event"], line["step"], line)

    def write(self, split: str, step: int, values: Logs) -> None:
        if step <= self._last.get(split, 0):
            # The training has gone back, and with it the log, which has this line already.
            self.on_train_begin({})
            return
        self._last[split] = step
        for name in sorted(values.keys() & _SCALARS[split]):
            if values[name] is not None:
                self._writer.add_scalar(f"{split}/{name}", values[name], step)
        self._writer.flush()

    def on_pictures(self, drawn: Callable[[], Pictures], step: int) -> None:
        for name, picture in drawn():
            pixels = np.asarray(picture.convert("RGB"))
            self._writer.add_image(name, pixels, step, dataformats="HWC")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
