"""Files of ONNX answer in ONNX Runtime as ``predict`` does, from pictures of any size on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import util
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from dnnstack.common.errors import ExportError
from dnnstack.datasets.pictures import Preparation, as_picture
from dnnstack.exports import onnx_file
from dnnstack.exports.onnx_file import Onnx
from dnnstack.exports.plain import Plain
from dnnstack.graph.ops import Quantization
from dnnstack.graph.quantization import products
from dnnstack.training.inference.trained import Trained
from onnx import numpy_helper
from PIL import Image

from ..support.exported import compared
from ..support.untrained import untrained, with_drawn_weights

SMALL = "[{conv2d: {filters: 3, kernel_size: 3}}, relu, flatten, {dense: {units: 4}}]"


def _model(plain: Plain, form: Onnx | None = None) -> Any:
    """What ``plain`` is as a file, which is valid and always the same."""
    form = form or Onnx()
    data = form.files(plain)[""]
    assert form.files(plain)[""] == data
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    named = [*model.graph.node, *model.graph.input, *model.graph.initializer]
    assert len({each.name for each in named}) == len(named)
    return model


def _opened(model: Any) -> Any:
    """What answers as the model does."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    data, name = model.SerializeToString(), model.graph.input[0].name
    session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    return lambda given: session.run(["output0"], {name: given})[0]


# ---------------------------------------------------------------- what it says and takes


def test_it_says_what_it_is():
    layers = SMALL.replace("kernel_size: 3", "kernel_size: 3, name: output0").replace("4", "2")
    plain = Plain.of(untrained(layers, (3, 8, 9), 2)).telling(checked="so far")
    model = _model(plain)
    assert (model.ir_version, model.opset_import[0].version) == (8, 18)
    assert (model.producer_name, model.producer_version) == ("dnnstack", "0")
    about = {each.key: each.value for each in model.metadata_props}
    expected = {
        "description": "drawn, trained with dnnstack",
        "author": "dnnstack",
        "version": "0",
        "task": "classify",
        "batch": "1",
        "imgsz": "[8, 9]",
        "names": "{0: 'c0', 1: 'c1'}",
        "class_names": '["c0", "c1"]',
        "dnnstack.scaled": "middle",
        "dnnstack.raw": "false",
    }
    assert {key: about[key] for key in expected} == expected
    own = {f"dnnstack.{key}": value for key, value in plain.about.items()}
    assert own.items() <= about.items()
    assert len(about) == len(expected) + len(own)
    names = [node.name for node in model.graph.node]
    assert names[-5:] == ["output0_", "relu_1", "flatten_1", "dense_1", "loss"]
    assert [node.output[0] for node in model.graph.node][-2:] == ["dense_1", "output0"]
    assert "output0.weight" in [each.name for each in model.graph.initializer]


def _described(values: Any) -> list[tuple[str, int, list[Any]]]:
    kinds = [(each.name, each.type.tensor_type) for each in values]
    return [(n, t.elem_type, [s.dim_param or s.dim_value for s in t.shape.dim]) for n, t in kinds]


PIXEL, FLOAT = onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT
ANY = ["height", "width", "channels"]


