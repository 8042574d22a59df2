"""Files of torch.save: their tensors are read, nothing of them is run, all else is one line."""

from __future__ import annotations

import os
import struct
import zipfile

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats import pytorch_file, weight_file
from dnnstack.training.records.formats.weight_file import read_weight_file

from ....support import torch_files
from ....support.torch_files import PARAMETER, mapping, plain, storage, tensor, torch_file

EIGHT = np.arange(8, dtype="<f4")
DATA = {"data/0": EIGHT.tobytes()}
ROW = tensor(storage("Float", 8), 0, (8,), (1,))


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The values by name in the file of these instructions."""
    monkeypatch.chdir(tmp_path)

    def run(pickled, entries=DATA, **options):
        path = tmp_path / "m.pth"
        path.write_bytes(torch_file(pickled, entries, **options))
        found = read_weight_file(path)
        assert found.sha256 == weight_file.sha256_bytes(path.read_bytes())
        return {name: each.values() for name, each in found.arrays.items() if each.is_readable}

    return run


def test_what_pytorch_has_written_is_read():
    found = read_weight_file(torch_files.REAL).arrays
    wide = np.arange(12.0).reshape(3, 4)
    values = {name: each.values() for name, each in found.items() if each.is_readable}
    for name, wanted in {
        "module.conv1.weight": np.arange(8.0).reshape(2, 1, 2, 2) / 4,
        "module.conv1.bias": [0.5, -1.5],
        "module.bn1.running_var": [1, 1],
        "turned": wide.T,
        "part": wide[1:, ::2],
        "half": wide[1:, 1:3].T,
    }.items():
        np.testing.assert_array_equal(values[name], wanted)
    types = {name: each.dtype for name, each in found.items()}
    assert (types["part"], types["half"], types["turned"]) == ("BF16", "F16", "F32")
    assert types["module.bn1.num_batches_tracked"] == "I64"
    assert len(found) == 10


@pytest.mark.parametrize(("order", "named"), [("<", b"little"), (">", b"big"), ("<", None)])
def test_both_orders_of_bytes(read, order, named):
    entries = {"data/0": EIGHT.astype(f"{order}f4").tobytes()}
    entries |= {} if named is None else {"byteorder": named}
    np.testing.assert_array_equal(read(mapping(w=ROW), entries)["w"], EIGHT)


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "wanted"),
    [
        (0, (2, 4), (4, 1), EIGHT.reshape(2, 4)),
        (1, (2, 3), (3, 1), [[1, 2, 3], [4, 5, 6]]),
        (2, (2, 3), (1, 2), [[2, 4, 6], [3, 5, 7]]),
        (7, (), (), 7),
        (8, (0, 3), (3, 1), np.zeros((0, 3))),
        (3, (2,), (0,), [3, 3]),
    ],
)
def test_offsets_and_strides(read, offset, shape, strides, wanted):
    held = mapping(w=tensor(storage("Float", 8), offset, shape, strides))
    np.testing.assert_array_equal(read(held)["w"], wanted)


@pytest.mark.parametrize("path", [("model",), ("state_dict",), ("model_state_dict",), ("ema",)])
def test_weights_among_other_things(read, path):
    pickled = mapping(w=PARAMETER + b"(" + ROW + plain(True) + plain({}) + b"tR")
    for name in (*path, "state_dict"):
        pickled = mapping(**{name: pickled, "epoch": plain(3), "rates": plain([0.1, None, 2**70])})
    np.testing.assert_array_equal(read(pickled)["w"], EIGHT)


def test_averaged_weights_come_first(read):
    kept = {"model": mapping(w=ROW), "ema": mapping(v=ROW), "state_dict": mapping(u=ROW)}
    assert [*read(mapping(**kept))] == ["v"]


CALL = b"cos\nmkdir\n(" + plain("it ran") + b"tR"
HELD = storage("Float", 8)
LARGE = 1 << 48


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (
            CALL,
            "names 'os.mkdir', of which no tensor is made, and nothing of it is run (save model.st",
        ),
        (b"cbuiltins\neval\n" + plain("1") + b"\x85R", "its pickle names 'builtins.eval'"),
        (plain("os") + plain("mkdir") + b"\x93", "its pickle names 'os.mkdir'"),
        (plain(1) + plain("x") + b"\x93", "its pickle names ''"),
        (b"(ios\nmkdir\n", "its pickle has the instruction INST"),
        (torch_files.TENSOR + plain((1,) * 6) + b"R", "calls torch._utils._rebuild_tensor_v2 with"),
        (torch_files.MAPPING + plain((1,)) + b"R", "calls collections.OrderedDict with other"),
        (plain(1) + plain(()) + b"R", "its pickle is damaged"),
        (torch_files.TENSOR + plain(1) + b"R", "its pickle is damaged"),
        (mapping(w=tensor(ROW, 0, (8,), (1,))), "calls torch._utils._rebuild_tensor_v2 with"),
        (mapping(w=tensor(HELD, 0, (9,), (1,))), "a tensor (9,) reaches beyond the 8 numbers"),
        (mapping(w=tensor(HELD, 1, (8,), (1,))), "a tensor (8,) reaches beyond the 8 numbers"),
        (mapping(w=tensor(HELD, 0, (2, 2), (7, 1))), "a tensor (2, 2) reaches beyond"),
        (mapping(w=tensor(HELD, 0, (LARGE,), (0,))), "reaches beyond the 8 numbers"),
        (mapping(w=tensor(HELD, 0, (LARGE + 1, 0), (1, 1))), "the shape of a tensor is none"),
        (mapping(w=tensor(HELD, -1, (2,), (1,))), "the shape of a tensor is none"),
        (mapping(w=tensor(HELD, 0, (True,), (1,))), "the shape of a tensor is none"),
        (mapping(w=tensor(HELD, 0, (1,) * 17, (1,) * 17)), "the shape of a tensor is none"),
        (mapping(w=tensor(HELD, 0, (2, 2), (1,))), "the shape of a tensor is none"),
        (mapping(w=tensor(HELD, 0, [2], (1,))), "the shape of a tensor is none"),
        (mapping(w=storage("Float", 7)), "its entry 'data/0' has 32 bytes"),
        (mapping(w=storage("Float", 8, "1")), "its zip archive has no entry 'data/1'"),
        (mapping(w=storage("Quantized", 8)), "its pickle names 'torch.QuantizedStorage'"),
        (plain(("storage", 1, "0", "cpu", 8)) + b"Q", "its pickle is damaged"),
        (b"\x85", "its pickle is damaged"),
        (b"t", "its pickle is damaged"),
        (b"(1", "its pickle has the instruction POP_MARK"),
        (plain(1) + b"(0", "its pickle has the instruction POP,"),
        (plain(1) + b"(\x85", "its pickle is damaged"),
        (b"h\x05", "its pickle is damaged"),
        (b"}" + plain((1,)) + plain(1) + b"s", "fills what is neither a list nor a mapping"),
        (plain(1) + plain(1) + b"a", "fills what is neither a list nor a mapping"),
        (b"}(" + plain("a") + b"u", "its pickle is damaged"),
        (mapping(w=plain(1)), "it has no tensors by name, but 'w'"),
        (b"}q\x01" + plain("model") + b"h\x01s", "it has no tensors by name, but 'model'"),
        (plain([1]), "it has no tensors by name; fetch it again, and compare"),
        (b"}" + plain(3) + ROW + b"s", "int is no name of a tensor"),
        (mapping(**{"x" * 1001: ROW}), "is no name of a tensor"),
        (b"S" + b"x" * 20_000 + b"\n", "no string quotes around"),
        (b"N" * 9, "its pickle has more than 5 instructions"),
    ],
)
def test_what_no_tensor_needs_is_refused_in_a_line(read, tmp_path, monkeypatch, pickled, said):
    monkeypatch.setattr(pytorch_file, "_MOST_STEPS", 5 if pickled == b"N" * 9 else 999)
    with pytest.raises(CheckpointError) as caught:
        read(pickled)
    text = str(caught.value)
    assert said in text
    assert text.startswith(f"{tmp_path / 'm.pth'}: is damaged, or is not a file of weights that to")
    assert len(text.splitlines()) == 1
    assert len(text) < 1000
    assert os.listdir(tmp_path) == ["m.pth"]


def test_as_many_tensors_as_a_file_may_have(read, monkeypatch):
    monkeypatch.setattr(pytorch_file, "MOST_ARRAYS", 2)
    held = tensor(HELD, 0, (1,) * 16, (1,) * 16)
    assert [*read(mapping(a=ROW, **{"x" * 1000: held}))] == ["a", "x" * 1000]
    with pytest.raises(CheckpointError, match="it has 3 tensors"):
        read(mapping(a=ROW, b=ROW, c=ROW))


def test_archives_that_are_none_of_pytorch(read, tmp_path):
    whole = torch_file(mapping(w=ROW), DATA)
    at = whole.index(DATA["data/0"])
    place = whole.rindex(b"PK\x01\x02")
    size = struct.pack("<I", len(whole) + 1)
    for data, said in (
        (whole[:-9], "File is not a zip file"),
        (b"x" + whole, "is not a file of weights that torch.save has written"),
        (whole[: at + 1] + b"x" + whole[at + 2 :], "Bad CRC-32 for file 'm/data/0'"),
        (torch_file(mapping(w=ROW), DATA, zipfile.ZIP_DEFLATED), "'data.pkl' is compressed"),
        (torch_file(b"N", {"x/data.pkl": b"N."}), "has 2 entries data.pkl, not one"),
        (whole.replace(b"data.pkl", b"data.pkx"), "has 0 entries data.pkl, not one"),
        (whole[: place + 20] + size + whole[place + 24 :], "entries of its zip archive overlap"),
    ):
        (tmp_path / "m.pth").write_bytes(data)
        with pytest.raises(CheckpointError, match=said):
            read_weight_file(tmp_path / "m.pth")
