"""``dnnstack predict`` on pictures, good and bad."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import dnnstack
import pytest
from dnnstack.datasets import load
from PIL import Image, ImageDraw


@pytest.fixture(scope="module")
def pictures(trained):
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
def _cache(cache):
    """The pictures are drawn in this process, by the same cache as in the others."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DNNSTACK_CACHE", str(cache))


def test_an_answer_does_not_depend_on_its_neighbours(run_in, trained, pictures):
    arguments = ("predict", "--json", "--device", "numpy", "--top", "10")
    together = run_in(trained, *arguments, *pictures).stdout.splitlines()
    alone = run_in(trained, *arguments, pictures[1]).stdout.splitlines()
    assert alone == together[1:2]
    assert sum(a["probability"] for a in json.loads(alone[0])["top"]) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "plain"), [(b"a\x1b[31m\xff.png", False), ("ü日.png".encode(), True)]
)
def test_csv_has_the_bytes_of_a_path(trained, pictures, command, environment, name, plain):
    odd = Path(trained, os.fsdecode(name))
    odd.write_bytes(Path(trained, pictures[0]).read_bytes())
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} if plain else {}
    done = subprocess.run(
        [*command, "predict", "--csv", "--device", "numpy", name],
        cwd=trained,
        env={**environment, **ascii_only},
        capture_output=True,
        timeout=60,
    )
    odd.unlink()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith(name + b",")


def test_csv_quotes_a_path_with_a_line_end(run_in, trained, pictures):
    odd = Path(trained, "one\nfile, really.png")
    odd.write_bytes(Path(trained, pictures[0]).read_bytes())
    done = run_in(trained, "predict", "--csv", "--device", "numpy", odd.name)
    odd.unlink()
    assert done.returncode == 0, done.stderr
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert row["path"] == odd.name
    assert row["index"].isdigit()


@pytest.mark.parametrize("end", ["\0", "\r\n"])
def test_paths_on_standard_input(command, environment, trained, pictures, end):
    done = subprocess.run(
        [*command, "predict", "--json", "--device", "numpy", pictures[2], "-", pictures[0]],
        cwd=trained,
        env=environment,
        input="".join(f"{path}{end}" for path in (pictures[1], pictures[3])).encode(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line)["path"] for line in done.stdout.splitlines()]
    assert found == [pictures[2], pictures[1], pictures[3], pictures[0]]


def test_a_picture_in_standard_input_is_no_list(command, environment, trained, pictures):
    done = subprocess.run(
        [*command, "predict", "--device", "numpy", "-"],
        input=(trained / pictures[0]).read_bytes(),
        capture_output=True,
        cwd=trained,
        env=environment,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard input is a picture" in done.stderr


def test_an_empty_standard_input_is_an_error(run_in, trained):
    done = run_in(trained, "predict", "--device", "numpy", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input has no paths" in done.stderr


def test_views_change_the_probabilities_alone(run_in, trained, pictures):
    """Those of dnnstack.load with the same views."""
    predict = ("predict", "--json", "--device", "numpy", "page.jpg", "--tta")
    plain, viewed = (
        json.loads(run_in(trained, *predict, tta).stdout) for tta in ("none", "mirror")
    )
    assert plain["preprocessing"] == viewed["preprocessing"]
    run = next((trained / "runs").iterdir())
    model = dnnstack.load(run, device="numpy", tta="mirror")
    wanted = model.predict_proba(trained / "page.jpg")[0].max()
    assert viewed["probability"] == pytest.approx(float(wanted), rel=1e-5)
    assert viewed["probability"] != pytest.approx(plain["probability"], rel=1e-3)
    refused = run_in(trained, *predict, "upside", status=2)
    assert "mirror+translate" in refused.stderr


def test_two_digits_are_not_answered_plainly(run_in, trained, pictures, tmp_path):
    with Image.open(trained / pictures[0]) as one, Image.open(trained / pictures[1]) as other:
        page = Image.new("L", (80, 40))
        page.paste(one, (6, 6))
        page.paste(other, (44, 6))
    page.resize((320, 160)).save(tmp_path / "two.png")
    line = ("predict", "--device", "numpy", str(tmp_path / "two.png"))
    done = run_in(trained, *line, status=0)
    assert ": not sure (several digits?); likeliest: " in done.stdout
    # The whole picture as it is: nothing was located, and nothing is doubted.
    assert json.loads(run_in(trained, *line, "--json", "--raw").stdout)["sure"]


def test_a_letter_is_not_answered_plainly(run_in, trained, tmp_path):
    page = Image.new("L", (200, 200), 255)
    ImageDraw.Draw(page).text((100, 100), "W", font_size=110, anchor="mm")
    page.save(tmp_path / "letter.png")
    line = ("predict", "--device", "numpy", "--min-probability", "0", str(tmp_path / "letter.png"))
    done = run_in(trained, *line, status=3)
    assert ": not sure (not the shape of a digit); likeliest: " in done.stdout
