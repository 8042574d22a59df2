"""Networks that are trained on files of rows: trained, resumed, evaluated, asked."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import dnnstack
import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.common.errors import CheckpointError, DatasetError, ShapeError
from dnnstack.datasets.columns import Columns
from dnnstack.training.inference.intervals import wilson
from dnnstack.training.records.formats.dnnz import save_compressed
from PIL import Image

CONFIG = """\
name: net
data:
  dataset: {{csv: {{train: rows.csv, test: rows.csv, {dataset}}}}}
  batch_size: 8
  validation: 8
layers: [dense: {{units: {units}}}]
loss: {loss}
optimizer: {{type: sgd, lr: 0.1}}
schedule: fixed
train: {{epochs: 2}}
"""
KINDS = {
    "class": ("targets: k", 3, "cross_entropy"),
    "numbers": ("kind: numbers, targets: [y, z]", 2, "mse"),
    "yes_no": ("kind: yes_no, targets: q", 1, "binary_cross_entropy"),
    "distribution": ("kind: distribution, targets: [s, t]", 2, "cross_entropy"),
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[object]]:
    """A file of rows in the working directory; its rows."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(3)
    rows: list[list[object]] = []
    for n in range(48):
        a = round(float(draw.normal(5, 2)), 3)
        first = [a, 1_700_000_000 + n, ["red", "blue"][n % 2], "abc"[n % 3]]
        rows.append([*first, round(2 * a + 1, 4), round(-a, 4), ["no", "yes"][n % 2], 0.25, 0.75])
    write(rows)
    return rows


def write(rows: list[list[object]], name: str = "rows.csv") -> None:
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["a", "when", "colour", "k", "y", "z", "q", "s", "t"], *rows])


