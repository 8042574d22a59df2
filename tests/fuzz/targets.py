"""All readers, by name."""

from __future__ import annotations

from .configs import CONFIGS
from .data_files import DATA_FILES
from .run_files import RUN_FILES
from .weight_files import WEIGHT_FILES

TARGETS = {target.name: target for target in (*CONFIGS, *DATA_FILES, *RUN_FILES, *WEIGHT_FILES)}
