"""Where the output is not UTF-8, names keep every character, some of them as escapes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import cache

import pytest
import yaml

from ..support.forking import Commands
from ..support.picture_folders import paint
from ..support.stored import beside

NAMES = ("Aster \u7d2b", "plain \xfc", "\uff54\uff55")
CONFIG = beside(__file__, "encodings_config.yaml")
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SETTINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C": C_LOCALE,
}
ON_NUMPY = ("--device", "numpy")
OF_TRAINING = ("--split", "train")


@pytest.fixture(scope="module")
def flowers(run_in, tmp_path_factory):
    """A folder with a config, pictures of three classes, and two runs."""
    folder = tmp_path_factory.mktemp("flowers")
    (folder / "flowers.yaml").write_text(CONFIG, "utf-8")
    for number in range(24):
        name = NAMES[number % 3]
        paint(folder / "fl\xfcrs \u7d2b" / name / f"{number // 3}.png", number, (8, 8))
    for _ in range(2):
        run_in(folder, "train", "--config", "flowers.yaml", *ON_NUMPY, status=0)
    return folder


@pytest.fixture(scope="module")
def printed(environment, flowers, tmp_path_factory):
    """The exit status and what a command prints under such a setting, with which Python started."""
    with ExitStack() as until:

        @cache
        def commands(setting: str) -> Commands:
            texts = tmp_path_factory.mktemp(setting)
            return until.enter_context(closing(Commands(environment | SETTINGS[setting], texts)))

        def run(setting: str, *words: str, encoding: str = "") -> tuple[int, str, str]:
            plain = setting == "C"
            # As Python reads its arguments.
            taken = [
                os.fsencode(w).decode("ascii", "surrogateescape") if plain else w for w in words
            ]
            encoding = encoding or ("ascii" if plain else setting)
            own = environment | SETTINGS[setting]
            done = commands(setting).run(flowers, taken, own, encoding)
            return done.returncode, done.stdout, done.stderr

        yield run


Printed = Callable[..., tuple[int, str, str]]


def _escaped(text: str, setting: str) -> str:
    encoding = "latin-1" if setting == "latin-1" else "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_prediction(printed, setting):
    path = f"fl\xfcrs \u7d2b/{NAMES[2]}/0.png"
    status, out, err = printed(setting, "predict", *ON_NUMPY, path)
    assert status == 0, err
    # In the C locale a path is bytes.
    shown = path if setting != "C" else os.fsencode(path).decode("ascii", "surrogateescape")
    assert _escaped(shown, setting) in out
    rows = re.findall(r"  [> ] +(\S.*?) +\d+\.\d%", out)
    assert rows == [_escaped(name, setting) for name in NAMES]
    # The columns stand where they should: after each percentage there is a bar or nothing.
    assert len({line.index("%") for line in out.splitlines()[1:] if "%" in line}) == 1
    status, out, err = printed(setting, "predict", "--json", *ON_NUMPY, path)
    found = json.loads(out)
    assert {answer["label"] for answer in found["top"]} == set(NAMES)
    assert os.fsencode(found["path"]) == os.fsencode(path)


@pytest.mark.parametrize(
    "words",
    [
        ("eval", *ON_NUMPY, *OF_TRAINING, "--no-plots"),
        ("compare", "flowers", "flowers-2", *ON_NUMPY, *OF_TRAINING),
        ("data", "--config", "flowers.yaml", "--no-sheet"),
        ("runs",),
        ("new", "fl\xfcrs \u7d2b", "--output", "made.yaml", "--overwrite"),
    ],
    ids=lambda words: words[0],
)
def test_what_names_classes(printed, words):
    setting = "ascii"
    status, out, err = printed(setting, *words)
    assert status == 0, err
    assert "Traceback" not in err
    if words[0] in ("eval", "data", "new"):
        assert all(_escaped(name, setting) in out for name in NAMES)
    status, out, err = printed(setting, *words, "--json")
    assert status == 0, err
    found = json.dumps(json.loads(out), ensure_ascii=False)
    if words[0] in ("eval", "data", "new"):
        assert all(f'"{name}"' in found for name in NAMES)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_config_is_utf_8_whatever_the_output_is(printed, setting):
    status, out, err = printed(setting, "config", "--config", "flowers.yaml", encoding="utf-8")
    assert status == 0, err
    options = yaml.safe_load(out)["data"]["dataset"]["image_folder"]
    assert options["train"].endswith("fl\xfcrs \u7d2b")


def test_the_c_locale_is_named_where_it_makes_names_unreadable(printed, flowers):
    advice = "is UTF-8, but the encoding of this locale is ascii; set PYTHONUTF8=1"
    shutil.copytree(flowers / "fl\xfcrs \u7d2b", flowers / "plain", dirs_exist_ok=True)
    status, _, err = printed("C", "new", "plain", "--output", "c.yaml")
    assert status == 1
    assert f"'{_escaped(NAMES[0], 'C')}' {advice}" in err
    for command in ("data", "explain"):
        status, _, err = printed("C", command, "--config", "flowers.yaml")
        assert status == 1
        assert "there is no folder 'fl\\xfcrs \\u7d2b', because the encoding of this locale" in err
    # A name that is no text in any locale is to be changed.
    odd = flowers / "odd" / os.fsdecode(b"bad\xff")
    paint(flowers / "odd" / "a" / "0.png", 0)
    odd.mkdir(parents=True, exist_ok=True)
    shutil.copy(flowers / "odd" / "a" / "0.png", odd)
    for setting in ("C", "ascii"):
        status, _, err = printed(setting, "new", "odd", "--output", "odd.yaml")
        assert status == 1
        assert "rename the folder" in err
