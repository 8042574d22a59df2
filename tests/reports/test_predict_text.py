from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Picture
from dnnstack.reports.predict_text import wanted
from dnnstack.training.inference.predict import Answer, InputFolder, Prediction
from numpy.typing import NDArray
from PIL import Image


def prediction(
    shares: dict[str, float], image: NDArray[np.uint8] | None = None, path: str = "a/5.png"
) -> Prediction:
    answers = [Answer(label, i, share) for i, (label, share) in enumerate(shares.items())]
    answers.sort(key=lambda answer: -answer.probability)
    pixels = np.zeros((1, 28, 28), np.uint8) if image is None else image
    return Prediction(Path(path), tuple(answers), Picture(pixels, ("grey", "crop_to_ink")))


@pytest.mark.parametrize(
    ("classes", "top", "count"), [(10, None, 10), (14, None, 14), (15, None, 10), (10, 3, 3)]
)
def test_how_many_classes_are_shown(classes, top, count):
    assert wanted(classes, top) == count


def test_inputs_are_saved_as_the_network_saw_them(tmp_path):
    rng = np.random.default_rng(0)
    folder = InputFolder(tmp_path / "new" / "seen")
    grey = rng.integers(0, 256, (1, 28, 28), np.uint8)
    colour = rng.integers(0, 256, (3, 32, 32), np.uint8)
    one = folder.save(prediction({"0": 1.0}, grey, "a/5.png"))
    two = folder.save(prediction({"0": 1.0}, colour, "b/5.jpg"))
    assert [path.name for path in (one, two)] == ["5-input.png", "5-2-input.png"]
    with Image.open(one) as picture:
        np.testing.assert_array_equal(np.asarray(picture), grey[0])
    with Image.open(two) as picture:
        np.testing.assert_array_equal(np.asarray(picture).transpose(2, 0, 1), colour)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=r"file: cannot be written: .*--save-input"):
        InputFolder(tmp_path / "file")
    folder = InputFolder(tmp_path / "seen")
    (tmp_path / "seen" / "5-input.png").mkdir()
    with pytest.raises(DatasetError, match="cannot be written"):
        folder.save(prediction({"0": 1.0}))
