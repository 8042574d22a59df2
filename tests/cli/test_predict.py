"""``dnnstack predict`` on pictures, good and bad."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.datasets import load
from PIL import Image

Run = Callable[..., subprocess.CompletedProcess[str]]
KEYS = ["path", "label", "index", "probability", "top", "preprocessing"]


@pytest.fixture(scope="module")
def pictures(trained: Path) -> list[str]:
    """Three pictures of the test set as PNG, and one dark on a light page as JPEG."""
    options = {"train_count": 480, "test_count": 100}
    images = load("strokes", "test", root=trained, options=options).images
    names = []
    for i in range(3):
        names.append(f"{i}.png")
        Image.fromarray(images[i, 0]).save(trained / names[-1])
    page = Image.new("L", (200, 150), 240)
    page.paste(Image.fromarray(255 - images[3, 0]).resize((80, 80)), (90, 40))
    page.save(trained / "page.jpg")
    return [*names, "page.jpg"]


@pytest.fixture(scope="module", autouse=True)
def _cache(cache: Path) -> None:
    """The pictures are drawn in this process, by the same cache as in the others."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DNNSTACK_CACHE", str(cache))


@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_json_lines(run_in: Run, trained: Path, pictures: list[str], device: str) -> None:
    done = run_in(trained, "predict", "--json", "--top", "2", "--device", device, *pictures)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["path"] for answer in found] == pictures
    for answer in found:
        assert list(answer) == KEYS
        first, second = answer["top"]
        assert first == {key: answer[key] for key in ("label", "index", "probability")}
        assert answer["label"] == str(answer["index"])
        assert 1 >= first["probability"] >= second["probability"] >= 0
    assert [answer["preprocessing"] for answer in found[:3]] == [[], [], []]
    assert "crop_to_ink" in found[3]["preprocessing"]


def test_an_answer_does_not_depend_on_its_neighbours(
    run_in: Run, trained: Path, pictures: list[str]
) -> None:
    arguments = ("predict", "--json", "--device", "numpy", "--top", "10")
    together = run_in(trained, *arguments, *pictures).stdout.splitlines()
    alone = run_in(trained, *arguments, pictures[1]).stdout.splitlines()
    assert alone == together[1:2]
    assert sum(a["probability"] for a in json.loads(alone[0])["top"]) == pytest.approx(1, abs=1e-6)


def test_text_is_one_line_a_picture(run_in: Run, trained: Path, pictures: list[str]) -> None:
    done = run_in(trained, "predict", "--device", "numpy", *pictures)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == pictures
    assert all("%  (then " in line for line in lines)
    assert len({line.index("%") for line in lines}) == 1
    assert "taking runs/tiny, the latest run" in done.stderr
    single = run_in(trained, "predict", "--device", "numpy", "--top", "1", pictures[0])
    assert single.stdout.startswith("0.png  ")
    assert "then" not in single.stdout


def test_a_bad_picture_does_not_stop_the_rest(
    run_in: Run, trained: Path, pictures: list[str]
) -> None:
    (trained / "words.png").write_text("not a picture", encoding="utf-8")
    paths = [pictures[0], "words.png", "missing.png", pictures[1]]
    done = run_in(trained, "predict", "--json", "--device", "numpy", *paths)
    assert done.returncode == 1
    found = [json.loads(line)["path"] for line in done.stdout.splitlines()]
    assert found == [pictures[0], pictures[1]]
    wrong = [line for line in done.stderr.splitlines() if "error" in line]
    assert wrong[0].startswith("dnnstack: error: words.png: is not a picture of a known format")
    assert wrong[1] == "dnnstack: error: missing.png: no such file"
    assert len(wrong) == 2
