"""Files in C answer as ``predict`` does, those of integers as their reference to the bit."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.select import open_backend
from dnnstack.common.errors import ExportError
from dnnstack.datasets import ImageSet
from dnnstack.exports import c_file
from dnnstack.exports.c_file import C, Program
from dnnstack.exports.c_integers import FixedPoint, answers, of_pixels, pixels_as_integers
from dnnstack.exports.c_writer import Writer, comment, constant, number
from dnnstack.exports.door import Samples, export, in_integers
from dnnstack.exports.plain import Plain
from dnnstack.graph import ops
from dnnstack.training.inference.forward import Forward
from dnnstack.training.inference.trained import Trained

from ..support.exported import reference as _reference
from ..support.untrained import untrained, with_drawn_weights
from ..support.whole_sections import DRAWN

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
COMPILERS = {
    "gcc": (*WARNINGS, "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # Without its libraries, which distributions have apart, it can but end the process.
    "clang": (*WARNINGS, "-O1", "-fsanitize=undefined", "-fsanitize-trap=undefined"),
}
PRESENT = [each for each in COMPILERS if shutil.which(each)]
needs_compiler = pytest.mark.skipif(not PRESENT, reason="needs gcc or clang")
CONV, POOLED = "{conv2d: {filters: 3, kernel_size: 3}}", "{max_pool2d: {pool_size: 2}}"
INTEGERS = {
    "pooled": f"[{CONV}, batch_norm, relu, {POOLED}, {{conv2d: {{filters: 21, kernel_size: 3}}}}]",
    "overlap": "[{conv2d: {filters: 6, kernel_size: 3, stride: 2, groups: 2}}, batch_norm, "
    "{max_pool2d: {pool_size: 3, stride: 2}}, {conv2d: {filters: 4, kernel_size: 2}}]",
    "residual": f"[{CONV}, {{residual: {{body: [{{conv2d: {{filters: 3, kernel_size: 3, padding: "
    f"same}}}}]}}}}, relu, {CONV}, {POOLED}]",
}


def _net(layers: str, **options: object) -> Trained:
    """One that answers with four numbers, from pictures of two channels."""
    flat = "" if layers.startswith("[{dense") else "flatten, "
    start = "[flatten, " if not flat else "["
    whole = f"{start}{layers[1:-1]}, {flat}{{dense: {{units: 4}}}}]"
    usual = {"kind": "numbers", "loss": "mse"}
    return untrained(whole, (2, 12, 11), 4, **{**usual, **options})


def _in_integers(trained: Trained) -> Trained:
    stored = Samples.drawn(trained).stored
    kind = trained.data.kind
    labels = np.zeros(len(stored), np.int32)
    if kind == "numbers":
        labels = np.zeros((len(stored), len(trained.classes)), np.float32)
    images = ImageSet("drawn/train", stored, labels, trained.classes, kind=kind)
    return in_integers(trained, open_backend("numpy", 1), images, np.arange(100, dtype=np.int32))


def _built(plain: Plain, folder: Path, compiler: str = "", *options: str) -> Program:
    """The file of a network, and what it is compiled to without warnings."""
    compiler = compiler or PRESENT[0]
    path = folder / "net.c"
    path.write_bytes(C().files(plain)[""])
    return Program(path, plain, (compiler, *COMPILERS[compiler], *options))


def _largest(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def _checks_itself(path: Path, name: str) -> subprocess.CompletedProcess[str]:
    program = path.with_name("self-test")
    given = (*COMPILERS[PRESENT[0]], f"-D{name}_SELF_TEST", str(path), "-o", str(program), "-lm")
    subprocess.run([PRESENT[0], *given], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=False)


def test_the_compilers_are_there_where_they_are_expected():
    if "DNNSTACK_EXPECT_COMPILER" in os.environ:
        assert list(COMPILERS) == PRESENT


@needs_compiler
@pytest.mark.parametrize("compiler", PRESENT)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_answer_as_their_reference_to_the_bit(name, compiler, tmp_path):
    plain = Plain.of(_in_integers(_net(INTEGERS[name])))
    stored = Samples.drawn(plain.trained).stored
    found = _built(plain, tmp_path, compiler)(plain.raw(stored))
    expected = answers(plain.folded(), plain.raw(stored))
    np.testing.assert_array_equal(found, expected)
    # Of the integers that predict computes most are the same.
    apart = np.abs(expected - _reference(plain, stored))
    assert np.median(apart) < 1e-4
    assert _largest(found, _reference(plain, stored)) < 0.03


def test_no_number_lies_where_another_is_still_needed():
    for name, drawn in DRAWN.items():
        config, shape = json.dumps(drawn["config"]), tuple(drawn["shape"])
        plain = Plain.of(with_drawn_weights(config, shape, drawn["classes"]))
        if {type(op) for op in plain.ops} - C.ops:
            continue
        writer = Writer(plain.folded())
        # Whose number lies at each place; a reshaped tensor holds those of its input.
        holds, owner = {}, {}
        for op in [None, *writer.plain.ops]:
            if op in writer.pooled.values():
                continue
            for tensor in [] if op is None else [t for t in op.reads() if t.role == "activation"]:
                begin = writer.places[tensor]
                cells = range(begin, begin + tensor.size) if begin is not None else ["answer"]
                assert {holds[each] for each in cells} == {owner[tensor]}, (name, op.name)
            y = plain.x if op is None else writer.made(op)
            begin = writer.places[y]
            renamed = isinstance(op, ops.Reshape) and begin == writer.places[op.x]
            owner[y] = owner[op.x] if renamed else y
            cells = range(begin, begin + y.size) if begin is not None else ["answer"]
            holds |= dict.fromkeys(cells, owner[y])
            assert begin is None or begin + y.size <= writer.arena


def test_a_small_arena_is_enough():
    layers = f"[{CONV}, relu, {POOLED}, {CONV}, tanh]"
    plain = Plain.of(_net(layers)).folded()
    writer = Writer(plain)
    # The input of 2 x 12 x 11 beside the pooled 3 x 5 x 4, and no larger picture of either.
    assert writer.arena == 2 * 12 * 11 + 3 * 5 * 4
    integers = Writer(Plain.of(_in_integers(_net(layers))))
    assert 4 * integers.arena == 2 * 12 * 11 + 3 * 5 * 4
    assert integers.bytes < writer.bytes / 2


def test_pixels_that_are_their_integers_are_not_copied():
    plain = Plain.of(_in_integers(_net(f"[{CONV}, tanh]")))
    for scale, copied in ((0.25, False), (0.26, True)):
        to = ops.Quantization(scale, False)
        first, second, *rest = plain.ops
        changed = [replace(first, to=to), replace(second, given=to), *rest]
        same = {"scale": np.full(2, 0.25), "shift": np.zeros(2)}
        writer = Writer(replace(plain, graph=plain.graph.with_ops(changed), **same))
        assert any("quantize_pixels" in line for line in writer.lines) == copied
        assert any("conv_integers(given" in line for line in writer.lines) != copied


@needs_compiler
@pytest.mark.parametrize("integers", [False, True])
def test_the_file_checks_itself(integers, tmp_path):
    trained = _net(INTEGERS["pooled"], kind="class", loss="cross_entropy")
    plain = Plain.of(_in_integers(trained) if integers else trained)
    _built(plain, tmp_path)
    path = tmp_path / "net.c"
    done = _checks_itself(path, "DRAWN")
    assert (done.returncode, done.stdout) == (0, "drawn: 0 of 40 numbers are wrong\n")
    text = path.read_text()
    kind = "int8_t" if integers else "float"
    broken = re.sub(rf"(static const {kind} c\d+\[\d+\] = {{\n)", r"\g<1>9 + ", text)
    assert broken != text
    path.write_text(broken)
    done = _checks_itself(path, "DRAWN")
    assert done.returncode == 1
    assert re.fullmatch(r"drawn: [1-9]\d* of 40 numbers are wrong\n", done.stdout)


@needs_compiler
@pytest.mark.parametrize(("kind", "loss"), [("class", "cross_entropy"), ("numbers", "mse")])
def test_it_returns_the_class(kind, loss, tmp_path):
    plain = Plain.of(_net("[tanh]", kind=kind, loss=loss, floats=True))
    raw = plain.raw(Samples.drawn(plain.trained).stored[:1])
    main = f"""#include <stdio.h>
