"""Networks of ONNX files answer as they do elsewhere, or it is said why they cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dnnstack
import numpy as np
import onnx
import pytest
from dnnstack.backends.select import open_backend
from dnnstack.cli.main import main
from dnnstack.exports.onnx_file import Onnx
from dnnstack.exports.plain import Plain
from dnnstack.imports.onnx_run import Wishes, import_network
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.trained import find_trained
from onnx import numpy_helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator
from PIL import Image
from safetensors.numpy import load_file

from ..support.rows import rows
from ..support.untrained import untrained

FILES = Path(__file__).parent / "onnx"
EXPECTED = json.loads((FILES / "expected.json").read_text("utf-8"))


def pixels(*shape: int) -> np.ndarray:
    """Two pictures of bytes, those of ``make_onnx_fixtures``."""
    count = 2 * int(np.prod(shape))
    return (np.arange(count) * 7919 % 65521 % 256).astype(np.uint8).reshape(2, *shape)


def model(
    body: str,
    shapes: dict[str, tuple[int, ...]],
    given: str = "float[n,2,6,5] x",
    opset: int = 17,
    result: str = "y",
) -> onnx.ModelProto:
    """A network in ONNX's text form, whose arrays of these shapes are drawn."""
    opset = 18 if "Mish(" in body else opset  # the first that has it
    head = f'<ir_version: 8, opset_import: ["" : {opset}]>'
    made = parse_model(f"{head} net ({given}) => (float[n,k] {result}) {{ {body} }}")
    draw = np.random.default_rng(1)
    for name, shape in shapes.items():
        values = draw.uniform(0.2, 1.0, shape) * draw.choice([1, 1, -1], shape)
        values = abs(values) if name.startswith("var") else values
        values = -abs(values) if name == "minus" else values
        array = numpy_helper.from_array(values.astype(np.float32), name)
        made.graph.initializer.append(array)
    return made


def taken(made: onnx.ModelProto, folder: Path, **wishes: Any) -> dnnstack.Imported:
    path = folder / "net.onnx"
    path.write_bytes(made.SerializeToString())
    return import_network(path, Wishes(**wishes), folder / "runs", lambda text: None)


def scores(found: dnnstack.Imported, x: np.ndarray) -> np.ndarray:
    """Those from which the probabilities are, without what all of a sample have in common."""
    assert found.reasons == ()
    with dnnstack.load(found.run, device="numpy") as net:
        return centred(np.log(net.predict_proba(x).astype(np.float64)))


def centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(1, keepdims=True)


def kinds(found: dnnstack.Imported) -> str:
    assert found.run is not None
    trained = find_trained(str(found.run), None, Path("runs"), str)
    layers = trained.network.every_layer()
    return " ".join(each.kind for each in layers if each.kind != "flatten")


@rows("name", list(EXPECTED))
def test_what_pytorch_exports_answers_as_in_pytorch(name, tmp_path):
    found = dnnstack.import_onnx(FILES / f"{name}.onnx", runs_dir=tmp_path)
    assert found.run == tmp_path / name
    said = EXPECTED[name]
    wanted = np.array(said["scores"])
    got = scores(found, pixels(3, said["size"], said["size"]))
    np.testing.assert_allclose(got, centred(wanted), atol=2e-5)


def test_blocks_have_the_names_of_the_file(tmp_path):
    found = dnnstack.import_onnx(FILES / "resnet-unfolded.onnx", runs_dir=tmp_path)
    trained = find_trained(str(found.run), None, tmp_path, str)
    names = {tensor.name for tensor in trained.network.learned()}
    assert {"conv1.weight", "bn1.running_var", "layer1_1.bn2.bias", "fc.bias"} <= names
    assert {"layer2_0.downsample_0.weight", "layer2_0.downsample_1.weight"} <= names
    assert len(names) == found.arrays == 42
    folded = dnnstack.import_onnx(FILES / "resnet.onnx", runs_dir=tmp_path)
    names = {t.name for t in find_trained(str(folded.run), None, tmp_path, str).network.learned()}
    assert {"conv1.bias", "layer2_0.downsample_0.bias", "fc.bias"} <= names


