"""Post-training quantization: weights on a grid, scales of activations, files of version 2."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.reference.quantized import quantized_weights
from dnnstack.common.errors import BackendUnavailableError, CheckpointError, ConfigError
from dnnstack.configs.schema.compression import QuantizeConfig
from dnnstack.graph.ops import Quantization
from dnnstack.training.compressed.quantization import Histogram, check_names, on_grid
from dnnstack.training.inference.trained import Trained, find_trained
from dnnstack.training.records.formats.dnnz import compressed_bytes, save_compressed
from dnnstack.training.records.formats.dnnz_arrays import decode_array, encode_scaled
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from ..records.formats.test_dnnz import network, refused, sealed

KNOWN = {"dense_1": Quantization(0.0123, False)}
ROWS = arrays("float32", array_shapes(min_dims=2, max_dims=4, max_side=5),
              elements=st.floats(-8, 8, width=32))  # fmt: skip


@given(ROWS, st.sampled_from([1e-30, 1e-3, 1.0, 1e20]))
def test_weights_are_127_steps_of_a_scale_and_come_back_bit_for_bit(weight, size):
    weight = weight * np.float32(size)
    found = on_grid(weight)
    integers, scales = quantized_weights(found)
    steps = scales.reshape(-1, *(1,) * (weight.ndim - 1))
    largest = np.abs(weight).reshape(len(weight), -1).max(1)
    normal = largest > 1e-36
    assert (np.abs(integers).reshape(len(weight), -1).max(1) == 127)[normal].all()
    assert np.array_equal((integers * steps).astype(np.float32)[normal], found[normal])
    assert (np.abs(found.astype(float) - weight) <= 0.5001 * steps)[normal].all()
    fractions = np.ldexp(np.frexp(scales[normal])[0], 16)
    assert (fractions == np.rint(fractions)).all()
    data, cost = encode_scaled(found)
    assert decode_array(memoryview(data), weight.shape)[0].tobytes() == found.tobytes()
    assert cost.bytes == len(data)


def test_a_scaled_array_takes_a_byte_a_number_or_less():
    rng = np.random.default_rng(4)
    weight = on_grid(rng.normal(size=(8, 300)).astype(np.float32))
    data, cost = encode_scaled(weight)
    assert (len(data), cost.number_bits) == (1 + 4 + 4 * 8 + 1 + 8 * 300, 8)
    weight *= rng.random(weight.shape) < 0.1
    data, cost = encode_scaled(on_grid(weight))
    assert cost.is_coded
    assert len(data) < 0.45 * weight.size
    assert decode_array(memoryview(data), weight.shape)[1] == cost


def test_ranges():
    values = np.random.default_rng(2).normal(size=(4, 50_000)).astype(np.float32)
    values[3, 7] = 30.0
    histogram, whole = Histogram(), Histogram()
    for part in (values[0] * 0.01, *values):
        histogram.add(part)
    whole.add(np.concatenate([values[0] * 0.01, *values]))
    assert histogram.counts.sum() == whole.counts.sum() == 250_000

    def largest(range_: str, **more: float) -> float:
        found = histogram.quantization(QuantizeConfig(range=range_, **more))
        assert found.signed
        return 127 * found.scale

    assert largest("max") == pytest.approx(30.0)
    assert largest("percentile", percentile=99.0) == pytest.approx(2.52, abs=0.05)
    # Of c: 250,000 (c / 127)^2 / 12 by rounding and (30 - c)^2 by cutting are least at 13; the
    # smallest fifth of the numbers is rounded to 0 anyway.
    assert 12.0 < largest("mse") < 18.0
    nothing, positive = Histogram(), Histogram()
    nothing.add(np.zeros(3))
    assert nothing.quantization(QuantizeConfig()) == Quantization(1.0, False)
    positive.add(np.array([1.0, 2.0]))
    assert positive.quantization(QuantizeConfig(range="max")).scale == np.float32(2 / 255)


def test_a_file_keeps_scales_and_only_a_cpu_computes_with_it(tmp_path):
    checkpoint = network()
    weight = on_grid(np.random.default_rng(3).normal(size=(10, 784)).astype(np.float32))
    given_ = {**checkpoint.arrays, "dense_1.weight": weight}
    path = tmp_path / "x.dnnz"
    saved = save_compressed(replace(checkpoint, arrays=given_, quantization=KNOWN), path)
    assert path.read_bytes()[8:10] == b"\2\0"
    assert saved.bytes < 7840 + 1500
    found = find_trained(None, path, tmp_path, print)
    assert found.checkpoint.quantization == KNOWN
    graph = found.network.infer_graph(2)
    calls = found.compile(ReferenceBackend(1), graph).calls("infer")
    assert "QuantizedMatMul" in {call.op.name for call in calls}

    class Gpu:
        name = "cuda"

        def precision(self, wanted: str) -> str:
            return wanted

    with pytest.raises(BackendUnavailableError, match=r"8-bit integers.*--device cpu"):
        found.compile(Gpu(), graph)  # type: ignore[arg-type]
    other = replace(found.checkpoint, quantization={"dense_9": KNOWN["dense_1"]})
    with pytest.raises(CheckpointError, match="'dense_9' computes with 8-bit integers, but"):
        Trained.of(other).compile(ReferenceBackend(1), graph)
    with pytest.raises(ConfigError, match=r"no layer matches 'x'; those that .* are dense_1"):
        check_names(found.network, QuantizeConfig(float32=("x",)))
    with pytest.raises(ConfigError, match="no layer is left"):
        check_names(found.network, QuantizeConfig(float32=("*",)))


def test_other_files_are_refused(tmp_path):
    data = compressed_bytes(replace(network(), quantization=KNOWN))
    assert "version" in refused(sealed(data[:8] + b"\1" + data[9:-32]), tmp_path)
    for scale in (0.0, -1.0):
        wrong = {"dense_1": Quantization(scale, True)}
        said = refused(compressed_bytes(replace(network(), quantization=wrong)), tmp_path)
        assert "scale is not above 0" in said

    def told(*pieces: bytes) -> str:
        with pytest.raises(ValueError, match="a") as caught:
            decode_array(memoryview(b"".join(pieces)), (2, 3))
        return str(caught.value)

    head, scales = b"\2" + struct.pack("<I", 2), np.array([1, 2], "<f4").tobytes()
    numbers = b"\3" + bytes([0, 1, 127, 129, 255, 3])
    found, _ = decode_array(memoryview(head + scales + numbers), (2, 3))
    assert found.tolist() == [[0, 1, 127], [-254, -2, 6]]
    assert "rows" in told(b"\2" + struct.pack("<I", 3), scales, numbers)
    assert "too early" in told(head, scales, numbers[:-1])
    assert "too early" in told(head, scales[:-1])
    assert "above 0" in told(head, np.array([0, 1], "<f4").tobytes(), numbers)
    assert "above 0" in told(head, np.array([np.nan, 1], "<f4").tobytes(), numbers)
    assert "integers" in told(head, scales, b"\3" + bytes([128] * 6))
    assert "integers" in told(head, scales, b"\0", np.full(6, 0.5, "<f4").tobytes())
    assert "another" in told(head, scales, head + scales + numbers)
    assert "NaN or infinity" in told(head, np.full(2, 3e38, "<f4").tobytes(), numbers)
