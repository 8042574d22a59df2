"""What leaves answers as ``predict`` does, or does not leave."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from dnnstack.backends.select import open_backend
from dnnstack.cli import export as command
from dnnstack.common.errors import ExportError, UsageError
from dnnstack.common.options import options_of
from dnnstack.exports import c_writer, door, numpy_file, onnx_graph, torch_modules
from dnnstack.exports.c_integers import answers
from dnnstack.exports.door import Checked, Samples, compare, export
from dnnstack.exports.format import Twin, format_of, formats
from dnnstack.exports.html_file import Html
from dnnstack.exports.numpy_file import Numpy
from dnnstack.exports.plain import Plain
from dnnstack.exports.torch_file import Torch
from dnnstack.graph import ops
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.trained import Trained

from ..support.untrained import untrained

NET = (
    "[{conv2d: {filters: 3, kernel_size: 3}}, batch_norm, relu, max_pool2d, "
    "{conv2d: {filters: 4, kernel_size: 3, name: second}}, tanh, flatten, {dense: {units: 4}}]"
)


NUMBERS = "[flatten, {dense: {units: 2}}]"


class Broken(Numpy):
    """The file has other weights of a layer."""

    kind = "broken"
    by: float = 1.0

    def twin(self, path: Path, plain: Plain) -> Twin:
        module: dict[str, Any] = {}
        exec(path.read_text("utf-8"), module)
        if "second.weight" in module["W"]:
            module["W"]["second.weight"] = module["W"]["second.weight"] + self.by
        return Twin("a broken one", module["predict"])


@pytest.fixture(scope="module")
def trained() -> Trained:
    return untrained(NET, (2, 10, 10), 4)


@pytest.fixture(scope="module")
def forward(trained):
    return Forward(trained, open_backend("numpy", 1))


def _asked(trained):
    return lambda: Samples.drawn(trained)


def test_it_is_checked_written_and_says_so(trained, forward, tmp_path):
    path = tmp_path / "net.py"
    path.write_text("an older one")
    done = export(trained, forward, Numpy(), path, _asked(trained))
    assert (done.path, done.format, done.bytes) == (path, "numpy", path.stat().st_size)
    checked = done.checked
    assert checked is not None
    assert (checked.count, checked.other) == (100, 0)
    assert 0 < checked.largest < 1e-5
    assert str(checked) in path.read_text()
    assert str(checked) in done.as_text()
    assert done.to_json()["checked"]["other"] == 0
    json.dumps(done.to_json())
    first = path.read_bytes()
    export(trained, forward, Numpy(), path, _asked(trained))
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == ["net.py"]


@pytest.mark.parametrize("by", [1.0, np.nan])
def test_another_answer_is_refused(trained, forward, tmp_path, by):
    path = tmp_path / "net.py"
    path.write_text("an older one")
    with pytest.raises(
        ExportError,
        match=r"nothing was written \(100 drawn .*; the first layer whose output differs is "
        "'second'; this is a fault of dnnstack",
    ):
        export(trained, forward, Broken(by=by), path, _asked(trained))
    assert path.read_text() == "an older one"


@pytest.mark.parametrize(
    ("kind", "writer", "key", "named"),
    [
        ("numpy", numpy_file._CHAINS, ops.Pool2d, "inner"),
        ("html", numpy_file._CHAINS, ops.Pool2d, "inner"),
        ("onnx", onnx_graph.CODE, ops.Pool2d, "inner"),
        ("torch", torch_modules.MODULES, "max_pool2d", "block"),
        ("c", c_writer._CODE, ops.Pool2d, "inner"),
    ],
)
def test_a_wrong_layer_is_named(kind, writer, key, named, tmp_path, monkeypatch):
    """Each format writes an average in place of a maximum; in PyTorch the outer layer is named."""
    net = (
        "[{conv2d: {filters: 3, kernel_size: 3, padding: same}}, batch_norm, relu, "
        "{residual: {name: block, body: [{conv2d: {filters: 3, kernel_size: 3, padding: same}}, "
        "{max_pool2d: {name: inner, pool_size: 3, stride: 1, padding: same}}, tanh]}}, relu, "
        "flatten, {dense: {units: 4}}]"
    )
    trained = untrained(net, (2, 8, 8), 4)
    forward = Forward(trained, open_backend("numpy", 1))
    if kind == "torch":
        pytest.importorskip("torch", reason="PyTorch, which no extra installs, is missing")
    write = writer[key]
    if key == "max_pool2d":
        wrong = lambda layer, arrays: [  # noqa: E731
            (text.replace("MaxPool", "AvgPool"), state) for text, state in write(layer, arrays)
        ]
    else:
        wrong = lambda op, of: write(replace(op, kind="avg"), of)  # noqa: E731
    monkeypatch.setitem(writer, key, wrong)
    format, path = format_of(str(tmp_path / "net.x"), kind, {})
    inner = f"{'' if named == 'block' else 'block.'}{named}"
    with pytest.raises(ExportError, match=f"first layer whose output differs is '{inner}'; this"):
        export(trained, forward, format, path, _asked(trained))
    assert [*tmp_path.iterdir()] == []


def test_a_fault_of_predict_itself_is_of_no_layer(trained, forward, tmp_path):
    off = Mock(side_effect=lambda given: forward(given)[:, ::-1])
    with pytest.raises(ExportError, match="; which layer it is cannot be told; this is a fault"):
        export(trained, off, Numpy(), tmp_path / "net.py", _asked(trained))


def test_files_of_one_export_do_not_replace_each_other(trained, forward, tmp_path):
    with pytest.raises(
        ExportError, match=r"net\.safetensors: would replace .*; end its name in \.py"
    ):
        export(trained, forward, Torch(), tmp_path / "net.safetensors", None)
    assert [*tmp_path.iterdir()] == []
    export(trained, forward, Torch(), tmp_path / "net.py", None)
    assert {each.name for each in tmp_path.iterdir()} == {"net.py", "net.safetensors"}


def test_without_a_check_it_says_so(trained, forward, tmp_path, monkeypatch):
    done = export(trained, forward, Broken(), tmp_path / "net.py", None)
    assert done.checked is None
    assert done.as_text().endswith("\nnot checked")
    assert done.to_json()["checked"] is None
    told: list[str] = []
    monkeypatch.setattr(Numpy, "twin", lambda *given: None)
    assert export(trained, forward, Numpy(), tmp_path / "a.py", _asked(trained), told.append)
    assert told == ["nothing here can run the file, so its answers were not checked"]


def test_a_layer_that_a_format_lacks_is_named_before_any_work(trained, forward, monkeypatch):
    monkeypatch.setattr(Numpy, "ops", Numpy.ops - {ops.Pool2d})
    monkeypatch.setattr(Numpy, "files", None)
    expected = r"^layer 'max_pool2d_1' \(max_pool2d\): numpy has no Pool2d; formats that have it: c"
    with pytest.raises(ExportError, match=expected):
        export(trained, forward, Numpy(), Path("net.py"), None)


def test_a_file_that_cannot_be_written_is_one_line(trained, forward, tmp_path, monkeypatch):
    for path, said in ((tmp_path, "is a folder"), (tmp_path / "none" / "a.py", "its folder does")):
        with pytest.raises(ExportError, match=f"{said}.*; name a file in a folder that does"):
            export(trained, forward, Numpy(), path, None)
    monkeypatch.setattr(door, "atomic_write", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(ExportError, match=r"py: cannot be written: No space left; name a file"):
        export(trained, forward, Numpy(), tmp_path / "net.py", None)


def _checked(largest: float = 0.0, other: int = 0, lost: float | None = None) -> Checked:
    return Checked(10_000, "samples", "it", largest, other, lost)


@pytest.mark.parametrize(
    ("checked", "integers", "wrong"),
    [
        (_checked(1e-4), False, False),
        (_checked(1.1e-4), False, True),
        (_checked(np.inf), False, True),
        (_checked(other=1), False, True),
        (_checked(0.5, 10), True, False),
        (_checked(0.5, 11), True, True),
        (_checked(0.5, 500, 0.001), True, False),
        (_checked(0.5, 500, 0.0011), True, True),
        (_checked(0.5, 500, -0.02), True, False),
        (_checked(np.inf, 0, 0.0), True, True),
    ],
)
def test_floats_answer_alike_and_integers_nearly(checked, integers, wrong, monkeypatch, trained):
    monkeypatch.setattr(Plain, "is_quantized", integers)
    assert door._is_wrong(checked, Numpy(), Plain.of(trained)) is wrong
    assert door._is_wrong(checked, Html(weights="fp32"), Plain.of(trained)) is wrong
    for largest, far in ((0.1, False), (0.11, integers)):
        plain = Plain.of(untrained(NUMBERS, (1, 1, 3), 2, kind="numbers", loss="mse"))
        assert door._is_wrong(_checked(largest), Numpy(), plain) is (far or not integers)


@pytest.mark.parametrize(
    ("checked", "wrong"),
    [(_checked(5e-3, 10), False), (_checked(5.1e-3), True), (_checked(other=11), True)],
)
def test_rounded_weights_answer_nearly_alike(checked, wrong, trained):
    assert door._is_wrong(checked, Html(), Plain.of(trained)) is wrong


def test_names_of_layers_are_no_names_of_python(tmp_path):
    names = ("relu", "lambda", "np", "x", "a_b", "a-b", "raw")
    layers = "".join(f"{{tanh: {{name: {name!r}}}}}, " for name in names)
    net = untrained(f"[{layers} flatten, {{dense: {{units: 4}}}}, softmax]", (1, 3, 3), 4)
    forward = Forward(net, open_backend("numpy", 1))
    assert export(net, forward, Numpy(), tmp_path / "a.py", _asked(net)).checked is not None


@pytest.mark.parametrize(
    ("kind", "loss", "ours", "theirs", "other"),
    [
        ("class", "cross_entropy", [[0.6, 0.4], [0.1, 0.9]], [[0.4, 0.6], [0.2, 0.8]], 1),
        # A tie is no other answer.
        ("class", "cross_entropy", [[0.5, 0.5], [0.1, 0.9]], [[0.4, 0.6], [0.2, 0.8]], 0),
        ("yes_no", "binary_cross_entropy", [[0.6, 0.4], [0.1, 0.9]], [[0.6, 0.6], [0.6, 0.4]], 2),
        ("yes_no", "binary_cross_entropy", [[0.5, 0.4], [0.1, 0.9]], [[0.6, 0.4], [0.2, 0.8]], 0),
        ("numbers", "mse", [[3.0, 4.0], [0.1, 9.0]], [[3.0, 5.0], [0.2, 8.0]], 0),
    ],
)
def test_answers_are_compared_by_their_kind(kind, loss, ours, theirs, other):
    net = untrained(
        "[flatten, {dense: {units: 2}}]", (1, 1, 3), 2, kind=kind, loss=loss, floats=True
    )
    asked = Samples("given", np.zeros((2, 1, 1, 3), np.float32), np.array([0, 1]))

    def forward(inputs):
        return np.array(ours, np.float32)

    found = compare(Plain.of(net), Twin("it", lambda raw: np.array(theirs)), forward, asked)
    assert found.other == other
    size = np.max(ours) if kind == "numbers" else 1.0
    assert found.largest == pytest.approx(np.abs(np.subtract(ours, theirs)).max() / size)
    right = [np.argmax(each, 1) == [0, 1] for each in (ours, theirs)]
    lost = np.mean(right[0]) - np.mean(right[1]) if kind == "class" else None
    assert found.lost == lost


def test_numbers_reach_the_network_in_their_own_units(trained):
    plain = Plain.of(trained)
    stored = Samples.drawn(trained).stored
    assert plain.raw(stored) is stored
    assert stored.dtype == np.uint8
    x = plain.raw(stored) * plain.scale[:, None, None] + plain.shift[:, None, None]
    np.testing.assert_allclose(
        x, trained.checkpoint.provenance.preprocessing(stored), rtol=1e-5, atol=1e-5
    )
    assert len(np.unique(stored)) > 200


def test_batch_norm_goes_into_the_product_before_it(trained):
    plain = Plain.of(trained)
    folded = plain.folded()
    assert any(isinstance(op, ops.BatchNormInference) for op in plain.ops)
    kinds = "Conv2d Activation Pool2d Conv2d Activation Reshape MatMul Softmax"
    assert [type(op).__name__ for op in folded.ops] == kinds.split()
    kinds = kinds.replace("Activation ", "")
    assert [type(op).__name__ for op in folded.fused().ops] == kinds.split()
    stored = Samples.drawn(trained).stored[:5]
    found, raw = (answers(each, plain.raw(stored)) for each in (folded, plain)), plain.raw(stored)
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(answers(folded.fused(), raw), answers(folded, raw), atol=1e-6)


def test_the_command_offers_every_format_and_option():
    assert sorted(formats()) == sorted(command.FORMATS)
    offered = {each.name for each in command.export.params}
    needed = {o.name for kind in formats().values() for o in options_of(kind)}
    assert needed <= offered
    for name, kind in formats().items():
        assert name == kind.kind
        assert kind.suffix.startswith(".")
        assert kind.ops
        assert kind.__doc__


@pytest.mark.parametrize(
    ("path", "name", "given", "said"),
    [
        ("a.py", "nump", {}, "format: expected .*numpy.* .got 'nump'; did you mean 'numpy'"),
        ("a.xyz", None, {}, "format: expected .* .got '.xyz'"),
        ("a.py", "numpy", {"int9": True}, "int9: numpy takes "),
    ],
)
def test_wrong_usage_is_named(path, name, given, said):
    with pytest.raises(UsageError, match=said):
        format_of(path, name, given)


def test_the_suffix_chooses_the_format():
    chosen, path = format_of("a/b.py", None, {})
    assert (type(chosen).suffix, path) == (".py", Path("a/b.py"))
