"""A race: its runs, its test, what is stored, and what a verification finds."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import pytest
from dnnstack import load
from dnnstack.cli.main import main
from dnnstack.cli.race import race
from dnnstack.common.errors import CheckpointError, UsageError
from dnnstack.configs import load_config
from dnnstack.racing import RECORDS, Race, raced, verified
from dnnstack.training.inference.intervals import above

SHORT = [
    "data.dataset={strokes: {train_count: 200, test_count: 50}}",
    "data.validation=0",
    "data.batch_size=16",
    "train={max_steps: 3}",
    "run.device=numpy",
]


# Of tables of Student's law.
@pytest.mark.parametrize(
    ("count", "t", "p"),
    [
        (2, 1.0, 0.25), (2, 6.313752, 0.05), (3, 2.919986, 0.05), (4, 2.353363, 0.05),
        (5, 2.131847, 0.05), (6, 2.015048, 0.05), (11, 2.763769, 0.01), (25, 2.492159, 0.01),
        (26, 2.485107, 0.01), (26, -2.485107, 0.99), (7, 0.0, 0.5),
    ],
)  # fmt: skip
def test_p_is_that_of_a_t_test(count, t, p):
    drawn = [(-1) ** n * n * n for n in range(count)]
    middle, error = fmean(drawn), stdev(drawn) / sqrt(count)
    assert above([value - middle + 3.0 for value in drawn], 3.0 - t * error) == pytest.approx(
        p, rel=1e-5
    )


def test_p_of_equal_values():
    assert above([0.5, 0.5], 0.4) == above([1.0, 1.0, 1.0 + 1e-9], 0.5) == 2.0**-53
    assert above([0.5, 0.5], 0.5) == above([0.5, 0.5], 0.6) == 1.0


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """The result of a race of three seeds and its file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RECORDS, "digits", 0.01)
    return raced("digits", 3, SHORT, tmp_path / "runs", None, True, lambda text: None)


def test_a_race_trains_evaluates_and_stores(stored, capsys):
    found, file = stored
    folder = file.parent
    assert file.relative_to(folder.parent).as_posix() == "race-digits/digits-seeds.json"
    assert found.seeds == ("seed-1", "seed-2", "seed-3")
    for seed, accuracy, seconds in zip(found.seeds, found.accuracies, found.seconds, strict=True):
        run = folder / "digits-seeds" / seed
        with load(run, device="numpy") as model:
            assert model.evaluate().accuracy == accuracy
        last = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
        assert last["training_seconds"] == pytest.approx(seconds)
    assert found.mean == fmean(found.accuracies)
    assert found.p == above(found.accuracies, 0.01)
    assert "max_steps: 3" in found.config
    assert "dnnstack" in found.versions
    names = {name.rpartition("/")[2] for name in found.files}
    assert {"group.json", "config.yaml", "log.jsonl", "step-3.safetensors"} <= names
    assert "lock" not in names
    assert verified(file) == (found, [])
    assert main(["race", "--verify", str(file)]) == (0 if found.holds else 3)
    text = capsys.readouterr().out
    assert text.startswith(f"digits: {found.mean:.3%} on average, deviation ")
    assert f"more than 1.0%: {'' if found.holds else 'not '}shown, p " in text


def test_a_verification_names_what_is_not_so(stored, tmp_path, capsys):
    found, file = stored
    told = json.loads(file.read_text())

    def wrong(**changes):
        file.write_text(json.dumps({**told, **changes}))
        return verified(file)[1]

    assert wrong(mean=found.mean * (1 + 1e-8)) == [
        f"mean: {found.mean * (1 + 1e-8)} should be {found.mean}"
    ]
    assert wrong(p=0.75) == [f"p: 0.75 should be {found.p}"]
    assert wrong(target=0.02)[0] == "target: 0.02 is not what digits claims"
    assert wrong(seconds=[1.0, 2.0]) == ["seeds: as many accuracies and seconds are needed"]
    (tmp_path / "out").write_text("x")
    for name in ("../out", str(tmp_path / "out"), "none"):
        assert wrong(files={name: "0"}) == [f"{name}: is not the file that was stored"]
    log = file.parent / "digits-seeds/seed-2/log.jsonl"
    log.write_text(log.read_text() + "\n")
    assert wrong() == ["digits-seeds/seed-2/log.jsonl: is not the file that was stored"]
    assert main(["race", "--verify", str(file)]) == 1
    assert f"{file}: digits-seeds/seed-2/log.jsonl: is not" in capsys.readouterr().err
    file.write_text(json.dumps({**told, "accuracies": [0.5]}))
    with pytest.raises(CheckpointError, match=r"seeds.json: cannot be read: accuracies"):
        verified(file)


def test_a_claim_holds_below_one_in_a_hundred():
    found = Race("x", 0.5, "", ("a", "b"), (0.6, 0.7), (1.0, 3.0), 0.65, 0.01, {}, {})
    assert not found.holds
    better = replace(found, p=0.0099)
    assert better.holds
    assert better.as_text().splitlines() == [
        "x: 65.000% on average, deviation 7.071%, 2 seeds",
        "more than 50.0%: shown, p = 0.010",
        "seconds of training: 2 (1 to 3)",
    ]
    assert found.to_json()["holds"] is False


def test_what_is_no_race_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"seeds: expected at least 2, .* \(got 1\)"):
        raced("mnist-fast", 1, [], tmp_path, None, True, print)
    Path("mnist-fast.yaml").write_text(load_config("mnist-fast.yaml").text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"mnist-fast.yaml: is not the record's config; race in"):
        raced("mnist-fast", 2, [], tmp_path, None, True, print)
    assert main(["race"]) == main(["race", "mnist-fast", "--verify", "x.json"]) == 2
    assert "name a record, or a file with --verify" in capsys.readouterr().err


def test_the_records_are_those_that_the_command_names():
    (name,) = (each for each in race.params if each.name == "name")
    assert [*name.type.choices] == [*RECORDS]