#include "net.c"
int main(void)
{{
    {constant("values", np.moveaxis(raw, 1, 3))}
    float answer[DRAWN_OUTPUTS];
    printf("%d", drawn_predict(values, answer));
    return 0;
}}"""
    expected = _built(plain, tmp_path)(raw)
    (tmp_path / "main.c").write_text(main)
    given = (*COMPILERS[PRESENT[0]], str(tmp_path / "main.c"), "-o", str(tmp_path / "a"), "-lm")
    subprocess.run([PRESENT[0], *given], check=True)
    printed = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=True).stdout
    assert printed == str(int(expected.argmax()) if kind == "class" else 0)


@needs_compiler
def test_the_door_checks_it_by_the_systems_compiler(tmp_path, monkeypatch):
    trained = _net(f"[{CONV}, {{conv2d: {{filters: 2, kernel_size: 3, name: second}}}}]")
    forward, path = Forward(trained, open_backend("numpy", 1)), tmp_path / "net.c"
    monkeypatch.setattr(
        c_file.shutil, "which", {"cc": PRESENT[0], "size": shutil.which("size")}.get
    )
    done = export(trained, forward, C(), path, lambda: Samples.drawn(trained))
    assert done.checked is not None
    assert done.checked.largest < 1e-6
    assert re.search(r": [\d,]+ bytes of flash, [\d,]+ of RAM$", done.checked.by)
    assert f"checked: {done.checked}" in path.read_text()
    first = path.read_bytes()
    export(trained, forward, C(), path, lambda: Samples.drawn(trained))
    assert path.read_bytes() == first

    monkeypatch.setattr(c_file.shutil, "which", {"cc": "false"}.get)
    with pytest.raises(ExportError, match=r"^c: false failed: status 1; --no-check leaves it out"):
        export(trained, forward, C(), path, lambda: Samples.drawn(trained))
    monkeypatch.setattr(c_file.shutil, "which", {"cc": "no-such-compiler"}.get)
    with pytest.raises(ExportError, match=r"^c: no-such-compiler: No such file or directory; "):
        export(trained, forward, C(), path, lambda: Samples.drawn(trained))
    monkeypatch.setattr(c_file.shutil, "which", {}.get)
    assert export(trained, forward, C(), path, lambda: Samples.drawn(trained)).checked is None


def test_what_does_not_fit_is_refused(monkeypatch):
    plain = Plain.of(_net("[tanh]"))
    weights = {name: array * np.float32(np.inf) for name, array in plain.arrays.items()}
    with pytest.raises(ExportError, match="numbers are not finite"):
        C().files(replace(plain, arrays=weights))
    count = 4 * 264 + 4
    monkeypatch.setattr(c_file, "MOST_WEIGHTS", count)
    C().check(plain)
    monkeypatch.setattr(c_file, "MOST_WEIGHTS", count - 1)
    with pytest.raises(ExportError, match=r"^c: 1,060 weights are too many .* have 1,059; "):
        C().check(plain)


def _product(
    w: object, bias: object, inputs: int, norm: dict[str, object] | None = None, **options: object
) -> FixedPoint:
    """Of a dense layer with these weights: (outputs, inputs), and a batch norm behind it."""
    plain = Plain.of(_in_integers(untrained("[flatten, {dense: {units: 2}}]", (1, 1, inputs), 2)))
    (op,) = [op for op in plain.ops if isinstance(op, ops.QuantizedMatMul)]
    arrays = {op.w.name: np.float32(w), op.bias.name: np.float32(bias)}
    for name, values in (norm or {}).items():
        options[name] = replace(op.bias, name=name)
        arrays[name] = np.float32(values)
    return FixedPoint.of(replace(op, **options), replace(plain, arrays=arrays))


def test_scales_in_fixed_point():
    to, given = ops.Quantization(0.5, True), ops.Quantization(0.25, False)
    fixed = _product([[1.27, -0.01], [0, 0]], [3, -2], 2, to=to, given=given)
    # Integers of weights are those of 0.01, and those of activations of 0.25.
    assert fixed.w.tolist() == [[127, -1], [0, 0]]
    assert fixed.bias[0] == 1200
    np.testing.assert_allclose(fixed.scale[0], 0.0025, rtol=1e-6)
    np.testing.assert_allclose(np.ldexp(fixed.multiplier, -fixed.shift)[0], 0.005, rtol=1e-7)
    assert 2**30 <= fixed.multiplier[0] < 2**31
    # A bias beside which the weights are nothing is kept.
    np.testing.assert_allclose(fixed.bias * fixed.scale, [3, -2], rtol=1e-6)
    assert (fixed.low, fixed.high) == (-128, 127)
    assert _product([[1, 1], [1, 1]], [0, 0], 2, to=to, given=given, relu=True).low == 0
    small = _product([[1e-9, 1e-9], [1, 1]], [5, 5], 2, to=to, given=given)
    np.testing.assert_allclose(small.bias * small.scale, [5, 5], rtol=1e-6)
    assert small.w.tolist() == [[0, 0], [127, 127]]
    assert np.abs(_product([[1e-9, 1e-9]] * 2, [3e-3, 3e-3], 2, given=given).bias).max() <= 2**30
    # Factors are positive: a batch norm that turns numbers around turns weights around.
    norm = {"weight": [-2, 2], "running_mean": [0, 0], "running_var": [1, 1]}
    turned = _product([[1.27, -0.01]] * 2, [3, 3], 2, norm, to=to, given=given)
    assert turned.w.tolist() == [[-127, 1], [127, -1]]
    np.testing.assert_allclose(turned.bias * turned.scale, [-6, 6], rtol=1e-6)
    assert (turned.multiplier > 0).all()


def test_sums_that_do_not_fit_into_32_bits_are_refused():
    given = ops.Quantization(0.25, False)
    most = (2**31 - 1 - 2**24) // (127 * 255)
    assert _product(np.ones((2, most)), [0, 0], most, given=given).w.shape == (2, most)
    with pytest.raises(ExportError, match=r"^layer 'dense_1': sums of 65,79\d products do not fit"):
        _product(np.ones((2, most + 1)), [0, 0], most + 1, given=given)


@pytest.mark.parametrize("scale", [1e-4, 0.02, 3.0])
def test_pixels_become_the_nearest_integers(scale):
    plain = Plain.of(_net("[tanh]"))
    to = ops.Quantization(scale, True)
    times, plus, shift = of_pixels(plain, to)
    raw = np.arange(256)[:, None]
    assert np.abs(raw * times + plus + (1 << (shift - 1))).max() < 2**31
    expected = np.clip((raw * plain.scale + plain.shift) / scale, *to.bounds)
    assert np.abs(pixels_as_integers(raw, plain, to) - expected).max() <= 0.5 + 1e-2


def _computed(call: str, x: np.ndarray, kind: str, folder: Path) -> np.ndarray:
    """What functions of C make of numbers x."""
    body = f"{kind} y; {call}; fwrite(&y, sizeof y, 1, stdout);"
    loop = f"float x; while (fread(&x, 4, 1, stdin)) {{ {body} }}"
    text = f"{c_file._functions(call)}\nint main(void) {{ {loop} return 0; }}\n"
    source = folder / "main.c"
    source.write_text(f"#include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n{text}")
    given = (*COMPILERS[PRESENT[0]], str(source), "-o", str(folder / "a"), "-lm")
    subprocess.run([PRESENT[0], *given], check=True)
    given = np.float32(x).tobytes()
    done = subprocess.run([folder / "a"], input=given, capture_output=True, check=True)
    return np.frombuffer(done.stdout, {"float": np.float32, "uint8_t": np.uint8}[kind])


@needs_compiler
@pytest.mark.parametrize(("low", "high"), [(-128, 127), (0, 255)])
def test_numbers_become_the_nearest_integers_half_to_even(low, high, tmp_path):
    x = np.concatenate([np.arange(-600, 1200) / 4, np.float32([127.499, 254.501, 1e30, -1e30])])
    found = _computed(f"quantize(&x, 0.5f, {low}, {high}, &y, 1)", x, "uint8_t", tmp_path)
    expected = np.clip(np.rint(np.float32(x) / np.float32(0.5)), low, high)
    np.testing.assert_array_equal(found, expected.astype(np.int64).astype(np.uint8))


# Sizes of arguments around the ends of the parts that each is made of.
WIDE = np.concatenate([np.linspace(-30, 30, 3001), [0, -0.0, 1e-20, -1e-20, 80, -80]])


@needs_compiler
@pytest.mark.parametrize(
    ("call", "right", "x"),
    [
        ("y = logarithm(x)", np.log, np.geomspace(1e-37, 1e38, 3001)),
        ("y = softplus(x, 1)", lambda x: np.logaddexp(x, 0), WIDE),
        ("y = hyperbolic_tangent(x, 1)", np.tanh, WIDE),
        ("y = scaled_tanh(x, 1)", lambda x: 1.7159 * np.tanh(2 / 3 * x), WIDE),
        ("y = sigmoid(x, 1)", lambda x: np.exp(-np.logaddexp(-x, 0)), WIDE),
        ("y = silu(x, 1)", lambda x: x * np.exp(-np.logaddexp(-x, 0)), WIDE),
        ("y = elu(x, 0.7f)", lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0))), WIDE),
        ("y = relu6(x, 1)", lambda x: np.clip(x, 0, 6), WIDE),
        ("y = hardsigmoid(x, 1)", lambda x: np.clip(x + 3, 0, 6) / 6, WIDE),
        ("y = hardswish(x, 1)", lambda x: x * np.clip(x + 3, 0, 6) / 6, WIDE),
        ("y = mish(x, 1)", lambda x: x * np.tanh(np.logaddexp(x, 0)), WIDE),
        ("y = gelu(x, 1)", lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / 2**0.5)), WIDE),
    ],
)
def test_functions_are_as_close_as_they_say(call, right, x, tmp_path):
    expected = right(np.float32(x).astype(float))
    apart = np.abs(_computed(call, x, "float", tmp_path) - expected)
    assert (apart / np.maximum(1, np.abs(expected))).max() < 3e-7


def test_texts_are_safe_in_c():
    assert comment("a */ b /* c ??/ d") == "a .. b .. c ../ d"
    assert [number(v) for v in (1, -0.5, 1e-9, 1 / 3, 3e38)] == [
        *("1.0f", "-0.5f", "9.99999972e-10f", "0.333333343f", "3.00000001e+38f")
    ]
    assert (
        constant("c", np.array([1.0, -2.0]), "int8_t") == "static const int8_t c[2] = {\n1, -2\n};"
    )