W, B4 = {"w": (4, 2, 3, 3)}, {"b": (4,)}
NORM = {"s": (2,), "o": (2,), "m": (2,), "var": (2,)}
HALF = "O = Constant<value_float=1.0>() H = Constant<value_float=0.5>()"
ERF = "Q = Constant<value_float=1.4142135>() G = Div(x, Q) R = Erf(G) E = Add(R, O)"
ERF_TIMES = "Q = Constant<value_float=0.70710677>() G = Mul(Q, x) R = Erf(G) E = Add(O, R)"
TRUE_MEAN = "t = AveragePool<kernel_shape=[3,3], strides=[2,2], "
OPERATORS: dict[str, tuple[str, dict[str, tuple[int, ...]], str]] = {
    "conv": ("t = Conv<pads=[1,2,1,2], strides=[2,1]>(x, w, b)", W | B4, "conv2d"),
    "groups": ("t = Conv<group=2>(x, w)", {"w": (4, 1, 3, 3)}, "conv2d"),
    "same": ('t = Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)', W, "conv2d"),
    "bias-after": ("a = Conv(x, w) t = Add(a, b)", W | {"b": (1, 4, 1, 1)}, "conv2d"),
    "norm": ("t = BatchNormalization<epsilon=0.3>(x, s, o, m, var)", NORM, "batch_norm"),
    "leaky": ("t = LeakyRelu<alpha=0.3>(x)", {}, "leaky_relu"),
    "elu": ("a = Conv(x, w) t = Elu<alpha=0.7>(a)", W, "conv2d elu"),
    "others": ("a = Tanh(x) c = Softplus(a) t = Sigmoid(c)", {}, "tanh softplus sigmoid"),
    "silu": ("a = Sigmoid(x) t = Mul(x, a)", {}, "silu"),
    "hardswish": ("a = HardSwish(x) t = Mish(a)", {}, "hardswish mish"),
    "gelu": (f"{HALF} {ERF} P = Mul(x, E) t = Mul(P, H)", {}, "gelu"),
    "gelu-halved-first": (f"{HALF} {ERF_TIMES} P = Mul(H, x) t = Mul(E, P)", {}, "gelu"),
    "gelu-halved-inside": (f"{HALF} {ERF} P = Mul(E, H) t = Mul(x, P)", {}, "gelu"),
    "sum-as-sum": ("a = Tanh(x) t = Sum(a, x)", {}, "residual tanh"),
    "dense-blocks": (
        "c = Concat<axis=1>(x) a = Conv<pads=[1,1,1,1]>(c, w) d = Concat<axis=1>(x, a) "
        "e = Conv<pads=[1,1,1,1]>(d, v) f = Concat<axis=1>(x, a, e) t = Relu(f)",
        {"w": (3, 2, 3, 3), "v": (2, 5, 3, 3)},
        "concat conv2d concat conv2d relu",
    ),
    "prelu": ("a = Conv(x, w) t = PRelu(a, b)", W | {"b": (4, 1, 1)}, "conv2d prelu"),
    "lrn": ("t = LRN<size=3, alpha=0.5, beta=0.6, bias=1.5>(x)", {}, "lrn"),
    "max": ("t = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,1,1,1]>(x)", {}, "max_pool2d"),
    "max-up": ("t = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x)", {}, "max_pool2d"),
    "mean": (f"{TRUE_MEAN} pads=[1,1,1,1]>(x)", {}, "avg_pool2d"),
    "mean-of-all": (
        "t = AveragePool<kernel_shape=[2,2], count_include_pad=1>(x)",
        {},
        "avg_pool2d",
    ),
    "whole": ("t = GlobalAveragePool(x)", {}, "global_avg_pool2d"),
    "whole-kept": (
        "a = GlobalAveragePool(x) t = Conv(a, w)",
        {"w": (4, 2, 1, 1)},
        "avg_pool2d conv2d",
    ),
    "whole-mean": ("t = ReduceMean<axes=[-1,-2], keepdims=0>(x)", {}, "global_avg_pool2d"),
    "times": ("c = Constant<value_float=-1.5>() t = Mul(c, x)", {}, "scale"),
    "scaled": ("a = Relu(x) c = Constant<value_float=0.25>() t = Div(a, c)", {}, "relu scale"),
    "sum": ("a = Conv<pads=[1,1,1,1]>(x, w) t = Add(x, a)", {"w": (2, 2, 3, 3)}, "residual conv2d"),
    "sum-of-two": (
        "a = Conv<pads=[1,1,1,1]>(x, w) c = Relu(a) e = Conv(x, v) t = Add(e, c)",
        W | {"v": (4, 2, 1, 1)},
        "residual conv2d relu conv2d",
    ),
    "concat": ("a = Relu(x) c = Tanh(x) t = Concat<axis=1>(c, x, a)", {}, "concat tanh relu"),
    "shared-relu": (
        "a = Relu(x) c = Tanh(a) d = Tanh(a) e = Conv(c, w) f = Conv(d, v) t = Add(e, f)",
        W | {"v": (4, 2, 3, 3)},
        "relu residual tanh conv2d tanh conv2d",
    ),
}


