from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError, UsageError
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import DatasetInfo, ImageSet
from dnnstack.reports import data_report, data_samples
from dnnstack.reports.contact_sheet import check_png, reduced, reduction
from dnnstack.reports.data_report import DataReport, report
from dnnstack.reports.data_samples import samples, save_samples
from dnnstack.reports.data_text import as_text
from dnnstack.training.normalization import mean_and_deviation
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

Tiny = Callable[..., RunConfig]


def coloured(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> tuple[DataReport, ImageSet]:
    """A report on 40 random 3x6x5 pictures of 4 classes, class 3 of which has none."""
    draw = np.random.default_rng(1)
    images = ImageSet(
        "paint/train",
        draw.integers(0, 256, (40, 3, 6, 5), np.uint8),
        (np.arange(40) % 3).astype(np.int32),
        ("red", "green", "blue", "a class whose name is very long indeed"),
    )
    info = DatasetInfo("paint", (3, 6, 5), images.classes, 40, 40)
    monkeypatch.setattr(data_report, "describe_data", lambda config, root: info)
    monkeypatch.setattr(data_report, "load_data", lambda config, *rest: images)
    monkeypatch.setattr(data_report, "data_files", lambda config, root: ())
    text = "data: {dataset: mnist, validation: 10}\nlayers: [relu]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    return report(parse_config(text + rest, "x.yaml", list(overrides)), Path("data")), images


def test_classes_that_lack_pictures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found, images = coloured(monkeypatch)
    name = images.classes[3]
    parts = ("train", "validation", "test")
    told = tuple(f"classes without pictures in {part} (1): {name}" for part in parts)
    assert found.doubts == told
    assert found.to_json()["doubts"] == told
    for text in told:
        assert f"doubtful    {text}\n" in as_text(found)
    # Without validation, no class lacks a picture of it.
    found, _ = coloured(monkeypatch, "data.validation=0")
    assert found.doubts == (told[0], told[2])
    doubted = dataclasses.replace(found, images=dataclasses.replace(images, doubts=("twice",)))
    assert doubted.doubts == ("twice", told[0], told[2])


def test_mean_and_deviation_are_those_of_what_is_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, images = coloured(monkeypatch)
    pixels = images.images[found.train].astype(np.float64) / 255
    assert len(pixels) == 30
    np.testing.assert_allclose(found.mean, pixels.mean((0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(found.std, pixels.std((0, 2, 3)), rtol=1e-13)


@given(st.integers(1, 3000), st.integers(0, 255))
def test_statistics_of_one_value_are_exact(count: int, value: int) -> None:
    images = np.full((count, 1, 2, 2), value, np.uint8)
    mean, std = mean_and_deviation(images, np.arange(count, dtype=np.int32))
    assert (mean, std) == ((value / 255,), (0.0,))


def test_what_the_text_says_normalizes(tiny: Tiny, tmp_path: Path) -> None:
    text = as_text(report(tiny(), tmp_path))
    advice = text.rpartition("data:\n")[2].strip().partition(": ")[2]
    found = report(tiny(f"data.normalize={advice}"), tmp_path)
    assert found.seen[0] == pytest.approx((0.0,), abs=1e-3)
    assert found.seen[1] == pytest.approx((1.0,), abs=1e-3)
    assert " 1.00" in as_text(found).partition("as the network sees it")[2].splitlines()[0]


@pytest.mark.parametrize("normalize", ["{mean: 0, std: 1}", "{mean: 0.13, std: 0.31}"])
def test_samples_are_training_pictures_of_their_class(
    tiny: Tiny, tmp_path: Path, normalize: str
) -> None:
    config = tiny(f"data.normalize={normalize}")
    found = report(config, tmp_path)
    rows = samples(found, config.seed)
    assert [name for name, _ in rows] == list("0123456789")
    for label, (_, pictures) in enumerate(rows):
        own = found.train[found.images.labels[found.train] == label]
        known = {found.images.images[i].tobytes() for i in own}
        assert len(pictures) == min(32, len(own))
        assert {picture.tobytes() for picture in pictures} <= known
    again = samples(found, config.seed)
    assert all((a[1] == b[1]).all() for a, b in zip(rows, again, strict=True))
    assert any((a[1] != b[1]).any() for a, b in zip(rows, samples(found, 8), strict=True))


def test_the_sheet_shows_the_pictures_enlarged(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny()
    found = report(config, tmp_path)
    save_samples(found, config.seed, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as opened:
        sheet = np.asarray(opened.convert("L"))
        assert opened.format == "PNG"
    first = samples(found, config.seed)[0][1][0, 0].repeat(2, 0).repeat(2, 1)
    windows = np.lib.stride_tricks.sliding_window_view(sheet[:120, :160], first.shape)
    assert (windows == first).all((2, 3)).sum() == 1


@pytest.mark.parametrize("augment", ["[]", "[random_flip]"])
def test_of_many_pixels_fewer_are_looked_at_and_not_at_once(
    tiny: Tiny, tmp_path: Path, augment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(f"data.augment={augment}")
    found = report(config, tmp_path)
    every = samples(found, 1)
    lines = 3 if found.augment else 2
    monkeypatch.setattr(data_samples, "_LOOKED_AT", 28 * 28 * 10 * lines * 5 + 1)
    monkeypatch.setattr(data_samples, "_AT_A_TIME", 28 * 28 * 2)
    monkeypatch.setattr(data_samples, "reduction", lambda *_: 3)
    for (name, few), (other, pictures) in zip(samples(found, 1), every, strict=True):
        assert (name, few.shape) == (other, (5, 1, 10, 10))
        np.testing.assert_array_equal(few, reduced(pictures[:5], 3))


@pytest.mark.parametrize(("augment", "most"), [("[]", 32), ("[random_flip]", 16)])
def test_of_many_pictures_two_rows_are_shown_or_one_with_its_epochs(
    tiny: Tiny, tmp_path: Path, augment: str, most: int
) -> None:
    config = tiny(f"data.augment={augment}", "data.dataset.strokes.train_count=500")
    rows = samples(report(config, tmp_path), 1)
    assert {len(pictures) for _, pictures in rows} == {most}
    assert len(rows) == (30 if most == 16 else 10)


@pytest.mark.parametrize(
    ("side", "lines", "factor"),
    [(28, 20, 1), (128, 60, 1), (129, 60, 2), (224, 60, 2), (2048, 6, 16), (224, 3000, 14)],
)
def test_a_sheet_has_room_for_all_lines(side: int, lines: int, factor: int) -> None:
    assert reduction(side, lines) == factor


def test_a_sheet_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = coloured(monkeypatch)
    with pytest.raises(DatasetError, match=r"nowhere/sheet\.png: cannot be written: No such"):
        save_samples(found, 1, tmp_path / "nowhere" / "sheet.png")
    with pytest.raises(UsageError, match=r"ends in \.png"):
        check_png(Path("sheet.jpg"))
    check_png(Path("SHEET.PNG"))


def test_advice_ends_where_the_network_sees_mean_0_and_deviation_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "  normalize: {mean: [0." in as_text(coloured(monkeypatch)[0])
    text = as_text(coloured(monkeypatch, "data.normalize=measured")[0])
    assert "as the network sees it  0.0000, 0.0000, 0.0000  1.0000, 1.0000, 1.0000" in text
    assert "normalize" not in text
