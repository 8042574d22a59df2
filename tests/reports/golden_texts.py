"""Every report as text and JSON, of something small and fixed; what files may hold."""

from __future__ import annotations

from .golden_answers import ANSWERS
from .golden_commands import COMMANDS
from .golden_files import FILES
from .golden_networks import NETWORKS
from .golden_runs import RUNS

TEXTS = {**ANSWERS, **COMMANDS, **FILES, **NETWORKS, **RUNS}