def reference(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What the evaluator of the package onnx computes."""
    (name,) = (each.name for each in made.graph.input)
    found = ReferenceEvaluator(made).run(None, {name: x})[0]
    return np.asarray(found, np.float64)


AUTO = {"VALID": "[0,0,0,0]", "SAME_UPPER": "[0,1,1,1]"}


@rows("name", list(OPERATORS))
def test_an_operator_computes_what_it_does_elsewhere(name, tmp_path):
    body, shapes, wanted = OPERATORS[name]
    made = model(f"{body} y = Flatten(t)", shapes)
    found, x = taken(made, tmp_path), pixels(2, 6, 5)
    assert kinds(found) == wanted
    # The evaluator pads otherwise before onnx 1.23.
    plain = re.sub(r'auto_pad="(\w+)"', lambda found: f"pads={AUTO[found[1]]}", body)
    made = model(f"{plain} y = Flatten(t)", shapes)
    want = centred(reference(made, (x / 255).astype(np.float32)))
    np.testing.assert_allclose(scores(found, x), want, atol=3e-5)


ENDS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "gemm": (
        "a = Flatten(x) y = Gemm<alpha=0.5, beta=0.3, transB=1>(a, w, b)",
        {"w": (4, 60), "b": (4,)},
    ),
    "gemm-turned": ("a = Flatten<axis=-3>(x) y = Gemm(a, w, b)", {"w": (60, 4), "b": (1, 4)}),
    "matmul": ("a = Flatten(x) c = MatMul(a, w) y = Add(b, c)", {"w": (60, 4), "b": (4,)}),
    "reshape": ("s = Constant<value_ints=[0,-1]>() y = Reshape(x, s)", {}),
    "squeeze": ("a = GlobalAveragePool(x) i = Constant<value_ints=[2,-1]>() y = Squeeze(a, i)", {}),
    "picture": ("a = Conv(x, w) y = GlobalAveragePool(a)", W),
    "norm-of-rows": (
        "a = Flatten(x) c = Gemm(a, w) d = BatchNormalization(c, s, o, m, var) y = Dropout(d)",
        NORM | {"w": (60, 2)},
    ),
    "softmax": ("a = Flatten(x) c = Gemm(a, w) d = Softmax(c) y = Log(d)", {"w": (60, 3)}),
    "log-softmax": ("a = Flatten(x) c = Gemm(a, w) y = LogSoftmax(c)", {"w": (60, 3)}),
}


@rows("name", list(ENDS))
def test_an_end_computes_what_it_does_elsewhere(name, tmp_path):
    body, shapes = ENDS[name]
    made = model(body, shapes)
    x = pixels(2, 6, 5)
    want = reference(made, (x / 255).astype(np.float32)).reshape(2, -1)
    if name == "softmax":
        made.graph.node.pop()
        made.graph.output[0].name = "d"
    np.testing.assert_allclose(scores(taken(made, tmp_path), x), centred(want), atol=3e-5)


REFUSED = {
    "y = Erf(x)": "Erf, 1: 'y'",
    "y = Clip(x)": "Clip, 1: 'y'",
    **{
        f"{HALF} {changed} P = Mul(x, E) T = Mul(P, {half}) y = Flatten(T)": "Erf, 1: 'R'"
        for changed, half in (
            (ERF.replace("1.4142135", "1.5"), "H"),
            (ERF.replace("Div(x, Q)", "Div(Q, x)"), "H"),
            (ERF.replace("Div(x, Q)", "Mul(x, Q)"), "H"),
            (ERF.replace("Add(R, O)", "Add(R, H)"), "H"),
            (ERF.replace("Div(x, Q)", "Div(K, Q)").replace("Q =", "K = Tanh(x) Q ="), "H"),
            (ERF, "O"),
            (ERF, "x"),
        )
    },
    "a = Conv<pads=[2,0,0,0]>(x, w) y = Flatten(a)": "'a' (Conv): has the padding [2, 0, 0, 0]",
    "a = Conv<pads=[-1,0,-1,0]>(x, w) y = Flatten(a)": "has the padding [-1, 0, -1, 0], not as",
    'a = Conv<auto_pad="SAME_LOWER">(x, w) y = Flatten(a)': "not as wide at both ends",
    "a = Pad(x, w) y = Shape(a)": "Pad, 1: 'a' Shape, 1: 'y'",
    "a = Conv<strides=[0,1]>(x, w) y = Flatten(a)": "its strides are [0, 1], not two numbers",
    "a = Conv<kernel_shape=[2,3]>(x, w) y = Flatten(a)": "its filters are not for pictures",
    "a = Conv(x, v) y = Flatten(a)": "the shapes [(4, 3, 3, 3)], not [(4, 2, 3, 3)]",
    "a = MaxPool<kernel_shape=[9,9]>(x) y = Flatten(a)": "a window of 9x9 does not fit",
    "a = MaxPool<kernel_shape=[2,2], dilations=[2,1]>(x) y = Flatten(a)": "is dilated",
    "a = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(x) y = Flatten(a)": (
        "'a' (AveragePool): counts its padding"
    ),
    "a = BatchNormalization<training_mode=1>(x, s, o, m, var) y = Flatten(a)": "by the batch",
    "a = ReduceMean<axes=[2]>(x) y = Flatten(a)": "is not the mean over height and width",
    "y = Flatten<axis=2>(x)": "'y' (Flatten): does not make one row of each sample",
    "i = Constant<value_ints=[2,-1]>() y = Reshape(x, i)": "does not make one row of each sample",
    "a = Flatten(x) c = LogSoftmax(a) y = Relu(c)": "a logarithm before other layers",
    "a = Concat<axis=2>(x, x) y = Flatten(a)": "joins along another axis than the channels",
    "a = MaxPool<kernel_shape=[2,2]>(x) b = Add(a, x) y = Flatten(b)": "joins (2, 5, 4), (2, 6, 5)",
    "a = Relu(x) b = Add(a, s) y = Flatten(b)": "computes with an array or divides by 0, as no",
    "c = Constant<value_float=0.0>() a = Div(x, c) y = Flatten(a)": "divides by 0",
    "a = Relu(x) b = Div(w, a) y = Flatten(b)": "no layer takes what is computed in this place",
    "a, i = MaxPool<kernel_shape=[2,2]>(x) b = Cast<to=1>(i) c = Add(a, b) y = Flatten(c)": (
        "'b' (Cast): reads what a node before it gives beside its first output"
    ),
    "a = Add(x, x) y = Flatten(a)": "body: expected a list of at least one item",
    "a = Conv(x, w) b = Tanh(a) c = Relu(a) d = BatchNormalization(b, t, t, t, var4) "
    "e = Add(d, c) f = Sigmoid(d) g = Add(f, c) h = Add(g, e) y = Flatten(h)": "read across blocks",
    "z = Relu(x) y = Flatten(w)": "'y' (Flatten): is computed of arrays of the file alone",
    "y = Identity(w)": "its output does not depend on its input",
    "a = Flatten(x) y = Sigmoid(a)": "gives a number, or answers of yes or no, but no classes",
    "a = Conv(x, o1) y = GlobalAveragePool(a)": "gives a number, or answers of yes or no",
    "a = Conv(x, w) b = Tanh(a) c = Conv(x, w) d = Concat<axis=1>(b, a, c) y = Flatten(d)": (
        "read across blocks"
    ),
    "a = Relu(x) c = Cast<to=7>(a) y = Flatten(c)": "converts to another type than float32",
}
ARRAYS = {"w": (4, 2, 3, 3), "v": (4, 3, 3, 3), **NORM, "t": (4,), "var4": (4,), "o1": (1, 2, 3, 3)}


@rows("body", list(REFUSED))
def test_what_no_layer_computes_is_listed_and_the_weights_are_written(body, tmp_path):
    made = model(body, {name: shape for name, shape in ARRAYS.items() if name in body})
    taken(made, tmp_path)
    # With a name of its own too, and in a program.
    found = dnnstack.import_onnx(tmp_path / "net.onnx", name="odd", runs_dir=tmp_path / "runs")
    assert found.run is None
    assert REFUSED[body] in " ".join(found.reasons)
    assert found.written == tmp_path / "runs" / "odd.safetensors"
    assert (tmp_path / "runs" / "net.safetensors").read_bytes() == found.written.read_bytes()
    written = load_file(found.written)
    given = {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}
    assert written.keys() == given.keys()
    assert all(np.array_equal(written[name], given[name]) for name in given)
    assert found.numbers == sum(each.size for each in given.values())
    assert found.reasons[0] in found.as_text()


def test_blocks_within_blocks_have_an_end(tmp_path):
    def nested(depth: int) -> str:
        lines = "".join(f"a{n} = Relu(a{n - 1}) b{n} = Add(a{n}, x) " for n in range(1, depth))
        return f"a0 = Tanh(x) {lines.replace('Relu(a', 'Relu(b').replace('Relu(b0', 'Relu(a0')}"

    for depth, fits in ((8, True), (10, False), (30, False)):
        body = f"{nested(depth)} y = Flatten(b{depth - 1})"
        assert (taken(model(body, {}), tmp_path).run is not None) == fits


RELU, BYTES = "a = Flatten(x) y = Gemm(a, w)", "uint8[n,2,6,5] x"


def _plain() -> onnx.ModelProto:
    return model(RELU, {"w": (60, 3)})


def _external(location: str, **more: str) -> Callable[[onnx.ModelProto], object]:
    def change(made: onnx.ModelProto) -> None:
        array = made.graph.initializer[0]
        array.ClearField("raw_data")
        array.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            array.external_data.add(key=key, value=value)

    return change


def _nan(made: onnx.ModelProto) -> None:
    values = np.full((60, 3), np.nan, np.float32)
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))


DAMAGED: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
    "empty": (lambda m: m.Clear(), "is damaged, or is not an ONNX file"),
    "opset": (
        lambda m: setattr(m.opset_import[0], "version", 6),
        "is of opset 6, but those from 7 to",
    ),
    "opset-new": (lambda m: setattr(m.opset_import[0], "version", 27), "is of opset 27"),
    "missing": (lambda m: m.graph.initializer.pop(), "is damaged, or is not an ONNX file"),
    "short": (lambda m: m.graph.initializer[0].dims.__setitem__(0, 61), "has not as many numbers"),
    "huge": (
        lambda m: m.graph.initializer[0].dims.__setitem__(0, 2**60),
        "has not as many numbers",
    ),
    "type": (lambda m: setattr(m.graph.initializer[0], "data_type", 8), "a type or a shape"),
    "nan": (_nan, "numbers that are not finite"),
    "attribute": (
        lambda m: m.graph.node[1].attribute.append(onnx.helper.make_attribute("beta", 1e30)),
        "node 'Gemm': its beta is too large",
    ),
    "elsewhere": (_external("../w.bin"), "'../w.bin'; only those in the same folder"),
    "gone": (_external("w.bin"), "is in 'w.bin' beside it: No such file or directory"),
    "beyond": (_external("here.bin", offset="9"), "lies beyond the end of 'here.bin'"),
    "few": (_external("here.bin"), "has not as many numbers"),
    "nodes": (
        lambda m: m.graph.node.extend([m.graph.node[0]] * 20_000),
        "20,002 nodes, more than 20,000",
    ),
    "open-size": (
        lambda m: m.graph.input[0].type.tensor_type.shape.dim[2].Clear(),
        "say it, as in --size 224",
    ),
}


@rows("name", list(DAMAGED))
def test_a_damaged_file_is_refused(name, tmp_path):
    change, message = DAMAGED[name]
    (tmp_path / "here.bin").write_bytes(b"8 bytes.")
    made = _plain()
    change(made)
    with pytest.raises(dnnstack.DnnstackError, match=re.escape(message)):
        taken(made, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_link_beside_the_file_is_not_followed_and_a_variance_is_not_negative(tmp_path):
    (tmp_path / "link.bin").symlink_to("/etc/passwd")
    linked = _plain()
    _external("link.bin")(linked)
    body = "a = BatchNormalization(x, s, o, m, minus) y = Flatten(a)"
    below = model(body, {"minus": (2,), **NORM})
    for made, said in ((linked, "is a symbolic link"), (below, "running_var' has numbers")):
        with pytest.raises(dnnstack.DnnstackError, match=said):
            taken(made, tmp_path)


def test_what_is_no_network_of_one_input_and_output(tmp_path):
    for given in ("float[n,2,6,5] x, float[n,1] z", "float[n] x", "float[n,2,6,5,4] x"):
        found = taken(model("y = Flatten(x)", {}, given), tmp_path)
        assert found.reasons[0].startswith("the whole: ")
    found = taken(model("y = Flatten(x)", {}, "float[n,2,3000000,5] x"), tmp_path)
    assert "is neither pictures" in found.reasons[0]


def test_pixels_are_normalised_as_the_user_says(tmp_path):
    x = pixels(2, 6, 5)
    seen = (x / 255 - 0.5) / np.array([0.25, 0.2])[:, None, None]
    found = taken(_plain(), tmp_path, mean=[0.5], std=[0.25, 0.2])
    want = reference(_plain(), seen.astype(np.float32))
    np.testing.assert_allclose(scores(found, x), centred(want), atol=1e-4)
    # Bytes are taken as they are.
    of_bytes = model(
        "a = Cast<to=1>(x) c = Flatten(a) y = Gemm<alpha=0.01>(c, w)", {"w": (60, 3)}, BYTES
    )
    want = reference(of_bytes, x)
    np.testing.assert_allclose(scores(taken(of_bytes, tmp_path), x), centred(want), atol=1e-4)
    found = taken(of_bytes, tmp_path, mean=[0.5])
    assert found.normalize is not None
    assert found.normalize.mean_and_std(255.0) == (
        pytest.approx((0.5,) * 2),
        pytest.approx((1,) * 2),
    )


def test_rows_are_told_apart_by_a_program(tmp_path):
    made = model("y = Gemm(x, w)", {"w": (4, 3)}, "float[n,4] x")
    given = np.float32([[1, 2, 3, 4], [0.5, -1, 2, 9]])
    np.testing.assert_allclose(
        scores(taken(made, tmp_path), given), centred(reference(made, given)), atol=1e-4
    )


CLASSES: list[tuple[dict[str, Any], dict[str, str], tuple[str, ...] | str]] = [
    ({}, {}, ("0", "1", "2")),
    ({}, {"names": "{0: 'a', 1: \"it's\", 2: 'c d'}"}, ("a", "it's", "c d")),
    ({}, {"names": "{0: 'a', 2: 'b', 1: 'c'}"}, ("0", "1", "2")),
    ({}, {"class_names": '["a", "b", "c"]', "names": "{0: 'x'}"}, ("a", "b", "c")),
    ({}, {"class_names": '["a", "b"]'}, ("0", "1", "2")),
    ({"classes": ["d", "e", "f"]}, {"class_names": '["a", "b", "c"]'}, ("d", "e", "f")),
    ({"classes": ["d", "e"]}, {}, "--classes: 2 names, but the network has 3"),
    ({"mean": [1, 2, 3]}, {}, "--mean: 3 numbers for 2 channels"),
    ({"std": [1, 0]}, {}, "--std: expected finite numbers, and deviations above 0"),
    ({"mean": [float("nan")]}, {}, "--mean: expected finite numbers"),
    ({"name": "../x"}, {}, "--name: '../x' is no name of a run; 'x' would be one"),
    ({"overrides": ["layers.dense_1.use_bias=true"]}, {}, "has other weights"),
]


@rows("case", CLASSES)
def test_wishes(case, tmp_path):
    wishes, said, wanted = case
    made = _plain()
    for key, value in said.items():
        made.metadata_props.add(key=key, value=value)
    if isinstance(wanted, tuple):
        assert taken(made, tmp_path, **wishes).classes == wanted
        return
    with pytest.raises(dnnstack.DnnstackError, match=re.escape(wanted)):
        taken(made, tmp_path, **wishes)


def test_without_the_package_onnx_its_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(dnnstack.DnnstackError, match=r"pip install 'dnnstack\[onnx\]'"):
        dnnstack.import_onnx(FILES / "resnet.onnx", runs_dir=tmp_path)


def test_a_program_gives_one_number_for_all_channels(tmp_path):
    file = FILES / "resnet.onnx"
    found = dnnstack.import_onnx(file, mean=0.5, std=[0.25], size=32, runs_dir=tmp_path, name="a")
    assert found.normalize is not None
    assert found.normalize.mean_and_std(255.0) == (
        pytest.approx([0.5] * 3),
        pytest.approx([0.25] * 3),
    )
    with pytest.raises(dnnstack.DnnstackError, match=r"^mean: 2 numbers for 3 channels"):
        dnnstack.import_onnx(file, mean=(0.5, 1), runs_dir=tmp_path)


def test_a_network_of_any_size_takes_the_one_that_is_said(tmp_path):
    made = model("a = Conv(x, w) y = GlobalAveragePool(a)", W, "float[n,2,h,v] x")
    assert taken(made, tmp_path, size=(9, 7)).input_shape == (2, 9, 7)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resnet.onnx").write_bytes((FILES / "resnet.onnx").read_bytes())
    for number in range(8):
        path = tmp_path / "pictures" / ("train", "test")[number % 2] / "ab"[number // 4]
        path.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(40, 40, 3)[0] // (number + 1)).save(path / f"{number}.png")
    return tmp_path


def test_a_run_of_a_network_is_used_like_others(here, capsys):
    Path("names.txt").write_text("a\nb\nc\nd\ne\n", encoding="utf-8")
    line = ["import", "resnet.onnx", "--name", "cats", "--classes", "names.txt"]
    assert main([*line, "--mean", "0.5,0.4,0.4", "--std", "0.2"]) == 0
    text = capsys.readouterr().out
    assert "runs/cats: 18 layers, 18 arrays, 1,801 numbers, from resnet.onnx" in text
    assert "mean 0.5, 0.4, 0.4, std 0.2, 0.2, 0.2" in text
    assert main(["predict", "--run", "cats", "pictures/test/a/1.png", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in "abcde"
    assert main(["runs"]) == 0
    assert "cats  finished" in capsys.readouterr().out
    tuned = (
        "train --config runs/cats/config.yaml --init-from cats --device numpy --data-dir pictures"
    )
    changed = "data.dataset.image_folder.classes=null layers.fc.units=2 train.max_steps=1"
    every = f"{changed} data.batch_size=2 data.validation=0".split()
    assert main([*tuned.split(), *(w for each in every for w in ("--set", each))]) == 0
    assert "16 of 18 arrays" in capsys.readouterr().out


def test_json_and_the_exit_status_say_what_was_written(here, capsys):
    assert main(["import", "resnet.onnx", "--json", "--classes", "a,b,c,d,e"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["run"], said["weights"], said["classes"]) == ("runs/resnet", None, [*"abcde"])
    assert (said["arrays"], said["layers"], said["input_shape"]) == (18, 18, [3, 32, 32])
    assert said["preprocessing"]["scale"] == pytest.approx([1 / 255] * 3)
    odd = model("a = Conv(x, w) y = Erf(a)", W)
    Path("odd.onnx").write_bytes(odd.SerializeToString())
    assert main(["import", "odd.onnx", "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert (said["run"], said["weights"]) == (None, "runs/odd.safetensors")
    assert said["not_expressed"] == ["Erf, 1: 'y'"]
    assert main(["import", "nothing.onnx"]) == 1
    assert "nothing.onnx: cannot be read: No such file" in capsys.readouterr().err
    assert main(["import", "resnet.onnx", "--mean", "a"]) == 2
    assert "expected numbers between commas" in capsys.readouterr().err


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_export_of_ours_is_read_without_its_preprocessing(channels, raw, tmp_path):
    """It normalises as the network did; names, too, are those of before."""
    layers = (
        "[{conv2d: {filters: 3, kernel_size: 3}}, batch_norm, gelu, {residual: {body: "
        "[{conv2d: {filters: 3, kernel_size: 3, padding: same}}, relu]}}, flatten, "
        "{dense: {units: 4}}]"
    )
    trained = untrained(layers, (channels, 8, 6), 4)
    trained = replace(trained, network=trained.network.judged(0.5, False))
    made = onnx.load_from_string(Onnx(raw=raw).files(Plain.of(trained))[""])
    x = pixels(channels, 8, 6)
    found = taken(made, tmp_path)
    want = Forward(trained, open_backend("numpy", 1))(x)
    np.testing.assert_allclose(scores(found, x), centred(np.log(want)), atol=3e-5)
    assert found.classes == trained.classes
    again = find_trained(str(found.run), None, tmp_path, str).network
    assert {"conv2d_1", "dense_1"} <= {layer.name for layer in again.every_layer()}
    told = dnnstack.load(found.run, device="numpy").trained
    assert told.config.data.dataset.options()["fit"] == "crop"
    other = taken(made, tmp_path, mean=[0.0], std=[1 / 255], name="other")
    assert other.normalize.scale == pytest.approx([1.0] * channels)


@pytest.mark.parametrize(
    ("key", "value"),
    [("dnnstack.input", "[3, 0, 8]"), ("dnnstack.input", "[8, 8]"), ("dnnstack.input", "x")],
)
def test_what_an_export_says_of_itself_is_not_believed(key, value, tmp_path):
    trained = untrained("[flatten, {dense: {units: 4}}]", (3, 8, 8), 4)
    made = onnx.load_from_string(Onnx(raw=True).files(Plain.of(trained))[""])
    for each in made.metadata_props:
        each.value = value if each.key == key else each.value
    assert "converts to another type than float32" in taken(made, tmp_path).reasons[0]


def test_scales_of_an_export_that_are_not_above_0(tmp_path):
    trained = untrained("[flatten, {dense: {units: 4}}]", (3, 8, 8), 4)
    made = onnx.load_from_string(Onnx(raw=True).files(Plain.of(trained))[""])
    (scale,) = (each for each in made.graph.initializer if each.name == "normalise.Mul.constant")
    scale.CopyFrom(numpy_helper.from_array(np.array([[[1.0]], [[0.0]], [[1.0]]]), scale.name))
    assert "converts to another type than float32" in taken(made, tmp_path).reasons[0]
