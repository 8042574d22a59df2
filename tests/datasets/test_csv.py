from __future__ import annotations

import csv
import gzip
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import DatasetInfo, Downloads, ImageSet, csv_file, describe, load
from dnnstack.datasets.csv_file import SEPARATORS, read_rows
from dnnstack.training.normalization import of_trained_rows
from hypothesis import given
from hypothesis import strategies as st

from ..support.stored import cases

PLAIN = "a,y\n1,u\n2,v\n"


def loaded(
    folder: Path,
    train: str | bytes,
    tested: str | None = None,
    split: Any = "train",
    **options: Any,
) -> tuple[DatasetInfo, ImageSet]:
    data = train.encode() if isinstance(train, str) else train
    (folder / "train.csv").write_bytes(data)
    (folder / "test.csv").write_bytes(data if tested is None else tested.encode())
    options = {"train": "train.csv", "test": "test.csv", "targets": ("y",), **options}
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    info = describe("csv", options=given, root=folder)
    return info, load("csv", split, root=folder, options=given, downloads=Downloads())


def inputs(images: ImageSet) -> list[list[float]]:
    return images.images[:, :, 0, 0].tolist()


@pytest.mark.parametrize(("text", "options", "said"), cases(__file__, "refused"))
def test_what_is_no_table_to_learn_from_is_refused_with_its_place(tmp_path, text, options, said):
    with pytest.raises(DatasetError) as raised:
        loaded(tmp_path, text, **options)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path / 'train.csv'}: ")
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(("cells", "kind", "categories", "values"), cases(__file__, "types"))
def test_a_column_has_the_type_of_its_cells(tmp_path, cells, kind, categories, values):
    text = "".join(f"{cell},{'uv'[at % 2]}\n" for at, cell in enumerate(cells))
    _, images = loaded(tmp_path, f"a,y\n{text}")
    assert images.columns is not None
    (column,) = images.columns.inputs
    assert (column.type, list(column.categories)) == (kind, categories)
    assert inputs(images) == values
    # A 0 or 1 is not standardised, whatever it stands for.
    own = kind == "number" and {*map(str, cells)} != {"0", "1"}
    assert images.columns.standardised == [own] * len(values[0])


@pytest.mark.parametrize(("cells", "kind", "names", "labels"), cases(__file__, "targets"))
def test_targets_are_of_their_kind(tmp_path, cells, kind, names, labels):
    info, images = loaded(
        tmp_path, "".join(["a,y\n", *(f"{n},{c}\n" for n, c in enumerate(cells))]), kind=kind
    )
    assert (info.kind, list(info.classes), info.shape, info.floats) == (
        kind,
        names,
        (1, 1, 1),
        True,
    )
    assert images.labels.tolist() == labels
    assert (info.train_count, info.test_count) == (3, None)


def test_whole_numbers_are_classes_if_they_are_few_or_the_config_says_so(tmp_path):
    many = "a,y\n" + "".join(f"{n},{n}\n" for n in range(101))
    few = "a,y\n" + "".join(f"{n},{n}\n" for n in range(100))
    assert len(loaded(tmp_path, few)[0].classes) == 100
    assert len(loaded(tmp_path, many, kind="class")[0].classes) == 101
    with pytest.raises(DatasetError, match="101 different numbers"):
        loaded(tmp_path, many)
    texts = "a,y\n" + "".join(f"t{n},{n % 2}\n" for n in range(201))
    with pytest.raises(DatasetError, match="201 different texts, and a category has at most 200"):
        loaded(tmp_path, texts)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode("utf-8-sig"),
        PLAIN.encode("utf-16"),
        gzip.compress(PLAIN.encode(), mtime=0),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r").encode(),
        PLAIN.replace("\n", "\n\n").encode(),
        b'a,"y"\n"1",u\n 2 , v ',
        *(PLAIN.replace(",", sign).encode() for sign in SEPARATORS.values()),
    ],
)
def test_encodings_separators_and_line_ends_are_found(tmp_path, data):
    _, images = loaded(tmp_path, data)
    assert inputs(images) == [[1], [2]]
    assert (images.classes, images.labels.tolist()) == (("u", "v"), [0, 1])