def trained(kind: str, *more: str) -> dnnstack.Classifier:
    dataset, units, loss = KINDS[kind]
    text = CONFIG.format(dataset=f"inputs: [a, when, colour], {dataset}", units=units, loss=loss)
    Path("net.yaml").write_text(text)
    assert main(["train", "--config", "net.yaml", "--device", "numpy", *more]) == 0
    return dnnstack.load("net", device="numpy")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_target_is_trained_and_answered(table, kind, capsys):
    model = trained(kind)
    origin = model.trained.checkpoint.provenance
    assert (origin.kind, origin.floats) == (kind, True)
    assert isinstance(origin.columns, Columns)
    images, index = model.load_part("validation")
    assert (len(index), images.kind, len(images.labels)) == (8, kind, 48)
    proba = model.predict_proba("rows.csv")
    assert proba.shape == (48, len(model.classes_))
    # By hand: standardised over the samples trained on, but not the colours.
    weights = {n: v.astype(np.float64) for n, v in model.trained.checkpoint.arrays.items()}
    x = np.array([[r[0], r[1], r[2] == "blue", r[2] == "red"] for r in table], np.float64)
    scale, shift = (np.array(v) for v in vars(origin.preprocessing).values())
    assert (scale[2:].tolist(), shift[2:].tolist()) == ([1, 1], [0, 0])
    x = (x - origin.columns.offsets) * scale + shift
    assert abs(x[:, :2].mean(0)).max() < 0.3
    assert abs(x[:, :2].std(0) - 1).max() < 0.2
    scores = x @ weights["dense_1.weight"].T + weights["dense_1.bias"]
    expected = {
        "numbers": scores,
        "yes_no": 1 / (1 + np.exp(-scores)),
    }.get(kind, np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
    np.testing.assert_allclose(proba, expected, rtol=1e-4, atol=1e-5)
    # The same from Python's own rows, and of one alone.
    rows = [{"colour": r[2], "when": r[1], "a": r[0]} for r in table]
    np.testing.assert_array_equal(model.predict_proba(rows), proba)
    np.testing.assert_allclose(model.predict_rows(rows[:1]).found, proba[:1], rtol=1e-5)
    np.testing.assert_allclose(
        model.predict_proba([[r[0], r[1], r[2] == "blue", r[2] == "red"] for r in table]),
        proba,
        rtol=1e-5,
    )
    capsys.readouterr()
    assert main(["predict", "--csv", "--device", "numpy", "rows.csv"]) == 0
    header, *lines = csv.reader(capsys.readouterr().out.splitlines())
    assert header[:9] == ["a", "when", "colour", "k", "y", "z", "q", "s", "t"]
    assert [line[:9] for line in lines] == [[str(cell) for cell in row] for row in table]
    title = {"class": "probability", "numbers": "predicted", "yes_no": "probability"}
    names = [f"{title.get(kind, 'share')}:{name}" for name in model.classes_]
    assert header[-len(names) :] == names
    np.testing.assert_allclose(
        np.array([line[-len(names) :] for line in lines], float), proba, rtol=1e-5
    )
    if kind == "class":
        assert header[9:11] == ["label", "probability"]
        assert [line[9] for line in lines] == [*model.predict("rows.csv")]
        assert lines[0][10] == f"{proba[0].max():.7g}"


@pytest.mark.parametrize("kind", ["numbers", "yes_no", "class"])
def test_folds_are_judged_by_all_their_answers_together(table, kind, capsys):
    trained(kind)
    begin = ["train", "--config", "net.yaml", "--device", "numpy", "--set", "train.epochs=1"]
    assert main([*begin, "--folds", "3"]) == 0
    targets, answers, right = [], [np.zeros((0, 2))], 0
    for fold in (1, 2, 3):
        model = dnnstack.load(f"runs/net-folds/fold-{fold}", device="numpy")
        images, index = model.load_part("validation")
        targets.append(images.labels[index])
        result = model.evaluate_part(images, index, "validation")
        right += result.correct
        answers += [result.pairs[1]] if result.pairs else []
    y, p = np.concatenate(targets), np.concatenate(answers[kind != "class" :])
    capsys.readouterr()
    assert main(["runs", "--group", "net-folds", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["together"]
    wanted = {"accuracy": np.mean((p > 0.5) == (y > 0.5))} if kind == "yes_no" else {}
    if kind == "numbers":
        gaps, y = y.astype(float) - p, y.astype(float)
        wanted = {
            "r2": 1 - (gaps**2).sum() / ((y - y.mean(0)) ** 2).sum(),
            "rmse": np.sqrt((gaps**2).mean()),
            "mae": abs(gaps).mean(),
        }
    elif kind == "class":
        low, high = wilson(right, 48)
        wanted = {"correct": right, "accuracy": right / 48, "accuracy_interval": [low, high]}
    assert found.pop("count") == 48
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
    assert main(["runs", "--group", "net-folds"]) == 0
    printed = capsys.readouterr().out
    assert f"together  {'R2 ' if kind == 'numbers' else ''}" in printed
    assert all(f"{each} {found[each]:.4f}" in printed for each in ("rmse", "mae") if each in found)


def test_answers_are_told_as_json_and_text(table, capsys):
    model = trained("class")
    found = model.predict_proba("rows.csv")[0].tolist()
    capsys.readouterr()
    assert main(["predict", "--json", "--device", "numpy", "rows.csv"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    best = int(np.argmax(found))
    assert first == {
        "path": "rows.csv",
        "line": 2,
        "kind": "class",
        "label": "abc"[best],
        "index": best,
        "answers": dict(zip("abc", found, strict=True)),
    }
    assert main(["predict", "--top", "1", "--device", "numpy", "rows.csv"]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line == f"rows.csv: line 2: {'abc'[best]} {max(found):.1%}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,when\n1,2\n", "has no column 'colour'; it has a, when"),
        ("a,when,colour\n1,2,green\n", "line 2, column 'colour': 'green' is not one of the 2"),
        ("a,when,colour\n1,x,red\n", "line 2, column 'when': 'x' is not a number"),
        ("a,when,colour\n1,,red\n", "line 2, column 'when': has no value"),
    ],
)
def test_another_table_is_refused_by_its_columns(table, text, said, capsys):
    model = trained("class")
    Path("other.csv").write_text(text)
    with pytest.raises(DatasetError, match=said):
        model.predict("other.csv")
    capsys.readouterr()
    assert main(["predict", "--device", "numpy", "other.csv", "rows.csv"]) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert len(printed.out.splitlines()) == 48


@pytest.mark.parametrize("option", ["--raw", "--no-invert", "--min-probability=0.5"])
def test_options_of_pictures_are_refused(table, option, capsys):
    trained("class")
    assert main(["predict", "--device", "numpy", option, "rows.csv"]) == 2
    assert "the network takes rows of a table, not pictures" in capsys.readouterr().err


def test_rows_have_no_views_and_are_called_rows(table, capsys):
    model = trained("class")
    told = capsys.readouterr()
    assert "40 rows for training, 8 for validation" in told.out + told.err
    assert "rows/s" in told.out + told.err
    Path("rows.csv").unlink()
    refused = "evaluate.tta: views are of pictures, but the samples are rows"
    for command in (["eval"], ["predict", "rows.csv"]):
        assert main([*command, "--tta", "mirror", "--device", "numpy"]) == 1
        assert refused in capsys.readouterr().err
    for ask in (lambda: dnnstack.load("net", tta="mirror"), lambda: model.evaluate(tta="mirror")):
        with pytest.raises(ShapeError, match="views are of pictures"):
            ask()


def test_no_answer_is_a_formula(table, capsys):
    trained("class")
    Path("other.csv").write_text("note,a,when,colour\n=1+1,-3,2,red\n")
    capsys.readouterr()
    assert main(["predict", "--csv", "--device", "numpy", "other.csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("'=1+1,-3,2,red,")


def test_a_resume_goes_on_with_the_same_rows_alone(table, capsys):
    whole = trained("class").trained.checkpoint.arrays
    begin = ["train", "--config", "net.yaml", "--device", "numpy", "--set", "name=again"]
    assert main([*begin, "--set", "train.epochs=1"]) == 0
    assert main([*begin, "--resume"]) == 0
    again = dnnstack.load("again", device="numpy").trained.checkpoint.arrays
    for name, array in whole.items():
        np.testing.assert_array_equal(again[name], array)
    write([[*table[0][:3], "b", *table[0][4:]], *table[1:]])
    capsys.readouterr()
    assert main([*begin, "--resume", "--set", "train.epochs=3"]) == 1
    assert "1 relabelled: line 2" in capsys.readouterr().err


def test_rows_of_a_test_file_need_no_training_file(table, capsys):
    model = trained("class")
    before = model.evaluate(split="test").loss
    Path("test.csv").write_bytes(Path("rows.csv").read_bytes())
    moved = ["--set", "name=moved", "--set", "data.dataset.csv.test=test.csv"]
    assert main(["train", "--config", "net.yaml", "--device", "numpy", *moved]) == 0
    Path("rows.csv").unlink()
    assert dnnstack.load("moved", device="numpy").evaluate(split="test").loss == before


def test_an_ensemble_takes_the_same_columns(table, capsys):
    runs = [trained("class").predict_proba("rows.csv")]
    assert main(["train", "--config", "net.yaml", "--device", "numpy", "--set", "seed=5"]) == 0
    runs.append(dnnstack.load("net-2", device="numpy").predict_proba("rows.csv"))
    both = dnnstack.load_ensemble(["net", "net-2"], device="numpy")
    np.testing.assert_allclose(both.predict_proba("rows.csv"), np.mean(runs, axis=0), rtol=1e-5)
    other = ["train", "--config", "net.yaml", "--device", "numpy", "--set", "name=other"]
    assert main([*other, "--set", "data.dataset.csv.inputs=[y, when, colour]"]) == 0
    with pytest.raises(CheckpointError, match="was trained on other columns than"):
        dnnstack.load_ensemble(["net", "other"], device="numpy")


def test_gaps_get_the_means_of_the_rows_that_are_trained_on(table, capsys):
    """Of each network its own, also in an ensemble; a resume keeps them."""
    write([["", *row[1:]] if n % 7 == 1 else row for n, row in enumerate(table)])
    model = trained("numbers", "--set", "data.dataset.csv.missing=mean")
    origin = model.trained.checkpoint.provenance
    images, index = model.load_part("train")
    known = images.images[index, 0, 0, 0]
    assert np.isnan(known).any()
    mean = np.nanmean(known.astype(np.float64))
    assert abs(mean - np.nanmean(images.images[:, 0])) > 1e-3
    assert origin.columns is not None
    np.testing.assert_allclose(origin.columns.inputs[0].mean, [mean], rtol=1e-12)
    plain = np.where(np.isnan(known), mean, known)
    np.testing.assert_allclose(
        origin.preprocessing.mean_and_std(1.0)[0][0], plain.mean(), rtol=1e-6
    )
    filled = [mean if n % 7 == 1 else row[0] for n, row in enumerate(table)]
    rows = [{"a": a, "when": r[1], "colour": r[2]} for a, r in zip(filled, table, strict=True)]
    one = model.predict_proba("rows.csv")
    np.testing.assert_allclose(one, model.predict_proba(rows), rtol=1e-5)
    begin = ["train", "--config", "net.yaml", "--device", "numpy"]
    begin += ["--set", "data.dataset.csv.missing=mean", "--set", "seed=5"]
    assert main([*begin, "--set", "train.epochs=1"]) == 0
    assert main([*begin, "--set", "name=whole"]) == 0
    assert main([*begin, "--resume"]) == 0
    other, whole = (dnnstack.load(name, device="numpy") for name in ("net-2", "whole"))
    found = other.predict_proba("rows.csv")
    np.testing.assert_array_equal(found, whole.predict_proba("rows.csv"))
    columns = [each.trained.checkpoint.provenance.columns for each in (model, other, whole)]
    assert columns[0] != columns[1] == columns[2]
    both = dnnstack.load_ensemble(["net", "net-2"], device="numpy")
    np.testing.assert_allclose(both.predict_proba("rows.csv"), (one + found) / 2, rtol=1e-5)
    assert main(["data", "--config", "net.yaml", "--set", "data.dataset.csv.missing=mean"]) == 0
    assert f"a       number               {mean:.6g}" in capsys.readouterr().out


def test_a_compressed_network_knows_its_columns(table):
    model = trained("numbers")
    found = save_compressed(model.trained.checkpoint, Path("net.dnnz")).checkpoint.provenance
    kept = model.trained.checkpoint.provenance
    assert (found.columns, found.kind, found.floats) == (kept.columns, "numbers", True)


PICTURES = """\
name: seen
data:
  dataset: {csv: {train: marks.csv, picture: file, size: 8, mode: grey, KIND}}
  batch_size: 4
  validation: 4
layers: [flatten, dense: {units: UNITS}]
loss: LOSS
optimizer: {type: sgd, lr: 0.1}
schedule: fixed
train: {epochs: 2}
"""


@pytest.mark.parametrize(
    ("kind", "units", "loss"),
    [("targets: mark", 2, "cross_entropy"), ("targets: age, kind: numbers", 1, "mse")],
)
def test_a_column_names_the_pictures(tmp_path, monkeypatch, capsys, kind, units, loss):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pics").mkdir()
    rows = []
    for n in range(20):
        Image.new("L", (16, 16), 10 * n).save(f"pics/{n}.png")
        rows.append(f"pics/{n}.png,{'xy'[n % 2]},{n}")
    Path("marks.csv").write_text("\n".join(["file,mark,age", *rows]))
    config = PICTURES.replace("KIND", kind).replace("UNITS", str(units)).replace("LOSS", loss)
    Path("seen.yaml").write_text(config)
    assert main(["train", "--config", "seen.yaml", "--device", "numpy"]) == 0
    model = dnnstack.load("seen", device="numpy")
    origin = model.trained.checkpoint.provenance
    assert (origin.columns, origin.floats, origin.input_shape) == (None, False, (1, 8, 8))
    images, index = model.load_part("train")
    assert images.images.shape[1:] == (1, 8, 8)
    for at, source in enumerate(images.sources):
        n = int(Path(source).stem)
        assert {*images.images[at].ravel().tolist()} == {10 * n}
        assert images.labels[at] == (n % 2 if units == 2 else [n])
    assert len(images) == 16
    np.testing.assert_allclose(
        model.predict_proba(images.sources[0]), model.predict_proba(images.images[:1]), rtol=1e-6
    )
    capsys.readouterr()
    assert main(["data", "--config", "seen.yaml", "--no-sheet"]) == 0
    assert len({*images.contents}) == 16
    Path("marks.csv").write_text("\n".join(["file,mark,age", *rows[:3], "pics/none.png,x,1"]))
    with pytest.raises(DatasetError, match=r"marks\.csv: line 5: there is no picture '.*none\."):
        dnnstack.load("seen", device="numpy").load_part("train")
    Path("pics/none.png").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=r"marks\.csv: line 5: .*none\.png"):
        dnnstack.load("seen", device="numpy").load_part("train")
    skipping = config.replace("size: 8", "size: 8, on_error: skip, draft: true")
    Path("seen.yaml").write_text(skipping.replace("name: seen", "name: skips"))
    Path("marks.csv").write_text("\n".join(["file,mark,age", *rows, "pics/none.png,x,1", "no,y,2"]))
    assert main(["train", "--config", "seen.yaml", "--device", "numpy"]) == 0
    warned = capsys.readouterr().err
    assert "pics/none.png is left out" in warned
    assert "line 23: there is no picture" in warned
    images, _ = dnnstack.load("skips", device="numpy").load_part("train")
    assert {each.removeprefix("line ") for each in images.names} < {*map(str, range(2, 22))}
    assert images.labels.tolist() == [
        (int(n[5:]) % 2) if units == 2 else [int(n[5:]) - 2] for n in images.names
    ]
    Path("marks.csv").write_text("file,mark,age\n,x,1\n" + "\n".join(rows))
    with pytest.raises(DatasetError, match="line 2, column 'file': has no value"):
        dnnstack.load("seen", device="numpy").load_part("train")
