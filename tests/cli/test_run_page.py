"""``report`` of runs: one page that says what train, eval and explain say, in a real browser."""

from __future__ import annotations

import base64
import csv
import json
import math
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import dnnstack
import pytest
from dnnstack.cli.main import main
from dnnstack.common.locks import lock
from dnnstack.reports.run_page import write_page
from dnnstack.reports.run_story import story
from PIL import Image

from ..support.page_code import BROWSER, browser
from .conftest import TINY

needs_browser = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
HOSTILE = "</script><script>alert(1)</script>\x1b[2J"


@pytest.fixture(scope="module")
def made(tmp_path_factory, cache):
    """A folder with two runs, of which the first was evaluated and explained."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DNNSTACK_CACHE", str(cache))
        Path("tiny.yaml").write_text(TINY)
        train = ["train", "--config", "tiny.yaml", "--device", "numpy", "-q"]
        assert main(train) == 0
        assert main([*train, "--set", "optimizer.lr=0.01", "--set", "seed=5"]) == 0
        assert main(["report", "tiny", "--measure", "--device", "numpy", "--threads", "1"]) == 0
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch, cache):
    shutil.copytree(made, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("DNNSTACK_CACHE", str(cache))
    return Path("runs/tiny")


def _data(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def _said(capsys: Any, *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["report", *words])
    return (status, *capsys.readouterr())


def test_numbers_are_those_of_the_log_eval_and_explain(here, capsys):
    status, out, err = _said(capsys, "tiny", "--json")
    said = json.loads(out)
    assert (status, err, said["path"]) == (0, "", "runs/tiny/report.html")
    lines = [line.partition(":")[0] for line in said["absent"]]
    assert lines == ["Filters", "Samples"]
    text = (here / "report.html").read_text()
    (run,) = _data(text)["runs"]
    with open(here / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for split in ("train", "validation"):
        own = [row for row in rows if row["split"] == split]
        for key in ("step", "epoch", "loss", "accuracy", "learning_rate"):
            assert run[split][key] == [float(row[key]) for row in own], key
    log = [json.loads(line) for line in (here / "log.jsonl").read_text().splitlines()]
    assert run["train"]["seconds"] == [e["seconds"] for e in log if e["event"] == "train"]
    best = [entry for entry in log if entry.get("best")][-1]
    assert run["best"][0] == best["step"]
    assert run["best"][3:5] == [best["loss"], best["accuracy"]]
    found = json.loads((here / "eval-test/eval.json").read_text())
    capsys.readouterr()
    assert main(["eval", "--run", "tiny", "--device", "numpy", "--json", "--no-plots"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in asked} == asked
    manifest = json.loads((here / f"checkpoints/step-{found['step']}.json").read_text())
    assert found["sha256"] == manifest["sha256"]
    for each in asked["per_class"]:
        figures = [f"{each[key]:.2%}" for key in ("precision", "recall", "f1")]
        cells = [each["label"], str(each["count"]), str(each["correct"]), *figures]
        assert "".join(f"<td>{cell}</td>" for cell in cells) in text
    low, high = asked["accuracy_interval"]
    assert f"accuracy {asked['accuracy']:.2%} ({low:.2%} to {high:.2%})" in text
    explained = json.loads((here / "explain.json").read_text())
    drawn = re.findall(r">([^<]+)</text>", text)
    assert {layer["name"] for layer in explained["layers"]} <= set(drawn)
    for layer in explained["layers"]:
        spent = sum(op["seconds"] or 0 for op in layer["operations"])
        least = sum(op["limit_seconds"] or 0 for op in layer["operations"])
        share = f", {least / spent:.0%} of the limit" if 0 < least < spent else ""
        told = (f">{spent * 1e3:.2f} ms{share}<", f">{spent * 1e6:.1f} us{share}<")
        assert any(each in text for each in told)
        for call in (c for op in layer["operations"] for c in op["calls"]):
            assert call["function"] in drawn


def test_the_command_repeats_the_training(here, capsys):
    text = (here / "report.html").read_text()
    command = re.search(r"<code>dnnstack (.*?)</code>", text)
    assert command is not None
    assert command[1].endswith("--device numpy --threads 1") or "--threads" in command[1]
    assert main([*command[1].split(), "-q"]) == 0
    assert Path("runs/tiny-3/metrics.csv").read_text() == (here / "metrics.csv").read_text()


def test_stops_are_marked_and_seconds_go_on(here):
    """The log of a run that was interrupted, resumed and rolled back."""
    events: list[dict[str, Any]] = [
        {"event": "start", "step": 0, "time": 1.0},
        {"event": "train", "step": 10, "epoch": 0.5, "loss": 2.0, "accuracy": 0.5, "seconds": 3.0},
        {"event": "end", "step": 10, "state": "interrupted", "training_seconds": 3.0},
        {"event": "resume", "step": 10, "time": 9.0},
        {"event": "train", "step": 20, "epoch": 1.0, "loss": None, "accuracy": 0.6, "seconds": 4.0},
        {"event": "validation", "step": 20, "epoch": 1.0, "loss": 1.0, "accuracy": 0.7,
         "count": 100, "correct": 70, "best": True},
        {"event": "train", "step": 30, "epoch": 1.5, "loss": 9.0, "accuracy": 0.1, "seconds": 6.0},
        {"event": "rollback", "step": 20},
        {"event": "train", "step": 30, "epoch": 1.5, "loss": 0.5, "accuracy": 0.8, "seconds": 8.0},
        {"event": "end", "step": 30, "state": "finished", "early": True},
    ]  # fmt: skip
    (here / "log.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events) + "{torn")
    found = story(here)
    assert found.curves["train"]["seconds"] == [3.0, 7.0, 11.0]
    assert found.curves["train"]["loss"] == [2.0, None, 0.5]
    assert found.curves["validation"]["seconds"] == [7.0]
    assert found.curves["stops"] == [
        [10, 0.5, 3.0, "resume"],
        [20, 1.0, 9.0, "rollback"],
        [30, 1.5, 11.0, "ended early"],
    ]
    assert found.curves["best"] == [20, 1.0, 7.0, 1.0, 0.7, None]
    assert found.accuracy == "70.00% (60.42% to 78.11%)"


def test_what_is_old_missing_or_damaged_is_a_line_with_its_command(here, capsys):
    def absent(title: str) -> str:
        status, out, err = _said(capsys, "tiny", "--json")
        assert (status, err) == (0, "")
        lines = [line for line in json.loads(out)["absent"] if line.startswith(f"{title}: ")]
        return "".join(lines)

    stored = here / "eval-test/eval.json"
    good = json.loads(stored.read_text())
    assert absent("Evaluation: test") == ""
    stored.write_text(json.dumps(good | {"sha256": "0" * 64, "step": 7}))
    line = absent("Evaluation: test")
    assert "is of step 7, the best checkpoint of step " in line
    assert line.endswith("; dnnstack eval --run runs/tiny --split test")
    assert line in (here / "report.html").read_text()
    assert absent("Errors") == ""
    os.utime(here / "eval-test/errors.png", (0, 0))
    old = "Errors: errors.png is older than the best checkpoint; dnnstack eval --run runs/tiny"
    assert absent("Errors") == f"{old} --split test"
    config = here / "config.yaml"
    config.write_text(config.read_text() + "\n")
    assert "Network: is of another config; dnnstack explain --config" in absent("Network")
    spoilt = ("{", "[]", "null", "[[1]]", json.dumps(good | {"per_class": [{}]}), "\xff")
    for text in (*spoilt, json.dumps(good | {"accuracy_interval": "x"}), '{"dataset": 1e999}'):
        for name in ("eval-test/eval.json", "explain.json", "metrics.csv"):
            (here / name).write_text(text, encoding="latin-1")
        for name in ("errors.png", "reliability.png"):
            (here / "eval-test" / name).write_text("x" * 300_000)
        assert "cannot be read" in absent("Evaluation: test")
        assert "cannot be read" in absent("Network")
        assert "cannot be read" in absent("Errors")
    stored.unlink()
    (here / "explain.json").unlink()
    assert "not there yet; dnnstack eval --run runs/tiny --split test" in absent("Evaluation: test")
    assert "not there yet; dnnstack explain --config runs/tiny/config.yaml" in absent("Network")
    (here / "log.jsonl").write_text("\n")
    status, _, err = _said(capsys, "tiny")
    assert (status, "nothing is known of how the run went" in err) == (1, True)


def test_options_belong_to_what_is_reported(here, capsys):
    for words in (["tiny", "--no-plots"], ["tiny", "tiny-2", "--plots-dir", "x"]):
        status, _, err = _said(capsys, *words)
        assert (status, "--plots-dir and --no-plots are for sweeps" in err) == (2, True)
    status, _, err = _said(capsys, "nosuch", "tiny")
    assert (status, "nosuch: no such run, sweep or compression" in err) == (1, True)
    status, _, err = _said(capsys, "tiny", "-o", "nowhere/page.html")
    assert (status, "nowhere/page.html: cannot be written: No such file" in err) == (1, True)


def test_several_runs_show_what_differs(here, capsys):
    """Without a name it is the latest run; in Python, too, whose default is the same file."""
    status, out, _ = _said(capsys)
    assert (status, out.splitlines()[-1]) == (0, "written runs/tiny-2/report.html")
    path = dnnstack.report("tiny", "tiny-2", output="both.html")
    assert path == Path("both.html")
    text = path.read_text()
    assert [run["name"] for run in _data(text)["runs"]] == ["tiny", "tiny-2"]
    assert re.search(r"optimizer\.lr: \S+ -&gt; 0\.01</pre>", text)
    assert "seed: " in text
    for one in (story(here), story(Path("runs/tiny-2"))):
        assert f"<td>{one.accuracy}</td>" in text
        assert re.search(r"\(\d+\.\d\d% to \d+\.\d\d%\)", one.accuracy)
    assert dnnstack.report("tiny", "tiny-2") == Path("runs/report.html")
    assert dnnstack.report() == Path("runs/tiny-2/report.html")


def test_large_pictures_are_made_smaller_and_small_ones_kept(here):
    noise = Image.effect_noise((1500, 1000), 90)
    noise.save(here / "samples.png")
    small = (here / "eval-test/errors.png").read_bytes()
    text = write_page([here], None).path.read_text()
    shown = dict(re.findall(r'src="data:image/(\w+);base64,[^"]*" alt="([\w.]+)"', text))
    assert shown["jpeg"] == "samples.png"
    assert f'src="data:image/png;base64,{base64.b64encode(small).decode()}"' in text
    assert len(text) < 2_000_000


def test_a_long_training_is_thinned(here):
    lines = [json.dumps({"event": "start", "step": 0, "time": 1.0})]
    row = {"event": "train", "loss": 1.0, "accuracy": 0.5, "learning_rate": 0.1, "seconds": 1.0}
    lines += [json.dumps({**row, "step": n, "epoch": n / 1000}) for n in range(1, 12_001)]
    (here / "log.jsonl").write_text("\n".join(lines) + "\n")
    steps = story(here).curves["train"]["step"]
    assert steps == list(range(3, 12_001, 3))
    assert write_page([here], None).path.stat().st_size < 2_000_000


def test_watch_renews_the_page_until_the_training_ends(here):
    """It loads itself again only then."""
    page, log = here / "report.html", here / "log.jsonl"
    refresh = '<meta http-equiv="refresh" content="5">'

    def until(seen: Any) -> None:
        end = time.monotonic() + 60
        while not seen():
            assert time.monotonic() < end
            time.sleep(0.01)

    page.unlink()
    held = lock(here / "lock")
    watching = threading.Thread(target=main, args=(["report", "tiny", "--watch"],))
    with held:
        watching.start()
        until(page.exists)
        assert refresh in page.read_text()
        with open(log, "a") as file:
            file.write('{"event": "train", "step": 999, "epoch": 9.0, "loss": 0.25}\n')
        until(lambda: 999 in _data(page.read_text())["runs"][0]["train"]["step"])
        assert refresh in page.read_text()
    watching.join(60)
    assert not watching.is_alive()
    assert refresh not in page.read_text()


@needs_browser
def test_the_page_in_a_browser(here, tmp_path):
    """Nothing is asked for, nothing fails, names stay text, and each axis has its curves."""
    stored = here / "eval-test/eval.json"
    found = json.loads(stored.read_text())
    found["per_class"][0]["label"] = HOSTILE
    stored.write_text(json.dumps(found))
    renamed = here.with_name("<img src=x onerror=alert(1)>&")
    here.rename(renamed)
    page = write_page([renamed, Path("runs/tiny-2")], Path("both.html")).path
    alone = write_page([renamed], Path("alone.html")).path
    assert "\x1b" not in alone.read_text()
    spy = "window.faults = []; addEventListener('error', (e) => faults.push(e.message)); "
    spy += "addEventListener('securitypolicyviolation', (e) => faults.push(e.violatedDirective)); "
    spy += "window.alert = () => faults.push('alert'); console.error = (m) => faults.push(m)"
    with browser(tmp_path / "browser") as tab:
        tab("Page.addScriptToEvaluateOnNewDocument", source=spy)
        for path, runs in ((alone, 1), (page, 2)):
            tab.open(path.absolute())
            assert tab.value("faults") == []
            assert tab.value("document.querySelectorAll('canvas').length") == 3
            told = tab.value("[...document.querySelectorAll('h1')].map((e) => e.textContent)")
            assert told[0] == renamed.name
            assert len(told) == runs
            for axis in ("step", "epoch", "seconds"):
                tab.value(f"document.querySelector('[value={axis}]').click()")
                shown = tab.value("plots.map((p) => p.data[0].filter((v) => v != null))")
                curves = _data(path.read_text())["runs"]
                wanted = sorted({x for run in curves for s in ("train", "validation")
                                 for x in run[s][axis]})  # fmt: skip
                assert len(shown[0]) == len(wanted)
                assert all(map(math.isclose, shown[0], wanted))
            series = tab.value("plots[0].series.length")
            assert series == 1 + 2 * runs
        tab.open(alone.absolute())
        label = tab.value("document.querySelector('.scroll td').textContent")
        assert label == HOSTILE.replace("\x1b", r"\x1b")
        assert tab.value("document.documentElement.scrollWidth <= innerWidth")
        tab.value("dispatchEvent(new Event('beforeprint'))")
        assert tab.value("document.documentElement.className") == "paper"
        assert tab.value("plots[0].width") == 660
        tab.value("dispatchEvent(new Event('afterprint'))")
        assert tab.value("faults") == []
        files = {path.absolute().as_uri() for path in (alone, page)}
        # A picture in the page is an address, but no request goes anywhere.
        assert {url for url in tab.requests if not url.startswith("data:")} <= files
