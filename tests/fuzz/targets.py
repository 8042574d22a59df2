"""All readers, by name."""

from __future__ import annotations

from .compressed_files import COMPRESSED_FILES
from .configs import CONFIGS
from .data_files import DATA_FILES
from .group_files import GROUP_FILES
from .onnx_files import ONNX_FILES
from .run_files import RUN_FILES
from .served import SERVED
from .weight_files import WEIGHT_FILES

_EVERY = (
    *CONFIGS,
    *DATA_FILES,
    *RUN_FILES,
    *WEIGHT_FILES,
    *COMPRESSED_FILES,
    *GROUP_FILES,
    *SERVED,
    *ONNX_FILES,
)
TARGETS = {target.name: target for target in _EVERY}