def test_latin_1_is_read_if_it_is_named(tmp_path):
    data = "a,y\n1,é\n2,v\n".encode("latin-1")
    with pytest.raises(DatasetError, match=r"line 2: is not UTF-8; .* set encoding: latin-1"):
        loaded(tmp_path, data)
    assert loaded(tmp_path, data, encoding="latin-1")[0].classes == ("v", "é")
    with pytest.raises(DatasetError, match=r"train\.csv: is damaged: "):
        loaded(tmp_path, gzip.compress(PLAIN.encode())[:-9])


def test_a_decimal_comma_needs_semicolons(tmp_path):
    assert inputs(loaded(tmp_path, "a;y\n1,5;u\n2.5;v\n")[1]) == [[1.5], [2.5]]
    _, images = loaded(tmp_path, 'a\ty\n"1,5"\tu\n"2,5"\tv\n')
    assert images.columns is not None
    assert images.columns.inputs[0].categories == ("1,5", "2,5")


_CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=8)
_TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(_CELLS.map(str.strip), min_size=width, max_size=width), min_size=1, max_size=6
    )
)


@given(_TABLES, st.sampled_from([*SEPARATORS]), st.sampled_from(["\n", "\r\n"]))
def test_a_table_that_python_writes_is_read_as_it_was(tmp_path_factory, rows, separator, end):
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=SEPARATORS[separator], lineterminator=end)
    names = [f"c{at}" for at in range(len(rows[0]))]
    writer.writerows([names, *rows])
    path = tmp_path_factory.mktemp("drawn") / "x.csv"
    path.write_bytes(file.getvalue().encode())
    read = read_rows(path, separator)
    assert (list(read.names), [*map(list, read.cells)]) == (names, rows)
    assert list(read.lines) == list(range(2, len(rows) + 2))


def test_a_row_of_several_lines_is_named_by_its_first(tmp_path):
    with pytest.raises(DatasetError, match=r"line 4, column 'b': 'x' is not a number"):
        loaded(tmp_path, 'a,b,y\n"1\n2",3,u\n3,x,u\n4,4,v\n', inputs=["b"])


def test_missing_values_are_refused_filled_or_left_out(tmp_path):
    text = "a,c,y\n1,r,u\n,g,v\n4,NA,u\n4,r,v\n"
    images = loaded(tmp_path, text, missing="mean", unknown="zeros")[1]
    third, whole = 1 / 3, np.arange(4, dtype=np.int32)
    found = of_trained_rows(images, whole)
    np.testing.assert_allclose(
        inputs(found), [[1, 0, 1], [3, 1, 0], [4, third, 1 - third], [4, 0, 1]]
    )
    # They are those of the rows that are trained on alone, and stay so.
    some = of_trained_rows(images, whole[1:3])
    np.testing.assert_allclose(inputs(some), [[1, 0, 0], [4, 1, 0], [4, 1, 0], [4, 0, 0]])
    assert of_trained_rows(some, whole).columns == some.columns
    assert of_trained_rows(replace(some, images=images.images), whole).images.tobytes() == (
        some.images.tobytes()
    )
    assert some.columns is not None
    assert np.isnan(replace(some.columns, missing="drop").filled(images.images)[1, 0])
    with pytest.raises(DatasetError, match="no row that is trained on has a value in column 'a'"):
        of_trained_rows(images, whole[1:2])
    _, left = loaded(tmp_path, text, missing="drop")
    assert inputs(left) == [[1, 0, 1], [4, 0, 1]]
    assert left.names == ("line 2", "line 5")
    assert left.sources[1] == f"{tmp_path / 'train.csv'}: line 5"
    assert loaded(tmp_path, "a,y\n1,u\n2,\n3,v\n", missing="drop")[1].labels.tolist() == [0, 1]


