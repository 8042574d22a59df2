"""Every format answers as ``predict`` does: layers in all ways that matter, drawn nets, configs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ExportError
from dnnstack.configs.schema.compression import QuantizeConfig
from dnnstack.datasets import ImageSet
from dnnstack.exports import numpy_functions
from dnnstack.exports.c_file import C, Program
from dnnstack.exports.c_integers import answers
from dnnstack.exports.door import Samples
from dnnstack.exports.format import Format, Twin
from dnnstack.exports.html_file import Html
from dnnstack.exports.numpy_file import Numpy, about, quoted
from dnnstack.exports.onnx_file import Onnx
from dnnstack.exports.plain import Plain
from dnnstack.exports.torch_file import Torch
from dnnstack.graph import ops
from dnnstack.graph.graph import Graph, Tensor
from dnnstack.training.compressed.quantization import quantized_checkpoint
from dnnstack.training.inference.trained import Trained
from hypothesis import given

from ..support import numpy_torch
from ..support.activation_points import POINTS, RIGHT
from ..support.exported import NETS as DRAWN_NETS
from ..support.exported import PACKAGED, compared, drawn, packaged
from ..support.page_code import NODE, answered_by_node
from ..support.random_nets import Training, trainings
from ..support.untrained import untrained

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O0")
SANE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


class SaneC(C):
    kind = "sane"

    def twin(self, path: Path, plain: Plain) -> Twin:
        return Twin("gcc", Program(path, plain, ("gcc", *WARNINGS, *SANE)))


FORMATS: list[Format] = [Numpy(), Torch(), Html(weights="fp32")]
ONNX: list[Format] = [Onnx(), Onnx(raw=True)] if find_spec("onnxruntime") else []
COMPILED: list[Format] = [SaneC()] if shutil.which("gcc") else []
CONV, POOL = "{conv2d: {filters: 6, kernel_size: %s}}", "{max_pool2d: {pool_size: 2}}"
NETS = {
    "activations": "[relu, tanh, sigmoid, softplus, silu, gelu, scaled_tanh, prelu, "
    "mish, hardswish, hardsigmoid, relu6, "
    "{elu: {alpha: 0.7}}, {leaky_relu: {negative_slope: 0.3}}, {gelu: {approximate: true}}]",
    "behind": f"[{CONV % 1}, elu, {CONV % 1}, silu, {CONV % 1}, leaky_relu, {CONV % 1}, sigmoid]",
    "same": "[{conv2d: {filters: 6, kernel_size: [3, 2], padding: same, stride: [2, 1]}}]",
    "groups": "[{conv2d: {filters: 42, kernel_size: [3, 2], padding: same, groups: 2}}]",
    "dilation": "[{conv2d: {filters: 4, kernel_size: 2, groups: 2, dilation: [1, 3]}}, elu]",
    "uneven": "[{conv2d: {filters: 20, kernel_size: [4, 3], stride: [3, 2], padding: [2, 1]}}]",
    "some": "[{conv2d: {filters: 3, kernel_size: 2, connections: [[0], [1, 3], [0, 1, 2]]}}]",
    "norms": "[batch_norm, relu, {conv2d: {filters: 7, kernel_size: 3, use_bias: false}}, "
    "{batch_norm: {scale: false, eps: 0.1}}, tanh, {batch_norm: {scale: false, center: false}}]",
    "max": "[{max_pool2d: {pool_size: [2, 3], stride: 2, padding: same}}]",
    "max-up": "[{max_pool2d: {pool_size: 3, stride: 2, ceil_mode: true}}]",
    "mean": "[{avg_pool2d: {pool_size: [2, 3], stride: [1, 2], padding: same}}]",
    "mean-up": "[{avg_pool2d: {pool_size: 3, stride: 2, padding: 1, ceil_mode: true}}]",
    "pooled": f"[{CONV % 3}, relu, {POOL}, {CONV % 2}, {{gelu: {{approximate: true}}}}, {POOL}]",
    "shared": f"[{CONV % 2}, {{concat: {{branches: [[{POOL}], [{{conv2d: {{filters: 2, "
    "kernel_size: 2, stride: 2}}]]}}]",
    "whole": f"[{CONV % 2}, global_avg_pool2d]",
    "border": "[{pad2d: {padding: [1, 2], value: -0.5}}, {scaled_subsampling: {pool_size: 2}}]",
    "sums": "[{scaled_subsampling: {pool_size: 2, pooling: sum}}, {scale: {factor: -1.5}}]",
    "near": "[{lrn: {size: 3, alpha: 0.5, k: 2.0}}, {lcn: {size: 3, alpha: 0.5, k: 2.0}}]",
    "joined": "[{concat: {branches: [[], [relu], [{conv2d: {filters: 3, kernel_size: 1}}]]}}, "
    "{residual: {body: [{conv2d: {filters: 13, kernel_size: 3, stride: 2, padding: 1}}], "
    "shortcut: padding}}, relu]",
    "rows": "[flatten, {dense: {units: 7}}, batch_norm, scaled_tanh]",
}


# Not in every format: norms by the numbers of a sample, and what is multiplied by them.
SOME = {
    "group_norm": "[{group_norm: {groups: 2, eps: 0.1}}, {stochastic_depth: {rate: 0.5}}]",
    "layer_norm": f"[{CONV % 2}, {{layer_norm: {{eps: 0.1}}}}]",
    "squeeze_excite": "[{squeeze_excite: {units: 3}}, "
    "{squeeze_excite: {units: 2, gate: hardsigmoid}}]",
    "rows": "[flatten, {dense: {units: 6}}, {group_norm: {groups: 2}}, tanh, layer_norm]",
}
TOKENS = "[{patch_embedding: {units: 5, patch_size: [3, 4]}}, {layer_scale: {initial_factor: 2}}]"


def _net(name: str, layers: str = "") -> Trained:
    flat = "" if name in ("whole", "rows") else "flatten, "
    layers = f"{(layers or NETS[name])[:-1]}, {flat}{{dense: {{units: 4}}}}]"
    return untrained(layers, (4, 9, 8), 4, kind="numbers", loss="mse")


def _classic() -> dict[str, Trained]:
    rbf = "[flatten, {dense: {units: 84}}, scaled_tanh, rbf, softmax]"
    step = "[flatten, {dense: {units: 4}}, heaviside]"
    return {
        "rbf": untrained(rbf, (4, 9, 8), 10),
        "heaviside": untrained(step, (4, 9, 8), 4, loss="perceptron"),
    }


@pytest.fixture
def in_numpy(monkeypatch):
    numpy_torch.install(monkeypatch)


def _all_alike(trained: Trained, folder: Path, formats: list[Format], bound: float) -> None:
    for each in formats:
        found = compared(each, trained, folder)
        assert (found.largest < bound, found.other) == (True, 0), (each, found)


@pytest.mark.parametrize("name", [*NETS, "rbf", "heaviside"])
def test_layers(name, tmp_path, in_numpy):
    trained = _net(name) if name in NETS else _classic()[name]
    _all_alike(trained, tmp_path, [*FORMATS, *ONNX, *COMPILED], 1e-5)


@pytest.mark.parametrize("name", SOME)
def test_layers_that_some_formats_have(name, tmp_path, in_numpy):
    trained = _net(name, SOME[name])
    _all_alike(trained, tmp_path, [Torch(), *ONNX], 1e-5)
    kind = "group_norm" if name == "rows" else name
    for each in (Numpy(), Html(), C()):
        with pytest.raises(ExportError, match=rf"_1' \({kind}\): {each.kind} .* it: onnx, torch$"):
            each.check(Plain.of(trained))


def test_tokens_and_factors(tmp_path):
    trained = _net("tokens", TOKENS)
    _all_alike(trained, tmp_path, [Numpy(), Html(weights="fp32"), *ONNX, *COMPILED], 1e-5)
    with pytest.raises(ExportError, match=r"'patch_embedding_1' .*: torch has no module for it"):
        Torch().check(Plain.of(trained))
    heads = "[{patch_embedding: {units: 4, patch_size: 1}}, {multi_head_attention: {heads: 2}}]"
    wanted = r"'multi_head_attention_1' \(.*\): {} has no BatchMatMul; formats .* it: none"
    for each in (Numpy(), Torch(), Onnx(), C()):
        with pytest.raises(ExportError, match=wanted.format(each.kind)):
            each.check(Plain.of(_net("tokens", heads)))


def _able(form: Format, trained: Trained) -> bool:
    """Whether a format has all layers; it may lack these alone."""
    kinds = {layer.kind for layer in trained.network.every_layer()}
    try:
        form.check(Plain.of(trained))
    except ExportError:
        assert kinds & {*SOME, "multi_head_attention", "patch_embedding", "layer_scale"}
        return False
    return True


@DRAWN_NETS
@given(trainings())
def test_random_nets(tmp_path_factory, training: Training):
    with pytest.MonkeyPatch.context() as patch:
        numpy_torch.install(patch)
        folder = tmp_path_factory.mktemp("drawn")
        trained = drawn(training)
        formats = [each for each in (Numpy(), Torch(), *ONNX[:1]) if _able(each, trained)]
        _all_alike(trained, folder, formats, 1e-4)


@pytest.mark.parametrize("name", sorted({*PACKAGED} - {"cifar10-resnet9.yaml", "resnet18.yaml"}))
def test_packaged_networks(name, tmp_path, in_numpy):
    trained = packaged(name)
    for form in (each for each in (Numpy(), Torch(), *ONNX[:1]) if _able(each, trained)):
        found = compared(form, trained, tmp_path, 2)
        assert (found.largest < 1e-4, found.other) == (True, 0), found
        text = (tmp_path / f"net{form.suffix}").read_bytes()
        if form.suffix == ".py":
            assert (b"\nimport math\n" in text) == (b"math." in text)
            assert (b"\nimport torch.nn.functional as F\n" in text) == (b"F." in text)


def _by_hand(make: Any) -> Plain:
    """A network of operations that no layer of ours describes forward, but those of others may."""
    plain = Plain.of(untrained("[flatten, {dense: {units: 3}}]", (3, 2, 2), 3))
    graph = Graph("infer", 1)
    x = graph.tensor("x", (1, 3, 2, 2), "float32", "input")
    with graph.at("hand", "forward"):
        y = make(graph, x)
    return replace(plain, graph=graph, x=x, y=y)


def _three(graph: Graph, x: Tensor) -> Tensor:
    twice = graph.add(ops.Scale(x=x, y=graph.tensor("twice", x.shape), factor=2.0))
    return graph.add(ops.Add(terms=(x, twice, x), y=graph.tensor("y", x.shape)))


HAND: list[Any] = [
    lambda graph, x: graph.add(ops.Slice(x=x, y=graph.tensor("y", (1, 1, 2, 2)), begin=1)),
    lambda graph, x: graph.add(ops.Softmax(x=x, y=graph.tensor("y", x.shape), log=True)),
    _three,
]


@pytest.mark.parametrize("make", HAND)
def test_operations_of_layers_of_others(make, tmp_path):
    plain = _by_hand(make)
    raw = np.random.default_rng(0).integers(0, 256, (5, 3, 2, 2)).astype(np.uint8)
    for form in [Numpy(), *ONNX, Html(weights="fp32"), *COMPILED]:
        path = tmp_path / f"net{form.suffix}"
        path.write_bytes(form.files(plain)[""])
        twin: Any = form.twin(path, plain)
        np.testing.assert_allclose(twin.answers(raw), answers(plain, raw), atol=2e-6)
    if NODE:
        (path := tmp_path / "net.html").write_bytes(Html(weights="fp32").files(plain)[""])
        np.testing.assert_allclose(
            answered_by_node([(path, raw)])[0], answers(plain, raw), atol=1e-5
        )


def _in_integers() -> Trained:
    layers = f"[{CONV % 3}, batch_norm, relu, {POOL}, {CONV % 2}, tanh, flatten"
    net = untrained(f"{layers}, {{dense: {{units: 4}}}}, softmax]", (4, 9, 8), 4)
    images = Samples.drawn(net).stored
    data = ImageSet("drawn", images, np.zeros(len(images), np.int32), net.classes, key="drawn")
    index = np.arange(20, dtype=np.int32)
    return Trained.of(quantized_checkpoint(net, ReferenceBackend(1), data, index, QuantizeConfig()))


def test_integers(tmp_path):
    for each, bound in ((Numpy(), 1e-6), (Html(), 1e-6), *((each, 0.02) for each in ONNX)):
        assert compared(each, _in_integers(), tmp_path, 100).largest < bound


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_a_page_computes_as_its_twin(tmp_path):
    nets = [*map(_net, NETS), *_classic().values(), _in_integers()]
    form, asked, wanted, seen = Html(weights="fp32"), [], [], set()
    for at, net in enumerate(nets):
        plain, path = Plain.of(net), tmp_path / f"{at}.html"
        seen |= {type(op) for op in plain.folded().ops}
        path.write_bytes(form.files(plain)[""])
        asked.append((path, plain.raw(Samples.drawn(net).stored[:4])))
        wanted.append(form.twin(path, plain).answers(asked[-1][1]))
    assert seen == Html.ops - {ops.Slice}
    for found, right in zip(answered_by_node(asked), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
        assert np.ptp(right) > 0


@pytest.mark.parametrize("kind", RIGHT)
def test_activations_at_their_corners(kind):
    given = [0.3] if kind == "leaky_relu" else [0.7] * (kind == "elu")
    with np.errstate(invalid="ignore", under="ignore", over="ignore"):
        found = getattr(numpy_functions, kind)(POINTS, *given)
    # -inf times 0 is no number; the limit is 0.
    right = np.array(RIGHT[kind][0], np.float32)
    known = ~(np.isneginf(POINTS) & np.isnan(found))
    np.testing.assert_allclose(found[known], right[known], rtol=1e-6, atol=1e-45)
    assert found.dtype == np.float32


def test_texts_are_quoted():
    for name in ("é😀", "a\0b", "a\nb", "\udc80", "'\"", "\\"):
        assert eval(quoted(name).encode()) == name
    assert quoted("é") == '"é"'
    assert about({"data": "a\0b"}) == {"data": "a\\x00b"}
    assert quoted('a"b') == "'a\"b'"
    assert quoted("a'b") == '"a\'b"'
    assert about({"task": "a\n b", "classes": "x"}) == {"task": "a b"}