@pytest.mark.parametrize(
    ("shape", "floats", "classes", "raw", "scaled", "expected"),
    [
        ((3, 8, 9), False, 2, False, "middle", ("images", PIXEL, ANY)),
        ((3, 8, 9), False, 2, True, "middle", ("images", FLOAT, [3, 8, 9])),
        # More channels than pictures have in files.
        ((5, 8, 9), False, 2, False, "no", ("images", PIXEL, [8, 9, 5])),
        ((2, 8, 9), True, 2, False, "no", ("values", FLOAT, [2, 8, 9])),
        ((2, 1, 9), True, 2, False, "no", ("values", FLOAT, [2, 9])),
        ((4, 1, 1), True, 2, False, "no", ("values", FLOAT, [4])),
        ((4, 1, 1), True, 2, True, "no", ("values", FLOAT, [4, 1, 1])),
        ((1, 28, 28), False, 9, False, "middle", ("images", PIXEL, ANY)),
        # Digits, which are found on their page before.
        ((1, 28, 28), False, 10, False, "no", ("images", PIXEL, [28, 28, 1])),
    ],
)
def test_what_is_given_and_answered(shape, floats, classes, raw, scaled, expected, tmp_path):
    net = f"[flatten, {{dense: {{units: {classes}}}}}]"
    trained = untrained(net, shape, classes, floats=floats)
    if classes == 10:
        origin = replace(trained.checkpoint.provenance, classes=tuple("0123456789"))
        trained = replace(trained, checkpoint=replace(trained.checkpoint, provenance=origin))
    model = _model(Plain.of(trained), Onnx(raw=raw))
    name, kind, sizes = expected
    assert _described(model.graph.input) == [(name, kind, ["batch", *sizes])]
    assert _described(model.graph.output) == [("output0", FLOAT, ["batch", classes])]
    assert compared(Onnx(raw=raw), trained, tmp_path).largest < 2e-6
    about = {each.key: each.value for each in model.metadata_props}
    assert about["dnnstack.scaled"] == scaled


@pytest.mark.parametrize("fit", ["crop", "resize"])
def test_a_folder_of_pictures_says_how_they_are_scaled(fit):
    config = (
        f"name: a\ndata: {{dataset: {{image_folder: {{train: a, size: [4, 4], fit: {fit}}}}}, "
        "batch_size: 2}\nlayers: [flatten, {dense: {units: 2}}]\nloss: cross_entropy\n"
        "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    )
    plain = Plain.of(with_drawn_weights(config, (3, 4, 4), 2))
    assert onnx_file._scaled(plain) == {"crop": "middle", "resize": "whole"}[fit]


# ---------------------------------------------------------------- pictures of any size


def _drawn(kind: str, width: int, height: int, channels: int) -> Any:
    rng = np.random.default_rng(width * height)
    if kind == "noise":
        pixels = rng.integers(0, 256, (height, width, channels)).astype(np.uint8)
    else:
        coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3)).astype(np.uint8))
        pixels = np.array(coarse.resize((width, height), Image.Resampling.BICUBIC))[..., :channels]
    return pixels


@pytest.mark.parametrize("way", ["middle", "whole"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 24, 40), (1, 1, 1), (3, 60, 20)])
def test_pictures_become_what_predict_makes_of_them(shape, way, monkeypatch):
    """Equal where Pillow of all versions scales lines before columns, else near."""
    monkeypatch.setattr(onnx_file, "_scaled", lambda plain: way)
    # No layer: what is answered are the normalised pixels.
    plain = Plain.of(untrained("[flatten, {dense: {units: 2}}]", shape, 2))
    plain = replace(plain, graph=plain.graph.with_ops([]), y=plain.x)
    runs = _opened(_model(plain))
    scale, shift = plain.scale[:, None, None], plain.shift[:, None, None]
    sizes = [(64, 43), (43, 64), (32, 32), (28, 28), (1, 1), (1, 30), (30, 1), (333, 7), (19, 18)]
    for width, height in [*sizes, (500, 350), (5, 400)]:
        # Pillow 13 begins with the columns where the height shrinks more than twice as much.
        last = 2 if height - shape[1] > max(0, width - shape[2]) else 0
        for kind in ("noise", "photo"):
            for channels in (1, 3):
                pixels = _drawn(kind, width, height, channels)
                image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
                how = Preparation(digits=False, raw=way == "whole")
                expected = as_picture(image, "drawn", shape, how).image.astype(float)
                found = (runs(pixels[None]).reshape(shape) - shift) / scale
                bound = (30 if kind == "noise" else 2) if last else 0
                away = np.abs(found - expected).max()
                assert away < bound + 1e-3, (kind, width, height, channels, away)