def test_a_category_of_no_row_that_is_trained_on_is_unknown(tmp_path):
    text, some = "a,c,y\n1,r,u\n2,g,v\n3,b,u\n4,r,v\n", np.array([0, 2, 3], np.int32)
    said = r"train.csv: line 3, column 'c': no row that is trained on has 'g'; set unknown: zeros"
    with pytest.raises(DatasetError, match=said):
        of_trained_rows(loaded(tmp_path, text)[1], some)
    with pytest.raises(DatasetError, match=r"no row that is trained on has '[grb]'"):
        loaded(tmp_path, text, test=None, test_fraction=0.3)
    found = of_trained_rows(loaded(tmp_path, text, unknown="zeros")[1], some)
    assert inputs(found) == [[1, 0, 0, 1], [2, 0, 0, 0], [3, 1, 0, 0], [4, 0, 0, 1]]
    assert found.columns is not None
    strict = replace(found.columns, unknown="error")
    rows = read_rows(tmp_path / "train.csv")
    assert found.columns.filled(found.columns.inputs_of(rows)).tolist() == found.images.tolist()
    with pytest.raises(DatasetError, match="line 3, column 'c': 'g' is not one of the 2 categor"):
        strict.inputs_of(rows)


def test_a_wrong_name_is_told_before_the_rows_are_read(tmp_path):
    text = "a,y\n" + "1,u\n" * 300_000 + "1,u,v\n"
    for options in ({"targets": ["z"]}, {"inputs": ["z"]}, {"categories": ["z"]}):
        with pytest.raises(DatasetError, match="has no column 'z'"):
            loaded(tmp_path, text, **options)
    with pytest.raises(DatasetError, match="line 300002: has 3 cells"):
        loaded(tmp_path, text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_is_named_across_pieces(tmp_path, monkeypatch, encoding):
    """Lines, signs and line ends that are cut where a piece of the file ends."""
    rows = [["a", "y"], *([f"é{n}", "\U0001f600"] for n in range(20))]
    data = "\r\n".join(map(",".join, rows)).encode(encoding)
    for piece in range(3, 24):
        monkeypatch.setattr(csv_file, "_PIECE", piece)
        (tmp_path / "x.csv").write_bytes(data)
        found = read_rows(tmp_path / "x.csv", "comma")
        assert [[*found.names], *map(list, found.cells)] == rows
        assert [*found.lines] == [*range(2, 22)]
        (tmp_path / "x.csv").write_bytes(data + b"\r\n\r\n" + b"\x00\xd8" * 3)
        with pytest.raises(
            DatasetError,
            match="line 23: (is not UTF|has a zero byte)"
            if encoding == "utf-8"
            else "is not UTF-16",
        ):
            read_rows(tmp_path / "x.csv", "comma")


def test_a_line_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_PIECE", 8)
    monkeypatch.setattr(csv_file, "_LONGEST", 16)
    loaded(tmp_path, "a,y\n12345678901,u\n1,v\n")
    with pytest.raises(DatasetError, match="has a line of more than 16 characters"):
        loaded(tmp_path, f"a,y\n{'1' * 40},u\n1,v\n")


def test_test_rows_are_read_by_the_columns_of_the_training_rows(tmp_path):
    train = "a,c,y\n1,r,u\n2,g,v\n"
    _, images = loaded(tmp_path, train, "y,c,a\nv,r,7\n", "test")
    assert (inputs(images), images.labels.tolist()) == ([[7, 0, 1]], [1])
    with pytest.raises(
        DatasetError, match=r"test\.csv: line 2, column 'c': 'b' is not one of the "
    ):
        loaded(tmp_path, train, "a,c,y\n1,b,u\n")
    _, images = loaded(tmp_path, train, "a,c,y\n1,b,u\n", "test", unknown="zeros")
    assert inputs(images) == [[1, 0, 0]]
    with pytest.raises(
        DatasetError, match=r"test\.csv: line 2, column 'y': 'w' is not one of the 2"
    ):
        loaded(tmp_path, train, "a,c,y\n1,r,w\n")
    with pytest.raises(DatasetError, match=r"test\.csv: has no column 'c'; it has a, y"):
        loaded(tmp_path, train, "a,y\n1,u\n")


def test_categories_may_be_numbers_and_inputs_some_of_the_columns(tmp_path):
    _, images = loaded(tmp_path, "a,b,y\n7,1,u\n30,2,v\n", inputs=["a"], categories=["a"])
    assert images.columns is not None
    assert [each.categories for each in images.columns.inputs] == [("7", "30")]


def test_large_offsets_lose_nothing(tmp_path):
    """Times of 2023 in tenths of a second: float32 alone would have steps of 128 s."""
    times = [1.7e9 + 0.1 * n for n in range(50)]
    text = "".join(f"{t:.1f},{n},{'uv'[n % 2]}\n" for n, t in enumerate(times))
    _, images = loaded(tmp_path, f"a,b,y\n{text}")
    assert images.columns is not None
    offset, none = images.columns.offsets
    np.testing.assert_allclose(np.array(inputs(images))[:, 0] + offset, times, rtol=0, atol=1e-6)
    assert none == 0


def test_rows_are_held_out_by_a_hash_and_equal_ones_together(tmp_path):
    rows = [f"{n % 40},{'uv'[n % 2]}" for n in range(80)]
    both = [
        loaded(tmp_path, "\n".join(["a,y", *some]), split=split, test=None, test_fraction=0.25)[1]
        for split, some in (("train", rows), ("test", rows[::-1]))
    ]
    assert [len(each) for each in both] == [60, 20]
    assert np.bincount(both[1].labels).tolist() == [10, 10]
    assert not {*both[0].contents} & {*both[1].contents}
    assert both[1].name == "csv/test"


def test_rows_that_are_in_both_files_are_told(tmp_path):
    _, images = loaded(tmp_path, "a,y\n1,u\n2,v\n", "a,y\n2,u\n")
    assert images.doubts == (
        "identical rows in test and in training (1): test: line 2 = train: line 3; remove them "
        "from one of the two, because a test on what was trained on says nothing of new ones",
    )


def test_a_row_is_known_by_its_cells(tmp_path):
    """A class is no part of the content; other targets are."""
    one = loaded(tmp_path, "a,b,y\n1,2,1\n3,4,2\n")[1].contents
    assert loaded(tmp_path, "a,b,y\n1,2,2\n3,4,1\n")[1].contents == one
    assert loaded(tmp_path, "a,b,y\n1,2,1\n3,5,2\n")[1].contents[1] != one[1]
    numbers = [loaded(tmp_path, f"a,y\n1,{y}\n3,2\n", kind="numbers")[1].contents for y in (1, 2)]
    assert numbers[0][0] != numbers[1][0]
    assert numbers[0][1] == numbers[1][1]


def test_validation_rows_are_those_of_their_file(tmp_path):
    (tmp_path / "val.csv").write_text("a,y\n5,v\n")
    _, images = loaded(tmp_path, PLAIN, validation="val.csv")
    assert inputs(images) == [[1], [2], [5]]
    assert images.held is not None
    assert images.held.tolist() == [False, False, True]


def test_a_file_is_read_once(tmp_path, monkeypatch):
    from dnnstack.datasets import csv_set

    read = []
    monkeypatch.setattr(
        csv_set, "read_rows", lambda path, *how: read.append(path) or read_rows(path, *how)
    )
    loaded(tmp_path, PLAIN, "a,y\n3,v\n")
    assert sorted(path.name for path in read) == ["test.csv", "train.csv"]
    loaded(tmp_path, PLAIN + "3,u\n", "a,y\n3,v\n")
    assert len(read) == 4
