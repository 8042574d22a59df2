"""dnnstack: trains image classifiers on oneDNN, cuDNN and cuBLAS, and applies them.

    history = dnnstack.train("digits.yaml")
    model = dnnstack.load(history.run)
    model.predict("5.png")

Names are resolved on first use: importing this package loads nothing else, NumPy included.
"""

from __future__ import annotations

# Type checkers take it for true; the import of typing would take longer than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .checking import check as check
    from .checking import lr_find as lr_find
    from .checking import step as step
    from .classifier import Classifier as Classifier
    from .classifier import load as load
    from .common.errors import DnnstackError as DnnstackError
    from .comparing import compare as compare
    from .configs import RunConfig as RunConfig
    from .ensemble import Ensemble as Ensemble
    from .ensemble import load_ensemble as load_ensemble
    from .fitting import load_config as load_config
    from .fitting import network_graph as network_graph
    from .fitting import train as train
    from .grouping import sweep as sweep
    from .grouping import train_group as train_group
    from .importing import import_onnx as import_onnx
    from .imports.onnx_run import Imported as Imported
    from .looking import Run as Run
    from .looking import bench as bench
    from .looking import explain as explain
    from .looking import runs as runs
    from .looking import summary as summary
    from .many.comparison import Comparison as Comparison
    from .many.statistics import GroupReport as GroupReport
    from .plugins.checking import check_gradients as check_gradients
    from .plugins.loading import load_plugin as load_plugin
    from .reporting import report as report
    from .reports.bench import Bench as Bench
    from .reports.callbacks import Callback as Callback
    from .reports.check import Check as Check
    from .reports.history import History as History
    from .reports.rate_range import RateRange as RateRange
    from .reports.step import Step as Step
    from .reports.sweep_report import SweepReport as SweepReport
    from .training.inference.evaluate import Evaluation as Evaluation
    from .training.inference.predict import Prediction as Prediction

    __version__: str

_HOMES = {
    "Bench": "reports.bench",
    "Callback": "reports.callbacks",
    "Check": "reports.check",
    "Classifier": "classifier",
    "Comparison": "many.comparison",
    "DnnstackError": "common.errors",
    "Ensemble": "ensemble",
    "Evaluation": "training.inference.evaluate",
    "GroupReport": "many.statistics",
    "History": "reports.history",
    "Imported": "imports.onnx_run",
    "Prediction": "training.inference.predict",
    "RateRange": "reports.rate_range",
    "Run": "looking",
    "RunConfig": "configs",
    "Step": "reports.step",
    "SweepReport": "reports.sweep_report",
    "bench": "looking",
    "check": "checking",
    "check_gradients": "plugins.checking",
    "compare": "comparing",
    "explain": "looking",
    "import_onnx": "importing",
    "load": "classifier",
    "load_config": "fitting",
    "load_ensemble": "ensemble",
    "load_plugin": "plugins.loading",
    "lr_find": "checking",
    "network_graph": "fitting",
    "report": "reporting",
    "runs": "looking",
    "step": "checking",
    "summary": "looking",
    "sweep": "grouping",
    "train": "fitting",
    "train_group": "grouping",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("dnnstack")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