def test_a_batch_of_pictures_answers_as_each_alone():
    plain = Plain.of(untrained(SMALL, (3, 8, 9), 4))
    runs = _opened(_model(plain))
    pixels = np.stack([_drawn("noise", 20, 30, 3), _drawn("photo", 20, 30, 3)])
    both = runs(pixels)
    assert both.shape == (2, 4)
    np.testing.assert_allclose(both[1:], runs(pixels[1:]), atol=1e-6)
    np.testing.assert_allclose(both.sum(1), 1, atol=1e-5)


# ---------------------------------------------------------------- 8-bit integers

INTEGERS = (
    "[{conv2d: {filters: 4, kernel_size: 3, padding: 1}}, batch_norm, relu, max_pool2d, "
    "{conv2d: {filters: 6, kernel_size: 3, use_bias: false}}, tanh, flatten, {dense: {units: 5}}, "
    "relu, {dense: {units: 3}}]"
)


def _in_integers(changed: Mapping[str, Any] | None = None) -> Trained:
    trained = untrained(INTEGERS, (3, 12, 12), 3)
    checkpoint = trained.checkpoint
    names = list(products(trained.network.infer_graph(1)))
    steps = [Quantization(0.03, True), Quantization(0.02, False)]
    steps += [Quantization(0.01, True), Quantization(0.05, False)]
    known = dict(zip(names, steps, strict=True))
    arrays = {**checkpoint.arrays, **(changed or {})}
    return Trained.of(replace(checkpoint, arrays=arrays, quantization=known))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        # Steps of weights of any sign, or none at all.
        {"batch_norm_1.weight": np.array([-0.7, 0.5, 0.0, 1e-12], np.float32)},
    ],
)
def test_integers_are_those_of_ours(changed, tmp_path):
    trained = _in_integers(changed)
    model = _model(Plain.of(trained))
    assert [node.op_type for node in model.graph.node].count("QuantizeLinear") == 4
    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    assert {each.ndim for each in stored.values() if each.dtype == np.int8} == {0, 1, 2, 4}
    assert [array.dtype for array in stored.values()].count(np.int32) == 4
    assert not any(array.dtype == np.float32 and array.size > 20 for array in stored.values())
    steps = [n.input[1] for n in model.graph.node if n.op_type == "DequantizeLinear"]
    assert all((stored[name] > 0).all() for name in steps)
    # Half an integer may be rounded to either side of it.
    assert compared(Onnx(), trained, tmp_path, 20).largest < 0.02


def test_a_run_time_computes_with_integers(tmp_path):
    (tmp_path / "net.onnx").write_bytes(Onnx().files(Plain.of(_in_integers()))[""])
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(tmp_path / "net.onnx", options, ["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    # Another convolution is followed by tanh, which takes floats.
    assert [kinds.count(kind) for kind in ("QLinearConv", "QGemm", "Conv")] == [1, 2, 0]


# ---------------------------------------------------------------- what is refused


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    plain = Plain.of(untrained(SMALL, (3, 8, 9), 4))
    size = sum(array.nbytes for array in plain.arrays.values())
    monkeypatch.setattr(onnx_file, "_MOST", size)
    Onnx().check(plain)
    monkeypatch.setattr(onnx_file, "_MOST", size - 1)
    with pytest.raises(ExportError, match="2 GB"):
        Onnx().check(plain)
    lacking = lambda name: None if name in ("onnx", "onnxruntime") else util.find_spec(name)  # noqa: E731
    monkeypatch.setattr(onnx_file, "find_spec", lacking)
    with pytest.raises(ExportError, match=r"python3 -m pip install 'dnnstack\[onnx\]'"):
        Onnx().check(plain)
    assert Onnx().twin(tmp_path / "a.onnx", plain) is None


def test_a_file_that_cannot_be_run_is_one_line(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"no model")
    with pytest.raises(ExportError, match=r"^onnx: ONNX Runtime .* cannot run the file; install"):
        Onnx().twin(tmp_path / "a.onnx", Plain.of(untrained(SMALL, (3, 8, 9), 4)))
