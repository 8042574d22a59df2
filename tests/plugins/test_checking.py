"""The check of gradients finds what is wrong, in layers and losses, of ours and of plugins."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import dnnstack
import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.graph.graph import Tensor
from dnnstack.plugins.checking import GradientError, _compare, _spread
from dnnstack.plugins.loading import load_plugin

from ..support.plugin_files import PLUGINS, SWISH
from ..support.stored import cases

RIGHT = "return dy * (s + op.beta * x * s * (1 - s))"


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(("kind", "shape", "options"), cases(__file__, "right_gradients_pass_1"))
def test_right_gradients_pass(kind, shape, options):
    dnnstack.check_gradients(kind, (*shape,), options)


@pytest.mark.parametrize(
    "wrong",
    ["return dy * s", "return dy * (s + op.beta * x * s * (1 - s)) * 1.001", "return dy / 0"],
)
def test_a_wrong_gradient_is_found(tmp_path, wrong):
    code = SWISH.read_text()
    assert code.count(RIGHT) == 1
    (tmp_path / "swish.py").write_text(code.replace(RIGHT, wrong))
    load_plugin(tmp_path / "swish.py")
    with pytest.raises(GradientError, match=r"swish: the gradient of 'x' \(3, 5\) is wrong: along"):
        dnnstack.check_gradients("swish", (5,))


@pytest.mark.parametrize("error", [0.98e-6, 1.02e-6])
def test_an_error_counts_from_a_millionth_on(error):
    """Of the terms; that of the differences themselves is far smaller."""
    x, slope, values = Tensor("x", (1,)), 1e6, {}
    executable = SimpleNamespace(
        write=values.__setitem__, read=lambda _: np.array([slope * (1 + error)])
    )
    check = partial(
        _compare, "line", executable, {x: np.zeros(1)}, {x: x},
        lambda: float(slope * values[x][0]), np.random.default_rng(0),
    )  # fmt: skip
    if error < 1e-6:
        check()
    else:
        with pytest.raises(GradientError):
            check()


def test_a_wrong_loss_is_found(tmp_path):
    code = next(path for path in PLUGINS if path.name == "log_cosh.py").read_text()
    (tmp_path / "log_cosh.py").write_text(code.replace("return np.tanh(", "return 2 * np.tanh("))
    load_plugin(tmp_path / "log_cosh.py")
    with pytest.raises(GradientError, match="log_cosh: the gradient of 'x'"):
        dnnstack.check_gradients("log_cosh", (4,))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match=r"'swisch' is no layer and no loss; .*load a plugin"):
        dnnstack.check_gradients("swisch", (5,))


def test_where_a_gradient_is_checked():
    """From -2 to 2, no two alike and none near 0, where a kink may be."""
    for size in range(1, 40):
        values = np.sort(_spread((size, 1), np.random.default_rng(size)).ravel())
        assert values[0] == pytest.approx(-2 + 1 / size)
        assert values[-1] == pytest.approx(2 - 3 / size)
        assert np.allclose(np.diff(values), 4 / size)
        assert abs(values).min() > 0.99 / size
